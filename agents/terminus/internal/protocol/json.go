package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/model/chat"
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
		mended, end := chat.Mended(text[i:])
		if end == 0 { // it is never closed, but an object inside it may be
			at = i + 1
			continue
		}
		got, bad := decode(mended)
		switch {
		case bad == nil && isReply(got):
			if _, wrong := decode([]byte(text[i : i+end])); wrong != nil {
				r.warn("a backslash in a JSON string must be written twice, a new line or other control character as an escape, and no comma precedes a closing bracket: that was put right")
			}
			return got, text[:i], text[i+end:], nil
		case bad == nil && !some:
			other, some = got, true
		}
		at = i + end
	}
	if first < 0 {
		return nil, "", "", errors.New("there is no JSON object in the reply")
	}
	mended, _ := chat.Mended(closed(text[first:]))
	if got, bad := decode(mended); bad == nil && isReply(got) {
		r.warn("the JSON object was not closed: the missing brackets were added")
		return got, text[:first], "", nil
	}
	if some {
		return other, "", "", nil
	}
	_, bad := decode([]byte(text[first:]))
	return nil, "", "", fmt.Errorf("the JSON object cannot be read: %w", bad)
}

func isReply(ms []member) bool {
	return slices.ContainsFunc(ms, func(m member) bool { return m.name == "commands" || m.name == "task_complete" })
}

// closed adds the missing brackets at the end of s. It does not close a string,
// because the rest of the string is unknown.
func closed(s string) string {
	var open []byte
	inside := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case inside && c == '\\':
			i++
		case c == '"':
			inside = !inside
		case inside:
		case c == '{' || c == '[':
			open = append(open, c+2) // the closing bracket, in ASCII
		case (c == '}' || c == ']') && len(open) > 0:
			open = open[:len(open)-1]
		}
	}
	if inside {
		return s
	}
	slices.Reverse(open)
	return strings.TrimRight(strings.TrimSpace(s), "`, \n") + string(open)
}

// decode reads one object with its members in order.
func decode(object []byte) ([]member, error) {
	d := json.NewDecoder(bytes.NewReader(object))
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
		ms, err := decode(item)
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
