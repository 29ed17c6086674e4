// Package fields compares an answer with the expected fields: texts, numbers with
// units, lists in any order, and times of day. It must not know where the answer
// comes from.
package fields

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/plugins/number"
	"github.com/berth-eval/berth/verifiers/compare/internal/diff"
	"github.com/berth-eval/berth/verifiers/compare/internal/document"
)

// Settings are the tolerances of a comparison.
type Settings struct {
	// Relative is the largest |a−e|/|e| of numbers; nil: numbers are equal as
	// text.
	Relative *float64
	// Absolute has the largest |a−e| of plain numbers, by field.
	Absolute map[string]float64
	// Unordered are fields whose objects may come in any order: the objects of a
	// list, or those under the fields themselves.
	Unordered []string
	// Minutes is how far times of day may differ. A negative number: times are
	// compared as text.
	Minutes float64
}

// Compare returns the fields of the truth that the prediction does not have, or
// has with another value. A prediction that is nil has none. Fails with
// document.ErrTruth if the truth is not an object.
func Compare(truth any, prediction document.Object, s Settings) (d diff.List, err error) {
	var predicted any
	if prediction != nil {
		predicted = prediction
	}
	truth, err = document.Unwrapped(truth, predicted)
	if err != nil {
		return d, err
	}
	expected, ok := truth.(document.Object)
	if !ok {
		return d, document.BadTruth("it is not an object of fields: %s", document.Show(truth))
	}
	if len(expected) == 0 {
		d.Add("the ground truth is empty, which nothing equals")
		return d, nil
	}
	if prediction == nil {
		d.Add("there is no JSON object in the prediction")
		return d, nil
	}
	rest := unordered(&d, expected, prediction, &s)
	for _, key := range rest {
		e := expected[key]
		a, has := prediction[key]
		if s.field(key, a, e) || s.time(a, has, e, prediction) {
			continue
		}
		if !has {
			d.Add("%s is missing, expected %s", key, document.Show(e))
		} else {
			d.Add("%s is %s, expected %s", key, document.Show(a), document.Show(e))
		}
	}
	return d, nil
}

// unordered compares the fields whose objects may come in any order, and returns
// the other fields.
func unordered(d *diff.List, expected, prediction document.Object, s *Settings) (rest []string) {
	var keys []string
	var want, got []any
	for _, key := range document.Keys(expected) {
		if !slices.Contains(s.Unordered, key) {
			rest = append(rest, key)
			continue
		}
		e, a := expected[key], prediction[key]
		if list, ok := e.(document.List); ok {
			if !s.list(a, list, true) && !s.equal(a, e, true) {
				d.Add("%s is %s, expected in any order %s", key, document.Show(a), document.Show(e))
			}
			continue
		}
		keys, want, got = append(keys, key), append(want, e), append(got, a)
	}
	if !anyOrder(got, want, func(a, e any) bool { return s.equal(a, e, true) }) {
		d.Add("%s are not the expected objects in any order: %s, expected %s",
			strings.Join(keys, ", "), document.Show(got), document.Show(want))
	}
	return rest
}

// field compares one field.
func (s *Settings) field(key string, actual, expected any) bool {
	if tolerance, ok := s.Absolute[key]; ok {
		a, okA := plainNumber(actual)
		e, okE := plainNumber(expected)
		if okA && okE {
			return document.Within(a, e, tolerance)
		}
		return s.equal(actual, expected, false)
	}
	return s.equal(actual, expected, true)
}

// equal compares two values. Objects are equal if the expected keys are, lists in
// any order. units says whether a unit after a number is cut.
func (s *Settings) equal(actual, expected any, units bool) bool {
	switch e := document.Merged(expected).(type) {
	case document.List:
		return s.list(actual, e, false)
	case document.Object:
		a, ok := document.Merged(actual).(document.Object)
		if !ok {
			return false
		}
		for key, value := range e {
			if !s.equal(a[key], value, units) {
				return false
			}
		}
		return true
	}
	return s.scalar(actual, expected, units)
}

// list compares a list, or a text with commas, with a list in any order.
func (s *Settings) list(actual any, expected document.List, units bool) bool {
	a, ok := actual.(document.List)
	if text, isText := actual.(string); isText {
		ok = true
		if strings.TrimSpace(text) != "" {
			for part := range strings.SplitSeq(text, ",") {
				a = append(a, part)
			}
		}
	}
	if !ok || len(a) != len(expected) {
		return false
	}
	if x, y := texts(a), texts(expected); x != nil && slices.Equal(x, y) {
		return true
	}
	return anyOrder(a, expected, func(a, e any) bool { return s.equal(a, e, units) })
}

