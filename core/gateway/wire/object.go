package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// ErrNotObject means that a body is no JSON object.
var ErrNotObject = errors.New("the body is no JSON object")

// Object is a JSON object whose members keep their order and their bytes, so
// that what is not edited travels as it came.
type Object struct {
	names   []string
	values  map[string]json.RawMessage
	raw     []byte // as it came; nil after an edit
	changed bool
}

// ParseObject reads an object. The bytes are kept, not copied.
func ParseObject(b []byte) (*Object, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	t, err := d.Token()
	if err != nil || t != json.Delim('{') {
		return nil, ErrNotObject
	}
	o := &Object{values: map[string]json.RawMessage{}, raw: b}
	for d.More() {
		t, err = d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, fmt.Errorf("%w: after %q", ErrNotObject, last(o.names))
		}
		var v json.RawMessage
		if err = d.Decode(&v); err != nil {
			return nil, fmt.Errorf("%w: member %q cannot be read", ErrNotObject, name)
		}
		if _, twice := o.values[name]; !twice {
			o.names = append(o.names, name)
		}
		o.values[name] = v
	}
	if _, err = d.Token(); err != nil {
		return nil, fmt.Errorf("%w: it ends early", ErrNotObject)
	}
	if d.More() {
		return nil, fmt.Errorf("%w: something follows it", ErrNotObject)
	}
	return o, nil
}

func last(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[len(s)-1]
}

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
	o.changed = true
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
	o.changed = true
}

// Changed says whether it was edited.
func (o *Object) Changed() bool { return o.changed }

// Bytes is the object as JSON: as it came, unless it was edited.
func (o *Object) Bytes() []byte {
	if !o.changed {
		return o.raw
	}
	var b bytes.Buffer
	b.Grow(len(o.raw) + 256)
	b.WriteByte('{')
	for i, n := range o.names {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(JSON(n))
		b.WriteByte(':')
		b.Write(o.values[n])
	}
	b.WriteByte('}')
	return b.Bytes()
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
		if below, err := ParseObject(o.values[n]); err == nil && isObject(v) {
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

func isObject(v json.RawMessage) bool {
	v = bytes.TrimLeft(v, " \t\r\n")
	return len(v) > 0 && v[0] == '{'
}

// Filter keeps the elements of an array for which keep is true. What is no
// array stays as it is.
func Filter(raw json.RawMessage, keep func(json.RawMessage) bool) (left json.RawMessage, kept, dropped int) {
	var all []json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		return raw, 0, 0
	}
	out := all[:0]
	for _, e := range all {
		if keep(e) {
			out = append(out, e)
		} else {
			dropped++
		}
	}
	if dropped == 0 {
		return raw, len(out), 0
	}
	return JSON(out), len(out), dropped
}
