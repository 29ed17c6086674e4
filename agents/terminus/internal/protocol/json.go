package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// fields are the members of a reply, in the requested order.
var fields = []string{"analysis", "plan", "commands", "task_complete"}

// maxObjects is how many braces are tried as the beginning of a reply.
const maxObjects = 100

// member is one member of an object, in the order of the text.
type member struct {
	name  string
	value json.RawMessage
}

// parseJSON reads the object of a reply, anywhere in the text.
func parseJSON(text string) (Reply, error) {
	var r Reply
	object, before, after, err := find(text, &r)
	if err != nil {
		return r, err
	}
	if strings.TrimSpace(before) != "" {
		r.warn("there is text before the JSON object, which was ignored")
	}
	if strings.TrimSpace(after) != "" {
		r.warn("there is text after the JSON object, which was ignored")
	}
	return r, r.members(object)
}

// find finds the object that is a reply: the first with commands or
// task_complete. If there is none, it tries to repair the first object.
func find(text string, r *Reply) (object []member, before, after string, err error) {
	var other []member // of the first object that is not a reply
	some := false      // there is one
	first := -1
	for at, tries := 0, 0; tries < maxObjects; tries++ {
		i := strings.IndexByte(text[at:], '{')
		if i < 0 {
			break
		}
		i += at
		if first < 0 {
			first = i
		}
		end := balanced(text[i:])
		if end < 0 { // it is never closed, but an object inside it may be
			at = i + 1
			continue
		}
		got, bad := decode(text[i : i+end])
		if bad != nil {
			got, bad = r.mended(text[i : i+end])
		}
		switch {
		case bad == nil && isReply(got):
			return got, text[:i], text[i+end:], nil
		case bad == nil && !some:
			other, some = got, true
		}
		at = i + end
	}
	if first < 0 {
		return nil, "", "", errors.New("there is no JSON object in the reply")
	}
	mended, said := mend(closed(text[first:]))
	if got, bad := decode(mended); bad == nil && isReply(got) {
		if said == "" {
			said = "the JSON object was not closed: the missing brackets were added"
		}
		r.warn("%s", said)
		return got, text[:first], "", nil
	}
	if some {
		return other, "", "", nil
	}
	_, bad := decode(text[first:])
	return nil, "", "", fmt.Errorf("the JSON object cannot be read: %w", bad)
}

// mended reads an object after repairing it.
func (r *Reply) mended(s string) ([]member, error) {
	out, said := mend(s)
	got, err := decode(out)
	if err == nil && isReply(got) && said != "" {
		r.warn("%s", said)
	}
	return got, err
}

func isReply(ms []member) bool {
	return slices.ContainsFunc(ms, func(m member) bool { return m.name == "commands" || m.name == "task_complete" })
}

// scan calls each for the bytes outside of strings until it returns false. It
// reports whether the text ended inside a string.
func scan(s string, each func(i int, c byte) bool) (inside bool) {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case inside && c == '\\':
			i++
		case c == '"':
			inside = !inside
		case !inside:
			if !each(i, c) {
				return false
			}
		}
	}
	return inside
}