// texts returns the sorted texts of scalars; nil: there are others.
func texts(list document.List) []string {
	out := make([]string, 0, len(list))
	for _, v := range list {
		t, ok := document.Text(v)
		if !ok {
			return nil
		}
		out = append(out, t)
	}
	slices.Sort(out)
	return out
}

// scalar compares a value that is neither an object nor a list.
func (s *Settings) scalar(actual, expected any, units bool) bool {
	a, okA := document.Text(actual)
	e, okE := document.Text(expected)
	if !okA || !okE {
		return false
	}
	switch {
	case a == e:
		return true
	case !units:
		return false
	}
	a, e = cut(a), cut(e)
	if a == e {
		return true
	}
	if s.Relative == nil {
		return false
	}
	x, okX := measure(a)
	y, okY := measure(e)
	if !okX || !okY {
		return false
	}
	if y == 0 {
		return x == 0
	}
	return document.Within(x, y, *s.Relative*math.Abs(y))
}

// unit matches a number with a unit after it.
var unit = regexp.MustCompile(`^(-?[\d,.]+)(?:\s*[A-Za-z%]+)?\s*$`)

// cut returns the number of a text without the unit after it, or the text.
func cut(text string) string {
	if m := unit.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return text
}

// measure returns the number of a text without the unit after it.
func measure(text string) (float64, bool) {
	return number.Read(strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyz%")) // document.Text has lower case
}

// plainNumber returns the value of a number, or of a text that is one, without a
// unit.
func plainNumber(v any) (float64, bool) {
	if f, ok := document.Number(v); ok {
		return f, true
	}
	text, ok := v.(string)
	if !ok {
		return 0, false
	}
	return number.Read(text)
}

// clock matches a time of day.
var clock = regexp.MustCompile(`^(\d{1,2}):(\d{2})(?::(\d{2}))?\s*(?:utc)?$`)

// minutes returns the minutes since midnight of a time of day.
func minutes(v any) (float64, bool) {
	text, ok := v.(string)
	if !ok {
		return 0, false
	}
	m := clock.FindStringSubmatch(strings.ToLower(strings.TrimSpace(text)))
	if m == nil {
		return 0, false
	}
	var part [3]int
	for i, digits := range m[1:] {
		if digits != "" {
			part[i], _ = strconv.Atoi(digits) // two digits
		}
	}
	if part[0] > 23 || part[1] > 59 || part[2] > 59 {
		return 0, false
	}
	return float64(part[0]*60+part[1]) + float64(part[2])/60, true
}

// time reports whether a field that is not equal is a time of day that is near
// enough. If the field is missing, any predicted value counts. 23:59 and 00:00 are
// a day apart.
func (s *Settings) time(actual any, has bool, expected any, prediction document.Object) bool {
	e, ok := minutes(expected)
	if !ok || s.Minutes < 0 {
		return false
	}
	near := func(v any) bool {
		a, ok := minutes(v)
		return ok && document.Within(a, e, s.Minutes)
	}
	if has {
		return near(actual)
	}
	for _, v := range prediction {
		if near(v) {
			return true
		}
	}
	return false
}

// maxAnyOrder is how many values are paired in any order. More are equal only if
// their texts are.
const maxAnyOrder = 300

// anyOrder reports whether each expected value can be paired with an actual one
// that equals it, each with its own.
func anyOrder(actual, expected []any, equal func(a, e any) bool) bool {
	if len(actual) != len(expected) || len(expected) > maxAnyOrder {
		return false
	}
	holder := make([]int, len(actual)) // of each actual value: its expected one, or -1
	fits := make([][]int, len(expected))
	for j := range actual {
		holder[j] = -1
		for i, e := range expected {
			if equal(actual[j], e) {
				fits[i] = append(fits[i], j)
			}
		}
	}
	var place func(i int, tried []bool) bool
	place = func(i int, tried []bool) bool {
		for _, j := range fits[i] {
			if tried[j] {
				continue
			}
			tried[j] = true
			if holder[j] < 0 || place(holder[j], tried) {
				holder[j] = i
				return true
			}
		}
		return false
	}
	for i := range expected {
		if !place(i, make([]bool, len(actual))) {
			return false
		}
	}
	return true
}
