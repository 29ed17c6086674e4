package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/plugins/suggest"
)

// Problems compares a configuration with the schema and reports every mismatch:
// unknown names, wrong types, missing required fields. Empty and null are a
// configuration without fields. It needs no plugin.
func (s Schema) Problems(raw json.RawMessage) Problems {
	return s.read("", raw, reflect.Value{})
}

// read compares an object with the schema and, if into is valid, sets the fields of that
// struct, from which the schema was read.
func (s Schema) read(at Path, raw json.RawMessage, into reflect.Value) (ps Problems) {
	if isNull(raw) {
		raw = json.RawMessage("{}")
	}
	obj, err := objectOf(raw)
	if err != nil {
		return Problems{{at, "Not a block", "Write a JSON object: " + err.Error() + "."}}
	}
	field := func(f *Field, raw json.RawMessage) {
		var to reflect.Value
		if into.IsValid() {
			to = into.FieldByIndex(f.index)
		}
		ps = append(ps, f.read(at.Attr(f.Name), raw, to)...)
	}
	given := map[string]bool{}
	for _, e := range obj {
		switch f := s.Field(e.key); {
		case f == nil:
			ps = append(ps, Problem{at.Attr(e.key), "Unknown name", s.unknown(e.key)})
		case !isNull(e.value):
			given[e.key] = true
			field(f, e.value)
		}
	}
	for i := range s.Fields {
		f := &s.Fields[i]
		switch {
		case given[f.Name]:
		case f.Required:
			ps = append(ps, Problem{at.Attr(f.Name), fmt.Sprintf("%q is required", f.Name), cmp.Or(f.Doc, "Write a "+string(f.Type)+".")})
		case into.IsValid():
			field(f, f.Default)
		}
	}
	return ps
}

func (s Schema) unknown(key string) string {
	names := make([]string, 0, len(s.Fields))
	for _, f := range s.Fields {
		names = append(names, f.Name)
	}
	if len(names) == 0 {
		return fmt.Sprintf("%q is not known here. There are no settings.", key)
	}
	if best := suggest.Word(key, names); best != "" {
		return fmt.Sprintf("%q is not known here. Did you mean %q?", key, best)
	}
	return fmt.Sprintf("%q is not known here. Known: %s.", key, strings.Join(names, ", "))
}

// read compares one value with the type of f and, if into is valid, sets it. Null
// means that the value is absent.
func (f Field) read(at Path, raw json.RawMessage, into reflect.Value) Problems {
	if isNull(raw) && (f.Type != Block || !into.IsValid() || into.Kind() == reflect.Pointer) {
		if into.IsValid() {
			into.SetZero()
		}
		return nil
	}
	if into.IsValid() && into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
	}
	switch f.Type {
	case Block:
		return f.Schema().read(at, raw, into)
	case BlockList:
		return eachElement(at, raw, into, f.Schema().read)
	case BlockMap:
		return eachEntry(at, raw, into, f.Schema().read)
	default:
		return f.readType(at, f.Type, raw, into)
	}
}

func (f Field) readType(at Path, t Type, raw json.RawMessage, into reflect.Value) Problems {
	if elem, ok := t.List(); ok {
		return eachElement(at, raw, into, func(p Path, raw json.RawMessage, into reflect.Value) Problems { return f.readType(p, elem, raw, into) })
	}
	if elem, ok := t.Map(); ok {
		return eachEntry(at, raw, into, func(p Path, raw json.RawMessage, into reflect.Value) Problems { return f.readType(p, elem, raw, into) })
	}
	if detail := f.checkScalar(t, raw); detail != "" {
		return Problems{{at, "Wrong value", detail}}
	}
	if into.IsValid() {
		return setScalar(at, t, raw, into)
	}
	return nil
}

