package document

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/plugins/suggest"
	"github.com/berth-eval/berth/plugins/task"
)

// Table hands out the values of a mapping of YAML, or of a table of TOML. Each key
// that is asked for is known; Done reports the others.
type Table struct {
	R      *Reader
	Path   string         // empty: the whole file
	Values map[string]any // nil: it was not written
	Known  []string       // the keys that were asked for
}

// Table returns a table with these values, which is the whole file.
func (r *Reader) Table(values map[string]any) *Table { return r.In("", values) }

// In returns a table with these values.
func (r *Reader) In(path string, values map[string]any) *Table {
	return &Table{R: r, Path: path, Values: values}
}

// At returns the path of a key.
func (t *Table) At(key string) string { return Join(t.Path, key) }

// Bad reports an error about a key.
func (t *Table) Bad(key, summary, format string, args ...any) {
	t.R.Bad(t.At(key), summary, format, args...)
}

// Exists reports whether the table was written at all.
func (t *Table) Exists() bool { return t.Values != nil }

// Has reports whether a key is there, also without a value.
func (t *Table) Has(key string) bool {
	_, ok := t.Values[key]
	return ok
}

// Get returns the value of a key; nil: it is absent, or empty.
func (t *Table) Get(key string) any {
	t.Known = append(t.Known, key)
	return t.Values[key]
}

func (t *Table) wrong(key, want string, v any) {
	t.R.wrong(t.At(key), want, v)
}

func (r *Reader) wrong(path, want string, v any) {
	r.Bad(path, "Wrong type", "%s must be %s, got %s.", path, want, r.Show(v))
}

// Text returns a text; usual if it is absent.
func (t *Table) Text(key, usual string) string {
	v := t.Get(key)
	if v == nil {
		return usual
	}
	s, ok := v.(string)
	if !ok {
		t.wrong(key, "a text (put it in quotes)", v)
		return usual
	}
	return s
}

// Required returns a text that has to be there and not be empty.
func (t *Table) Required(key string) string {
	s := t.Text(key, "")
	if _, isText := t.Values[key].(string); strings.TrimSpace(s) == "" && (isText || t.Values[key] == nil) {
		t.Bad(key, "Key is missing", "%s is required, and not empty.", t.At(key))
	}
	return s
}

// Word returns a text of a few; usual if it is absent or another one. Two of them may
// be true and false.
func (t *Table) Word(key, usual string, words ...string) string {
	v := t.Get(key)
	if b, is := v.(bool); is {
		v = strconv.FormatBool(b)
	}
	s, ok := v.(string)
	switch {
	case v == nil:
		return usual
	case ok && slices.Contains(words, s):
		return s
	case !ok:
		s = t.R.Show(v)
	}
	t.Bad(key, "Wrong value", "%s is %q: write one of %s.%s", t.At(key), s, strings.Join(words, ", "), Meant(s, words))
	return usual
}

// Meant is the known word that is near to s, as a sentence after another one, or
// nothing.
func Meant(s string, known []string) string {
	if best := suggest.Word(s, known); best != "" {
		return fmt.Sprintf(" Did you mean %q?", best)
	}
	return ""
}

// coerced warns of a value that is taken although it has another type.
func (t *Table) coerced(key, want string, v any) {
	t.R.Warn(t.At(key), "Value of another type", "%s is %s, taken as %s.", t.At(key), t.R.Show(v), want)
}

// Boolean returns a truth value and whether there is one.
func (t *Table) Boolean(key string) (value, ok bool) {
	v := t.Get(key)
	if b, is := v.(bool); is || v == nil {
		return b, is
	}
	switch word := strings.ToLower(fmt.Sprint(v)); {
	case t.R.toml && slices.Contains([]string{"1", "true", "t", "yes", "y", "on"}, word):
		value = true
	case t.R.toml && slices.Contains([]string{"0", "false", "f", "no", "n", "off"}, word):
	default:
		t.wrong(key, "true or false", v)
		return false, false
	}
	t.coerced(key, fmt.Sprint(value), v)
	return value, true
}

// Float returns a finite number and whether there is one.
func (t *Table) Float(key string) (float64, bool) {
	v := t.Get(key)
	if v == nil {
		return 0, false
	}
	f, exact, ok := toFloat(v)
	switch {
	case !ok, !exact && !t.R.toml:
		t.wrong(key, "a number", v)
		return 0, false
	case math.IsNaN(f) || math.IsInf(f, 0):
		t.Bad(key, "Wrong value", "%s is %v: it must be finite.", t.At(key), f)
		return 0, false
	case !exact:
		t.coerced(key, fmt.Sprintf("the number %v", f), v)
	}
	return f, true
}

