package wire

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/berth-eval/berth/core/gateway/dialect"
)

// Restriction is what becomes of a request from a sandbox without a network: what would
// make the provider fetch or run something is taken out where it is merely
// offered, and refused where the request depends on it. Dialects list what they
// know to be harmless; anything else counts as one of the two.
type Restriction struct {
	Allowed []string // names that the experiment allows all the same
	Dropped []string // names of what was taken out
	Refused string   // the first name of what cannot be taken out; empty: nothing
}

// maxName is how many bytes of a name are told, which a client chose.
const maxName = 100

// Refuse says that the request has what cannot be taken out.
func (s *Restriction) Refuse(name string) {
	if s.Refused == "" && !slices.Contains(s.Allowed, name) {
		s.Refused = name[:min(len(name), maxName)]
	}
}

// Drop says that something is to be taken out; false: it may stay.
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

// maxDropped is how many names of what was taken out are told.
const maxDropped = 20

// Members takes out the members of a request that are not known, and refuses
// those that stand for something that the provider keeps.
func (s *Restriction) Members(body *dialect.Object, known, kept map[string]bool) {
	for _, name := range slices.Clone(body.Names()) {
		switch {
		case known[name], !given(body.Get(name)):
		case kept[name]:
			s.Refuse(name)
		case s.Drop(name):
			body.Delete(name)
		}
	}
}

func given(raw json.RawMessage) bool { return raw != nil && string(raw) != "null" }

// Tools takes out the tools that outside names, unless the request insists on
// one.
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

// Inline refuses media unless it is in the request itself: as a data URL, or in
// base64. What is absent is fine.
func (s *Restriction) Inline(name string, raw json.RawMessage) {
	if given(raw) && !inline(raw) {
		s.Refuse(name)
	}
}

// inline says whether a string is a data URL or begins as base64 does, which no
// address does: it has a colon near its beginning.
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

// Map replaces each element of an array with what f makes of it; nil takes it
// out. What is no array, and what stays as it is, is returned as it was.
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

// Block is one object of a request, of which some members were looked up.
type Block struct {
	Type   string
	values map[string]json.RawMessage
}

// Get is the value of a member that was asked for; nil: there is none.
func (b *Block) Get(name string) json.RawMessage {
	if v := b.values[name]; given(v) {
		return v
	}
	return nil
}

// Block looks the type and some members of an object up. A member that is there
// twice is refused, since which of the two counts is the provider's choice. ok is
// false for what is refused, and for what is no object, which is text.
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
		s.Refuse("a type that is no text")
		return b, false
	}
	return b, ok
}

// Depth is how deep content may hold content: what real requests do, and as much
// again.
const Depth = 6