// checkScalar returns what is wrong with one plain value, or "". It does not
// quote a secret.
func (f Field) checkScalar(t Type, raw json.RawMessage) string {
	shown := string(raw)
	if f.Secret {
		shown = "something else"
	} else if len(shown) > 100 {
		shown = strings.ToValidUTF8(shown[:60], "") + "…"
	}
	var s string
	var b bool
	var n json.Number
	switch t {
	case String, Duration:
		if json.Unmarshal(raw, &s) != nil || isNull(raw) {
			return fmt.Sprintf("Got %s. Write a string.", shown)
		}
		if len(f.Enum) > 0 && !slices.Contains(f.Enum, s) {
			return fmt.Sprintf("Got %s.%s Write one of %s.", shown, f.meant(s), strings.Join(f.Enum, ", "))
		}
		if _, err := time.ParseDuration(s); t == Duration && err != nil {
			return fmt.Sprintf("Got %s. Write a duration such as \"90s\" or \"1h30m\".", shown)
		}
	case Bool:
		if json.Unmarshal(raw, &b) != nil || isNull(raw) {
			return fmt.Sprintf("Got %s. Write true or false.", shown)
		}
	case Int:
		if i, ok := integer(raw); !ok || !i.IsInt64() && !i.IsUint64() {
			return fmt.Sprintf("Got %s. Write a whole number.", shown)
		}
	case Float:
		if isNull(raw) || raw[0] == '"' || json.Unmarshal(raw, &n) != nil {
			return fmt.Sprintf("Got %s. Write a number.", shown)
		}
	default: // any value
	}
	return ""
}

// meant returns a sentence with the allowed word that is near to s. It is empty
// for a secret.
func (f Field) meant(s string) string {
	best := suggest.Word(s, f.Enum)
	if best == "" || f.Secret {
		return ""
	}
	return fmt.Sprintf(" Did you mean %q?", best)
}

// integer reads a JSON number that is whole, in any notation (5, 5.0, 5e3). It
// refuses exponents beyond those of a float64 before they use memory or time.
func integer(raw json.RawMessage) (*big.Int, bool) {
	var n json.Number
	if isNull(raw) || raw[0] == '"' || json.Unmarshal(raw, &n) != nil {
		return nil, false
	}
	if _, err := n.Float64(); err != nil {
		return nil, false
	}
	r, ok := new(big.Rat).SetString(n.String())
	if !ok || !r.IsInt() {
		return nil, false
	}
	return r.Num(), true
}

// reader reads one value, as Field.read does.
type reader func(at Path, raw json.RawMessage, into reflect.Value) Problems

func eachElement(at Path, raw json.RawMessage, into reflect.Value, read reader) (ps Problems) {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil || isNull(raw) {
		return Problems{{at, "Wrong value", "Write a list, such as [ … ]."}}
	}
	if into.IsValid() {
		into.Set(reflect.MakeSlice(into.Type(), len(list), len(list)))
	}
	for i, v := range list {
		var one reflect.Value
		if into.IsValid() {
			one = into.Index(i)
		}
		ps = append(ps, read(at.Index(i), v, one)...)
	}
	return ps
}

func eachEntry(at Path, raw json.RawMessage, into reflect.Value, read reader) (ps Problems) {
	obj, err := objectOf(raw)
	if err != nil {
		return Problems{{at, "Wrong value", "Write a map, such as { key = value }: " + err.Error() + "."}}
	}
	if into.IsValid() {
		into.Set(reflect.MakeMapWithSize(into.Type(), len(obj)))
	}
	for _, e := range obj {
		var one reflect.Value
		if into.IsValid() {
			one = reflect.New(into.Type().Elem()).Elem()
		}
		if ps = append(ps, read(at.Key(e.key), e.value, one)...); into.IsValid() {
			into.SetMapIndex(reflect.ValueOf(e.key).Convert(into.Type().Key()), one)
		}
	}
	return ps
}

func isNull(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) == 0 || string(raw) == "null"
}

// entry is one member of a JSON object.
type entry struct {
	key   string
	value json.RawMessage
}

// objectOf reads a JSON object in the order of its keys. encoding/json would
// take the last of two equal keys and ignore letter case, and both hide
// mistakes.
func objectOf(raw json.RawMessage) (obj []entry, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	tok, err := d.Token()
	if err != nil || tok != json.Delim('{') {
		return nil, fmt.Errorf("got %.40q", string(raw))
	}
	seen := map[string]bool{}
	for d.More() {
		tok, err = d.Token()
		key, ok := tok.(string)
		if err != nil || !ok {
			return nil, fmt.Errorf("after %d names: %w", len(obj), err)
		}
		e := entry{key: key}
		if err = d.Decode(&e.value); err != nil {
			return nil, fmt.Errorf("%q: %w", key, err)
		}
		if seen[key] {
			return nil, fmt.Errorf("%q is there twice", key)
		}
		seen[key] = true
		obj = append(obj, e)
	}
	if _, err = d.Token(); err != nil {
		return nil, fmt.Errorf("the end is missing: %w", err)
	}
	if d.More() {
		return nil, fmt.Errorf("something follows the object")
	}
	return obj, nil
}
