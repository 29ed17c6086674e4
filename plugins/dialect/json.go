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

// ErrNotObject means that a body is not a JSON object.
var ErrNotObject = errors.New("the body is not a JSON object")

// Object is a JSON object whose members keep their order and their bytes, so
// that everything that is not edited is passed on unchanged.
type Object struct {
	names   []string
	values  map[string]json.RawMessage
	raw     []byte // original bytes
	edited  []byte // bytes after an edit; nil: not encoded yet
	changed bool
}

// Bounds of a request: each part of it takes many times its size in memory. A
// conversation that fills the largest current context has less than a tenth of
// this many values.
const (
	MaxMembers = 1000
	MaxValues  = 1_000_000
)

// ErrTooMany means that a body has too many parts.
var ErrTooMany = fmt.Errorf("the body has more than %d members, or %d values in all", MaxMembers, MaxValues)

// tooMany reports whether valid JSON has more than MaxValues values.
func tooMany(b []byte) bool {
	n, text := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			text = !text
		case c == '\\': // occurs only in a string
			i++
		case !text && (c == '{' || c == '[' || c == ','):
			n++
		}
	}
	return n > MaxValues
}

// ParseObject parses an object. It keeps b without copying it, so b must not be
// changed afterwards.
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
			o.changed = true // duplicate member: encode again, so that all readers see the value that we saw
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

// Each calls f with each element of an array, or once with a value that is not
// an array.
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

// Fields calls f with each member of an object, including duplicates. It
// returns false if the value is not an object.
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

// view parses valid JSON without copying it, because a body may be large.
func view(raw []byte) gjson.Result {
	return gjson.Parse(unsafe.String(unsafe.SliceData(raw), len(raw)))
}

// within returns the part of raw where v was found.
func within(raw []byte, v gjson.Result) json.RawMessage {
	end := v.Index + len(v.Raw)
	return raw[v.Index:end:end]
}

// Names returns the names of the members, in order. The caller must not change
// the slice.
func (o *Object) Names() []string { return o.names }

// Get returns the value of a member; nil if there is none.
func (o *Object) Get(name string) json.RawMessage { return o.values[name] }

// Into decodes a member into v. It leaves v unchanged if the member is absent,
// null or of another type.
func (o *Object) Into(name string, v any) {
	if raw := o.values[name]; raw != nil {
		_ = json.Unmarshal(raw, v) // the provider judges a value that cannot be read
	}
}

// Set sets the value of a member.
func (o *Object) Set(name string, v json.RawMessage) {
	if _, ok := o.values[name]; !ok {
		o.names = append(o.names, name)
	}
	o.values[name] = v
	o.changed, o.edited = true, nil
}

// SetString sets a member to a string.
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

// WriteWithout writes the object as JSON without some members.
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

// Without returns the object as JSON without some members.
func (o *Object) Without(names []string) []byte {
	var b bytes.Buffer
	_ = o.WriteWithout(&b, names) // cannot fail
	return b.Bytes()
}

// Changed reports whether the object was edited.
func (o *Object) Changed() bool { return o.changed }

// Bytes returns the object as JSON: the original bytes, unless it was edited.
// The caller must not change them.
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
	_ = o.write(&b) // cannot fail
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

// Merge merges an object into o: objects are merged recursively, other values
// replace those of o.
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
