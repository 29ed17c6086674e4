// Package document reads JSON that others wrote: the export of an
// application, or an answer of an agent with JSON somewhere in it. Sizes and
// depths are bounded, and numbers keep their text.
//
// It does not know what the documents mean: the comparators do.
package document

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/plugins/output"
)

// Bounds of a document.
const (
	MaxBytes  = 16 << 20
	maxDepth  = 500       // values in values
	maxValues = 1_000_000 // values of all depths
)

// Object is a value with others under names. The values that hold no others are
// string, json.Number, bool and nil.
type Object = map[string]any

// List is a value with others in an order.
type List = []any

// Parse reads one JSON value. Nothing but white space may follow it, and a byte order
// mark may be before it.
func Parse(text string) (any, error) {
	text = strings.TrimPrefix(text, "\ufeff") // a byte order mark
	if err := bounded(text); err != nil {
		return nil, err
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it is empty")
		}
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the first value")
	}
	return v, nil
}

// bounded checks the bounds of a text before it is decoded, because a decoded
// document takes many times the memory of its text.
func bounded(text string) error {
	if len(text) > MaxBytes {
		return fmt.Errorf("it has %d bytes, at most %d are read", len(text), MaxBytes)
	}
	depth, values, inside := 0, 1, false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case inside && c == '\\':
			i++
		case c == '"':
			inside = !inside
		case inside:
		case c == '{' || c == '[':
			depth++
			values++
		case c == '}' || c == ']':
			depth--
		case c == ',' || c == ':':
			values++
		}
		if depth > maxDepth {
			return fmt.Errorf("it is nested more than %d levels deep", maxDepth)
		}
		if values > maxValues {
			return fmt.Errorf("it has more than %d values", maxValues)
		}
	}
	return nil
}

// Number returns a finite number; ok is false for any other value, such as the
// text of a number.
func Number(v any) (f float64, ok bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	return finite(n.String())
}

func finite(text string) (float64, bool) {
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil && !math.IsInf(f, 0) && !math.IsNaN(f)
}

// rounding is how much of a number the arithmetic may lose. Without it, 10.3
// would not be within 0.3 of 10.
const rounding = 1e-9

// Within reports whether a and b differ by at most tolerance. Numbers that are not
// finite never do.
func Within(a, b, tolerance float64) bool {
	if math.IsInf(a, 0) || math.IsInf(b, 0) {
		return false
	}
	return math.Abs(a-b) <= tolerance+rounding*max(math.Abs(a), math.Abs(b))
}

// SameNumber reports whether two numbers have the same value. Whole numbers are
// compared exactly, whatever their length.
func SameNumber(a, b json.Number) bool {
	if a == b {
		return true
	}
	if whole(a) && whole(b) {
		x, okX := new(big.Int).SetString(a.String(), 10)
		y, okY := new(big.Int).SetString(b.String(), 10)
		return okX && okY && x.Cmp(y) == 0
	}
	x, okX := finite(a.String())
	y, okY := finite(b.String())
	return okX && okY && x == y
}

// whole reports whether n is written as a whole number of reasonable length.
func whole(n json.Number) bool { return len(n) < 1000 && !strings.ContainsAny(n.String(), ".eE") }

// written returns a number as Python writes it, because the comparators of the
// benchmark compare these texts: 2.0 is not 2, and 2.50 is 2.5.
func written(n json.Number) string {
	if whole(n) {
		if i, ok := new(big.Int).SetString(n.String(), 10); ok {
			return i.String()
		}
	}
	f, ok := finite(n.String())
	if !ok || whole(n) {
		return strings.ToLower(n.String())
	}
	text := strconv.FormatFloat(f, 'e', -1, 64)
	if e, err := strconv.Atoi(text[strings.IndexByte(text, 'e')+1:]); err == nil && e >= -4 && e < 16 {
		if text = strconv.FormatFloat(f, 'f', -1, 64); !strings.Contains(text, ".") {
			text += ".0"
		}
	}
	return text
}

// Text returns the text that a scalar is compared by: stripped, in lower case.
// Null is "none". ok is false for an object or a list.
func Text(v any) (text string, ok bool) {
	switch v := v.(type) {
	case nil:
		return "none", true
	case bool:
		return strconv.FormatBool(v), true
	case json.Number:
		return written(v), true
	case string:
		return strings.ToLower(strings.TrimSpace(v)), true
	}
	return "", false
}

// shown is how many bytes of a value a difference shows.
const shown = 80

// Show returns the beginning of a value as JSON, for a difference.
func Show(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // what was decoded can be encoded
	return output.First(strings.TrimSuffix(b.String(), "\n"), shown)
}

// Keys returns the sorted keys of an object.
func Keys(o Object) []string { return slices.Sorted(maps.Keys(o)) }

// Get returns the value under keys, one object in the other.
func Get(v any, keys ...string) any {
	for _, k := range keys {
		o, ok := v.(Object)
		if !ok {
			return nil
		}
		v = o[k]
	}
	return v
}

// Merged returns a list of objects with one key each as one object. Anything else,
// also a list in which a key is there twice, is returned as it is.
func Merged(v any) any {
	list, ok := v.(List)
	if !ok || len(list) == 0 {
		return v
	}
	all := Object{}
	for _, e := range list {
		o, ok := e.(Object)
		if !ok || len(o) != 1 {
			return v
		}
		maps.Copy(all, o)
	}
	if len(all) != len(list) {
		return v
	}
	return all
}

// ErrTruth means that a ground truth cannot be used.
var ErrTruth = errors.New("ground truth")

// BadTruth returns an ErrTruth.
func BadTruth(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrTruth, fmt.Sprintf(format, a...))
}

// Unwrapped returns the object in a ground truth {"answer": "<object>"} if at
// least as many keys of it as of the outer object are in the prediction.
func Unwrapped(truth, prediction any) (any, error) {
	truth = Merged(truth)
	o, ok := truth.(Object)
	answer, has := o["answer"]
	if !ok || len(o) != 1 || !has {
		return truth, nil
	}
	inner := Merged(answer)
	if text, isText := answer.(string); isText {
		v, err := Parse(text)
		if begins := strings.TrimSpace(text); err != nil && (strings.HasPrefix(begins, "{") || strings.HasPrefix(begins, "[")) {
			return nil, BadTruth("its answer is not JSON: %v", err)
		}
		inner = Merged(v)
	}
	fields, ok := inner.(Object)
	if !ok {
		return truth, nil
	}
	p, predicted := prediction.(Object)
	fits := 0
	for k := range fields {
		if _, both := p[k]; both {
			fits++
		}
	}
	if _, outer := p["answer"]; predicted && outer && fits < 1 {
		return truth, nil
	}
	return inner, nil
}
