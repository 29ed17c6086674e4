package dialect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unsafe"

	"github.com/tidwall/gjson"
)

// ErrNotObject means that a body is no JSON object.
var ErrNotObject = errors.New("the body is no JSON object")

// Object is a JSON object whose members keep their order and their bytes, so
// that what is not edited travels as it came.
type Object struct {
	names   []string
	values  map[string]json.RawMessage
	raw     []byte // as it came
	edited  []byte // as it is after an edit; nil: to be made
	changed bool
}

// Bounds of what a request may hold: each of its parts takes memory many times
// its size in bytes. A conversation that fills the largest context of today has
// less than a tenth of this many values.
const (
	MaxMembers = 1000
	MaxValues  = 1_000_000
)

// ErrTooMany means that a body has more parts than a request has.
var ErrTooMany = fmt.Errorf("the body has more than %d members, or %d values in all", MaxMembers, MaxValues)

// tooMany says whether valid JSON has more than so many values.
func tooMany(b []byte) bool {
	n, text := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			text = !text
		case c == '\\': // only a string has one
			i++
		case !text && (c == '{' || c == '[' || c == ','):
			n++
		}
	}
	return n > MaxValues
}

// ParseObject reads an object. The bytes are kept, not copied, and must not
// change any more.
func ParseObject(b []byte) (*Object, error) {
	if !view(b).IsObject() || !json.Valid(b) {
		return nil, ErrNotObject
	}
	if tooMany(b) {
		return nil, ErrTooMany
	}
	o := &Object{values: map[string]json.RawMessage{}, raw: b}
	Fields(b, func(name string, v json.RawMessage) {
		if _, twice := o.values[name]; twice {
			o.changed = true // who reads the first one must see what we saw
		} else if len(o.names) <= MaxMembers {
			o.names = append(o.names, name)
		}
		o.values[name] = v
	})
	if len(o.names) > MaxMembers {
		return nil, ErrTooMany
	}
	return o, nil
}

// Each calls f with each element of an array, or with what stands alone.
func Each(raw json.RawMessage, f func(json.RawMessage)) {
	if v := view(raw); v.IsArray() {
		v.ForEach(func(_, e gjson.Result) bool {
			f(within(raw, e))
			return true
		})
	} else if given(raw) {
		f(raw)
	}
}

// Fields calls f with each member of an object, also with those whose name
// occurs twice. False: it is no object.
func Fields(raw json.RawMessage, f func(name string, value json.RawMessage)) bool {
	v := view(raw)
	if !v.IsObject() {
		return false
	}
	v.ForEach(func(name, value gjson.Result) bool {
		f(strings.Clone(name.Str), within(raw, value))
		return true
	})
	return true
}

// view reads valid JSON without copying it: a body may be large.
func view(raw []byte) gjson.Result {
	return gjson.Parse(unsafe.String(unsafe.SliceData(raw), len(raw)))
}

// within is the part of raw where v was found.
func within(raw []byte, v gjson.Result) json.RawMessage {
	end := v.Index + len(v.Raw)
	return raw[v.Index:end:end]
}

// Names are those of its members, in order. They must not be changed.
func (o *Object) Names() []string { return o.names }

// Get is the value of a member; nil: there is none.
func (o *Object) Get(name string) json.RawMessage { return o.values[name] }

// Into reads a member into v, and leaves v alone when it is absent, null or of
// another type.
func (o *Object) Into(name string, v any) {
	if raw := o.values[name]; raw != nil {
		_ = json.Unmarshal(raw, v) // what cannot be read is not ours to judge
	}
}

// Set gives a member a value.
func (o *Object) Set(name string, v json.RawMessage) {
	if _, ok := o.values[name]; !ok {
		o.names = append(o.names, name)
	}
	o.values[name] = v
	o.changed, o.edited = true, nil
}

// SetString gives a member a string.
func (o *Object) SetString(name, v string) { o.Set(name, JSON(v)) }

// Delete removes a member.
func (o *Object) Delete(name string) {
	if _, ok := o.values[name]; !ok {
		return
	}
	delete(o.values, name)
	for i, n := range o.names {
		if n == name {
			o.names = append(o.names[:i:i], o.names[i+1:]...)
			break
		}
	}
	o.changed, o.edited = true, nil
}

// WriteWithout writes the object as JSON less some members.
func (o *Object) WriteWithout(w io.Writer, without []string) error {
	c := &Object{names: slices.Clone(o.names), values: maps.Clone(o.values), raw: o.raw, changed: o.changed}
	for _, n := range without {
		c.Delete(n)
	}
	if !c.changed {
		_, err := w.Write(c.raw)
		return err
	}
	return c.write(w)
}

// Without is the object as JSON less some members.
func (o *Object) Without(names []string) []byte {
	var b bytes.Buffer
	_ = o.WriteWithout(&b, names) // which does not fail
	return b.Bytes()
}

// Changed says whether it was edited.
func (o *Object) Changed() bool { return o.changed }

// Bytes is the object as JSON: as it came, unless it was edited. They must not be
// changed.
func (o *Object) Bytes() []byte {
	switch {
	case !o.changed:
		return o.raw
	case o.edited != nil:
		return o.edited
	}
	var b bytes.Buffer
	size := len(o.names)*4 + 2
	for n, v := range o.values {
		size += len(n) + len(v)
	}
	b.Grow(size)
	_ = o.write(&b) // which does not fail
	o.edited = b.Bytes()
	return o.edited
}

func (o *Object) write(w io.Writer) error {
	sep := byte('{')
	for _, n := range o.names {
		name := append(append([]byte{sep}, JSON(n)...), ':')
		if _, err := w.Write(name); err != nil {
			return err
		}
		if _, err := w.Write(o.values[n]); err != nil {
			return err
		}
		sep = ','
	}
	end := "}"
	if len(o.names) == 0 {
		end = "{}"
	}
	_, err := io.WriteString(w, end)
	return err
}

// Merge puts the members of an object over those of o: objects are merged,
// anything else replaces what was there.
func (o *Object) Merge(over json.RawMessage) error {
	p, err := ParseObject(over)
	if err != nil {
		return fmt.Errorf("parameters: %w", err)
	}
	for _, n := range p.names {
		v := p.values[n]
		if below, err := ParseObject(o.values[n]); err == nil && view(v).IsObject() {
			if err = below.Merge(v); err != nil {
				return err
			}
			v = below.Bytes()
		}
		if !bytes.Equal(v, o.values[n]) {
			o.Set(n, v)
		}
	}
	return nil
}

// Problem is what the member "error" of an answer says; empty: there is none.
func Problem(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	var d struct{ Message string }
	if json.Unmarshal(raw, &d) == nil && d.Message != "" {
		return d.Message
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