// toFloat says whether v is a number, and whether it was written as one.
func toFloat(v any) (f float64, exact, ok bool) {
	switch v := v.(type) {
	case Number:
		return toFloat(v.Value)
	case float64:
		return v, true, true
	case int64:
		return float64(v), true, true
	case uint64:
		return float64(v), true, true
	case bool:
		if v {
			return 1, false, true
		}
		return 0, false, true
	case string:
		f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		return f, false, err == nil
	default:
		return 0, false, false
	}
}

// Integer returns a whole number and whether there is one.
func (t *Table) Integer(key string) (int64, bool) {
	f, ok := t.Float(key)
	if ok && (f != math.Trunc(f) || math.Abs(f) > 1<<53) {
		t.Bad(key, "Wrong value", "%s is %v: it must be a whole number.", t.At(key), f)
		return 0, false
	}
	return int64(f), ok
}

// Number returns a number from least to most; usual if it is absent.
func (t *Table) Number(key string, usual, least, most float64) float64 {
	f, ok := t.Float(key)
	if ok && (f < least || f > most) {
		t.Bad(key, "Wrong value", "%s is %v: it must be from %v to %v.", t.At(key), f, least, most)
		ok = false
	}
	if !ok {
		return usual
	}
	return f
}

// Whole returns a whole number from least to most; usual if it is absent.
func (t *Table) Whole(key string, usual, least, most int) int {
	f := t.Number(key, float64(usual), float64(least), float64(most))
	if f != math.Trunc(f) {
		t.Bad(key, "Wrong value", "%s is %v: it must be a whole number.", t.At(key), f)
		return usual
	}
	return int(f)
}

// Below returns a table below; one without values if it is absent.
func (t *Table) Below(key string) *Table {
	v := t.Get(key)
	m, ok := v.(map[string]any)
	if v != nil && !ok {
		t.wrong(key, "a "+t.R.mapping(), v)
	}
	return t.R.In(t.At(key), m)
}

// List returns the elements of a list; nil: it is absent or no list.
func (t *Table) List(key string) (out []Entry) {
	v := t.Get(key)
	list, ok := v.([]any)
	if v != nil && !ok {
		t.wrong(key, "a list", v)
	}
	for i, e := range list {
		out = append(out, Entry{Index(t.At(key), i), e})
	}
	return out
}

// Tables returns the elements of a list of tables.
func (t *Table) Tables(key string) (out []*Table) {
	for _, e := range t.List(key) {
		if m, ok := e.Value.(map[string]any); ok {
			out = append(out, t.R.In(e.Path, m))
		} else {
			t.R.wrong(e.Path, "a "+t.R.mapping(), e.Value)
		}
	}
	return out
}

// Text is an element of a list of texts.
type Text struct{ Value, Path string }

// Texts returns a list of texts.
func (t *Table) Texts(key string) (out []Text) {
	for _, e := range t.List(key) {
		if s, ok := e.Value.(string); ok {
			out = append(out, Text{s, e.Path})
		} else {
			t.R.wrong(e.Path, "a text", e.Value)
		}
	}
	return out
}

// Strings returns a list of texts without their paths.
func (t *Table) Strings(key string) (out []string) {
	for _, s := range t.Texts(key) {
		out = append(out, s.Value)
	}
	return out
}

// JSON returns the table as JSON; nil: it was not written, or cannot be said in JSON,
// which is reported.
func (t *Table) JSON() json.RawMessage {
	if !t.Exists() {
		return nil
	}
	return t.R.JSON(Entry{t.Path, t.Values})
}

// Rest returns the keys with values that nothing has read yet.
func (t *Table) Rest() (keys []string) {
	for _, key := range slices.Sorted(maps.Keys(t.Values)) {
		if !slices.Contains(t.Known, key) && t.Get(key) != nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// Done reports the keys that were never read.
func (t *Table) Done() {
	s, more := task.Error, ""
	if t.R.Lenient {
		s, more = task.Warning, " It is ignored."
	}
	for _, key := range slices.Sorted(maps.Keys(t.Values)) {
		if slices.Contains(t.Known, key) {
			continue
		}
		hint := Meant(key, t.Known)
		if home, ok := t.R.Homes[key]; ok && hint == "" {
			hint = fmt.Sprintf(" It belongs in %s.", home)
		}
		if hint == "" {
			hint = " Known here: " + strings.Join(slices.Sorted(slices.Values(t.Known)), ", ") + "."
		}
		t.R.Report(s, t.At(key), "Unknown key", "%q is not known here.%s%s", key, hint, more)
	}
}
