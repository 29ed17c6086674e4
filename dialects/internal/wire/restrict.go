package wire

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/berth-eval/berth/plugins/dialect"
)

// Restriction restricts a request from a sandbox without a network. A feature
// that would make the provider fetch or run something is removed if it is only
// offered, and refused if the request depends on it. Dialects list the features
// that are known to be harmless; all others are removed or refused.
type Restriction struct {
	Allowed []string // names that the experiment allows anyway
	Dropped []string // names of the removed features
	Refused string   // the first name that cannot be removed; empty: none
	Media   Media    // in the blocks that were checked
}

// maxName is how many bytes of a name, which a client chose, are reported.
const maxName = 100

// Refuse records that the request has a feature that cannot be removed.
func (s *Restriction) Refuse(name string) {
	if s.Refused == "" && !slices.Contains(s.Allowed, name) {
		s.Refused = name[:min(len(name), maxName)]
	}
}

// Drop records that a feature is to be removed; false: it may stay.
func (s *Restriction) Drop(name string) bool {
	if slices.Contains(s.Allowed, name) {
		return false
	}
	name = name[:min(len(name), maxName)]
	if !slices.Contains(s.Dropped, name) && len(s.Dropped) < maxDropped {
		s.Dropped = append(s.Dropped, name)
	}
	return true
}

// maxDropped is how many names of removed features are reported.
const maxDropped = 20

// Members removes the members of a request that are not known, and refuses
// those that refer to data stored by the provider.
func (s *Restriction) Members(body *dialect.Object, known, kept map[string]bool) {
	for _, name := range slices.Clone(body.Names()) {
		switch {
		case known[name], !Given(body.Get(name)):
		case kept[name]:
			s.Refuse(name)
		case s.Drop(name):
			body.Delete(name)
		}
	}
}

// Given reports whether a member of a request has a value other than null.
func Given(raw json.RawMessage) bool { return raw != nil && string(raw) != "null" }

// Tools removes the tools that outside names, and refuses the request if it
// insists on one of them.
func (s *Restriction) Tools(body *dialect.Object, outside func(json.RawMessage) (string, bool)) {
	hosted := func(raw json.RawMessage) (string, bool) {
		name, ok := outside(raw)
		return name, ok && !slices.Contains(s.Allowed, name)
	}
	if f := Forced(body, hosted); f != "" {
		s.Refuse(f)
		return
	}
	DropTools(body, func(t json.RawMessage) bool {
		name, ok := hosted(t)
		return ok && s.Drop(name)
	})
}

// Inline refuses media unless the request itself contains it, as a data URL or
// in base64. An absent value is allowed.
func (s *Restriction) Inline(name string, raw json.RawMessage) {
	if Given(raw) && !inline(raw) {
		s.Refuse(name)
	}
	s.Media.URL(raw)
}

// inline reports whether a string is a data URL or starts like base64. No URL
// does, because it has a colon near its beginning.
func inline(raw json.RawMessage) bool {
	if len(raw) < 2 || raw[0] != '"' {
		return false
	}
	text := raw[1 : len(raw)-1]
	if len(text) >= 5 && bytes.EqualFold(text[:5], []byte("data:")) {
		return true
	}
	for _, c := range text[:min(len(text), 64)] {
		if c != '+' && c != '/' && c != '=' && c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// Map replaces each element of an array with the result of f; nil removes it.
// Values that are not arrays, and arrays that do not change, are returned as
// they are.
func Map(raw json.RawMessage, f func(json.RawMessage) json.RawMessage) json.RawMessage {
	if len(raw) == 0 || raw[0] != '[' {
		return raw
	}
	out, changed := []json.RawMessage{}, false
	dialect.Each(raw, func(e json.RawMessage) {
		to := f(e)
		changed = changed || !bytes.Equal(to, e)
		if to != nil {
			out = append(out, to)
		}
	})
	if !changed {
		return raw
	}
	return dialect.JSON(out)
}

// Block is an object of a request with some of its members.
type Block struct {
	Type   string
	values map[string]json.RawMessage
}

// Get returns the value of a member that was looked up; nil if there is none.
func (b *Block) Get(name string) json.RawMessage {
	if v := b.values[name]; Given(v) {
		return v
	}
	return nil
}

// Block looks up the type and some members of an object. It refuses a duplicate
// member, because the provider may use either value. ok is false if the object
// is refused, and for values that are not objects, which are text.
func (s *Restriction) Block(raw json.RawMessage, names ...string) (b Block, ok bool) {
	twice := ""
	b.values = make(map[string]json.RawMessage, len(names)+1)
	ok = dialect.Fields(raw, func(name string, v json.RawMessage) {
		if name != "type" && !slices.Contains(names, name) {
			return
		}
		if _, there := b.values[name]; there {
			twice = name
		}
		b.values[name] = v
	})
	if twice != "" {
		s.Refuse(twice + " (twice)")
		return b, false
	}
	if v := b.Get("type"); v != nil && json.Unmarshal(v, &b.Type) != nil {
		s.Refuse("a type that is not text")
		return b, false
	}
	return b, ok
}

// Depth is how deep content may be nested: twice as deep as in real requests.
const Depth = 6

// Text returns the text of a JSON string; empty for other values.
func Text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}