// balanced returns the length of the object that s begins with, or -1 if the
// object is not closed.
func balanced(s string) int {
	depth, end := 0, -1
	scan(s, func(i int, c byte) bool {
		switch c {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if depth == 0 {
			end = i + 1
		}
		return depth > 0
	})
	return end
}

// closed adds the missing brackets at the end of s. It does not close a string,
// because the rest of the string is unknown.
func closed(s string) string {
	var open []byte
	inside := scan(s, func(_ int, c byte) bool {
		switch c {
		case '{':
			open = append(open, '}')
		case '[':
			open = append(open, ']')
		case '}', ']':
			if len(open) > 0 {
				open = open[:len(open)-1]
			}
		}
		return true
	})
	if inside {
		return s
	}
	slices.Reverse(open)
	return strings.TrimRight(strings.TrimSpace(s), "`, \n") + string(open)
}

// mend repairs common mistakes of models in JSON: control characters and
// unknown escapes in strings, and commas before a closing bracket. said is
// empty if there was nothing to repair.
func mend(s string) (out, said string) {
	var b strings.Builder
	inside := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case inside && c == '\\' && i+1 < len(s):
			i++
			if !strings.ContainsRune(`"\/bfnrtu`, rune(s[i])) {
				b.WriteByte('\\')
				said = "a backslash in a JSON string must be written twice: that was put right"
			}
			b.WriteByte(c)
			b.WriteByte(s[i])
			continue
		case c == '"':
			inside = !inside
		case inside && c < ' ':
			fmt.Fprintf(&b, `\u%04x`, c)
			said = "a new line or other control character in a JSON string must be written as an escape: that was put right"
			continue
		case !inside && c == ',':
			if rest := strings.TrimLeft(s[i+1:], " \t\r\n"); rest != "" && (rest[0] == '}' || rest[0] == ']') {
				said = "there was a comma before a closing bracket: it was removed"
				continue
			}
		}
		b.WriteByte(c)
	}
	return b.String(), said
}

// decode reads one object with its members in order.
func decode(s string) ([]member, error) {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.Join(err, errors.New("expected a JSON object"))
	}
	var out []member
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, _ := t.(string)
		var m member
		m.name = name
		if err := d.Decode(&m.value); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	_, err := d.Token()
	return out, err
}

// members reads the members of a reply.
func (r *Reply) members(ms []member) error {
	seen := map[string]json.RawMessage{}
	var order []string
	for _, m := range ms {
		if !slices.Contains(fields, m.name) {
			r.warn("there is no field %q: it was ignored", clip(m.name))
			continue
		}
		if _, twice := seen[m.name]; twice {
			r.warn("the field %q is there twice: the last one counts", m.name)
		} else {
			order = append(order, m.name)
		}
		seen[m.name] = m.value
	}
	if !slices.IsSortedFunc(order, func(a, b string) int { return slices.Index(fields, a) - slices.Index(fields, b) }) {
		r.warn("the fields are in another order than %s: think first, then act", strings.Join(fields, ", "))
	}
	r.Analysis, r.Plan = r.text("analysis", seen), r.text("plan", seen)
	if raw, ok := seen["task_complete"]; ok {
		r.Complete = r.yes(strings.Trim(string(raw), `"`))
	}
	raw, ok := seen["commands"]
	switch err := r.commands(raw); {
	case !ok && r.Complete:
		return nil
	case !ok:
		return errors.New(`the field "commands" is missing: it is a list of objects with "keystrokes" and "duration", and may be empty`)
	case err != nil && r.Complete:
		r.Commands = nil
		r.warn("the commands were ignored: %s", err)
		return nil
	default:
		return err
	}
}

// text reads a field that must be a text.
func (r *Reply) text(name string, seen map[string]json.RawMessage) string {
	raw, ok := seen[name]
	if !ok {
		r.warn("the field %q is missing", name)
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	r.warn("the field %q is not text", name)
	return string(raw)
}

// commands reads the list of commands.
func (r *Reply) commands(raw json.RawMessage) error {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return errors.New(`the field "commands" is not a list`)
	}
	for i, item := range list {
		ms, err := decode(string(item))
		if err != nil {
			return fmt.Errorf(`command %d is not an object with "keystrokes" and "duration"`, i+1)
		}
		c, has := Command{Duration: DefaultDuration}, false
		for _, m := range ms {
			switch m.name {
			case "keystrokes":
				if json.Unmarshal(m.value, &c.Keystrokes) != nil || bytes.Equal(m.value, []byte("null")) {
					return fmt.Errorf(`the "keystrokes" of command %d are not text`, i+1)
				}
				has = true
			case "duration":
				c.Duration = r.duration(i+1, strings.Trim(string(m.value), `"`))
			default:
				r.warn("command %d has no field %q: it was ignored", i+1, clip(m.name))
			}
		}
		if !has {
			return fmt.Errorf(`command %d has no "keystrokes"`, i+1)
		}
		r.Commands = append(r.Commands, c)
	}
	return nil
}
