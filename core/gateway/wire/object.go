package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
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
	n := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i = quote(b, i)
		case '{', '[', ',':
			n++
		}
	}
	return n > MaxValues
}

// ParseObject reads an object. The bytes are kept, not copied, and must not
// change any more.
func ParseObject(b []byte) (*Object, error) {
	if !begins(b, '{') || !json.Valid(b) {
		return nil, ErrNotObject
	}
	if tooMany(b) {
		return nil, ErrTooMany
	}
	o := &Object{values: map[string]json.RawMessage{}, raw: b}
	// What is valid is quickly taken apart: only strings and brackets count.
	for i := next(b, bytes.IndexByte(b, '{')+1); b[i] != '}'; i = next(b, i) {
		if b[i] == ',' {
			i = next(b, i+1)
		}
		end := skip(b, i)
		var name string
		if err := json.Unmarshal(b[i:end], &name); err != nil {
			return nil, fmt.Errorf("%w: a name of a member cannot be read", ErrNotObject)
		}
		i = next(b, next(b, end)+1) // over the colon
		end = skip(b, i)
		if _, twice := o.values[name]; twice {
			o.changed = true // who reads the first one must see what we saw
		} else {
			o.names = append(o.names, name)
		}
		if len(o.names) > MaxMembers {
			return nil, ErrTooMany
		}
		o.values[name] = b[i:end:end]
		i = end
	}
	return o, nil
}

// next is the place of the next byte that is no space.
func next(b []byte, i int) int {
	for b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r' {
		i++
	}
	return i
}

// skip is the place behind the value that begins at i, in valid JSON.
func skip(b []byte, i int) int {
	depth := 0
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			i = quote(b, i)
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
			if depth < 0 { // of what the value is in
				return i
			}
		case ',', ':', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
			continue
		default:
			continue // in a number or a word
		}
		if depth == 0 {
			return i + 1
		}
	}
	return i
}

// quote is the place of the quote that ends the string which begins at i.
func quote(b []byte, i int) int {
	for i++; ; i++ {
		n := bytes.IndexByte(b[i:], '"')
		i += n
		back := i - 1
		for b[back] == '\\' {
			back--
		}
		if (i-back)%2 == 1 {
			return i
		}
	}
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
		if below, err := ParseObject(o.values[n]); err == nil && begins(v, '{') {
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
