package trajectory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Violation is one way in which a document is not a valid trajectory.
type Violation struct {
	Path    string `json:"path"` // such as "steps[2].tool_calls[0].arguments"; empty: the document
	Message string `json:"message"`
}

// String returns the violation on one line.
func (v Violation) String() string {
	if v.Path == "" {
		return v.Message
	}
	return v.Path + ": " + v.Message
}

// Parse reads a trajectory and reports every rule that it breaks. The
// trajectory is nil if and only if a rule is broken. Parse accepts what the
// format's own validator accepts: numbers as text ("5"), whole floats as
// integers, words as truth values, NaN. It returns such values in their proper
// type, and leaves out numbers that are not finite.
func Parse(data []byte) (*Trajectory, []Violation) {
	var doc any
	d := json.NewDecoder(bytes.NewReader(quoteNaN(data)))
	d.UseNumber()
	if err := d.Decode(&doc); err != nil {
		return nil, []Violation{{Message: "not JSON: " + err.Error()}}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, []Violation{{Message: "not JSON: something follows the document"}}
	}
	v := &validator{}
	clean := v.trajectory("", doc, false)
	if len(v.found) > 0 {
		return nil, v.found
	}
	raw, err := json.Marshal(clean)
	if err != nil {
		return nil, []Violation{{Message: err.Error()}}
	}
	t := &Trajectory{}
	if err := json.Unmarshal(raw, t); err != nil {
		return nil, []Violation{{Message: err.Error()}}
	}
	return t, nil
}

// Validate reports every rule of the format that the document breaks.
func Validate(data []byte) []Violation {
	_, vs := Parse(data)
	return vs
}

// quoteNaN quotes the three words that Python writes for numbers that JSON does
// not have.
func quoteNaN(data []byte) []byte {
	if !bytes.Contains(data, []byte("NaN")) && !bytes.Contains(data, []byte("Infinity")) {
		return data
	}
	out := make([]byte, 0, len(data)+16)
	inText := false
	for i := 0; i < len(data); i++ {
		c := data[i]
		switch {
		case inText && c == '\\' && i+1 < len(data):
			out = append(out, c)
			i++
			c = data[i]
		case c == '"':
			inText = !inText
		case !inText:
			if word := nonFinite(data[i:]); word != "" {
				out = append(append(append(out, '"'), word...), '"')
				i += len(word) - 1
				continue
			}
		}
		out = append(out, c)
	}
	return out
}

func nonFinite(b []byte) string {
	for _, w := range []string{"NaN", "Infinity", "-Infinity"} {
		if bytes.HasPrefix(b, []byte(w)) {
			return w
		}
	}
	return ""
}

// validator walks a document and collects its violations. Each of its methods
// returns the value in its proper type.
type validator struct{ found []Violation }

func (v *validator) bad(path, format string, args ...any) {
	v.found = append(v.found, Violation{path, fmt.Sprintf(format, args...)})
}

// check validates one value.
type check func(path string, x any) any

// field is one key of an object.
type field struct {
	required bool // must be there
	nullable bool // may be null, which means absent
	check    check
}

func req(c check) field { return field{required: true, check: c} }
func opt(c check) field { return field{nullable: true, check: c} }

// object validates a JSON object that may have only these keys. The result
// leaves out null values of nullable keys. It is nil if x is not an object.
func (v *validator) object(path string, x any, fields map[string]field) map[string]any {
	m, ok := x.(map[string]any)
	if !ok {
		v.bad(path, "must be an object, got %s", show(x))
		return nil
	}
	out := make(map[string]any, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		f, known := fields[k]
		switch {
		case !known:
			v.bad(at(path, k), "unknown key")
		case m[k] != nil || !f.nullable:
			out[k] = f.check(at(path, k), m[k])
		}
	}
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		if _, ok := m[k]; !ok && fields[k].required {
			v.bad(at(path, k), "is missing")
		}
	}
	return out
}

func at(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func (v *validator) list(each check) check {
	return func(path string, x any) any {
		l, ok := x.([]any)
		if !ok {
			v.bad(path, "must be a list, got %s", show(x))
			return nil
		}
		out := make([]any, len(l))
		for i, e := range l {
			out[i] = each(fmt.Sprintf("%s[%d]", path, i), e)
		}
		return out
	}
}

func (v *validator) text(path string, x any) any {
	s, ok := x.(string)
	if !ok {
		v.bad(path, "must be a text, got %s", show(x))
	}
	return s
}

// free accepts any object.
func (v *validator) free(path string, x any) any {
	if _, ok := x.(map[string]any); !ok {
		v.bad(path, "must be an object, got %s", show(x))
		return nil
	}
	return x
}

// digits returns x as text if it could be a number.
func digits(x any) string {
	switch x := x.(type) {
	case json.Number:
		return x.String()
	case string:
		return strings.TrimSpace(x)
	case bool:
		return map[bool]string{true: "1", false: "0"}[x]
	}
	return ""
}

// integer accepts whole numbers, also as floats, texts and truth values.
func (v *validator) integer(path string, x any) any {
	text := digits(x)
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && f == float64(int64(f)) {
		return int64(f)
	}
	v.bad(path, "must be a whole number, got %s", show(x))
	return int64(0)
}

// atLeastZero accepts whole numbers from 0 on.
func (v *validator) atLeastZero(path string, x any) any {
	n := v.integer(path, x)
	if i, ok := n.(int64); ok && i < 0 {
		v.bad(path, "must not be negative, got %d", i)
	}
	return n
}

// number accepts numbers, also as texts and truth values. A number that is not
// finite becomes nil.
func (v *validator) number(path string, x any) any {
	text := digits(x)
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		v.bad(path, "must be a number, got %s", show(x))
		return nil
	}
	if f-f != 0 { // NaN or infinite
		return nil
	}
	return f
}

// logprob accepts what number accepts. A number that is not finite, such as
// that of a token with probability 0, becomes the least number.
func (v *validator) logprob(path string, x any) any {
	if n := v.number(path, x); n != nil {
		return n
	}
	return -math.MaxFloat64
}

// truth accepts truth values, also as words and as 0 and 1.
func (v *validator) truth(path string, x any) any {
	switch strings.ToLower(fmt.Sprint(x)) {
	case "true", "1", "1.0", "yes", "y", "on", "t":
		return true
	case "false", "0", "0.0", "no", "n", "off", "f":
		return false
	default:
		v.bad(path, "must be true or false, got %s", show(x))
		return false
	}
}

// word accepts one of the allowed texts.
func (v *validator) word(allowed ...string) check {
	return func(path string, x any) any {
		s, ok := x.(string)
		if !ok || !slices.Contains(allowed, s) {
			v.bad(path, "must be one of %s, got %s", strings.Join(allowed, ", "), show(x))
		}
		return s
	}
}

func show(x any) string {
	switch x := x.(type) {
	case nil:
		return "null"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		if len(x) > 40 {
			return fmt.Sprintf("%.40q…", x)
		}
		return strconv.Quote(x)
	default:
		return fmt.Sprint(x)
	}
}
