package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/model/chat"
)

// maxObjects is how many braces are tried as the beginning of a reply.
const maxObjects = 100

// object is a reply as JSON.
type object struct {
	Analysis any             `json:"analysis"`
	Plan     any             `json:"plan"`
	Commands json.RawMessage `json:"commands"`
	Complete any             `json:"task_complete"`
}

func (o *object) isReply() bool { return o.Commands != nil || o.Complete != nil }

// parseJSON reads the object of a reply, anywhere in the text.
func parseJSON(text string) (Reply, error) {
	var r Reply
	o, before, after, err := find(text, &r)
	if err != nil {
		return r, err
	}
	if strings.TrimSpace(before) != "" {
		r.warn("there is text before the JSON object, which was ignored")
	}
	if strings.TrimSpace(after) != "" {
		r.warn("there is text after the JSON object, which was ignored")
	}
	return r, r.take(o)
}

// find finds the object that is a reply: the first with commands or
// task_complete. If there is none, it tries to repair the first object.
func find(text string, r *Reply) (o *object, before, after string, err error) {
	var other *object // the first one that is not a reply
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
		got := &object{}
		switch bad := json.Unmarshal(mended, got); {
		case bad == nil && got.isReply():
			if !json.Valid([]byte(text[i : i+end])) {
				r.warn("a backslash in a JSON string must be written twice, a new line or other control character as an escape, and no comma precedes a closing bracket: that was put right")
			}
			return got, text[:i], text[i+end:], nil
		case bad == nil && other == nil:
			other = got
		}
		at = i + end
	}
	if first < 0 {
		return nil, "", "", errors.New("there is no JSON object in the reply")
	}
	mended, _ := chat.Mended(closed(text[first:]))
	o = &object{}
	if bad := json.Unmarshal(mended, o); bad == nil && o.isReply() {
		r.warn("the JSON object was not closed: the missing brackets were added")
		return o, text[:first], "", nil
	}
	if other != nil {
		return other, "", "", nil
	}
	return nil, "", "", fmt.Errorf("the JSON object cannot be read: %w", json.Unmarshal([]byte(text[first:]), o))
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

// take takes what the object says.
func (r *Reply) take(o *object) error {
	r.Analysis, r.Plan = r.text("analysis", o.Analysis), r.text("plan", o.Plan)
	if o.Complete != nil {
		r.Complete = r.yes(fmt.Sprint(o.Complete))
	}
	if o.Commands == nil {
		if r.Complete {
			return nil
		}
		return errors.New(`the field "commands" is missing: it is a list of objects with "keystrokes" and "duration", and may be empty`)
	}
	err := r.commands(o.Commands)
	if err != nil && r.Complete {
		r.Commands = nil
		r.warn("the commands were ignored: %s", err)
		return nil
	}
	return err
}

// text returns a field that should be a text.
func (r *Reply) text(name string, v any) string {
	switch v := v.(type) {
	case string:
		return v
	case nil:
		r.warn("the field %q is missing", name)
		return ""
	default:
		r.warn("the field %q is not text", name)
		return fmt.Sprint(v)
	}
}

// commands reads the list of commands.
func (r *Reply) commands(raw json.RawMessage) error {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return errors.New(`the field "commands" is not a list`)
	}
	for i, item := range list {
		var c struct{ Keystrokes, Duration any }
		if json.Unmarshal(item, &c) != nil {
			return fmt.Errorf(`command %d is not an object with "keystrokes" and "duration"`, i+1)
		}
		keys, ok := c.Keystrokes.(string)
		if !ok {
			return fmt.Errorf(`command %d has no "keystrokes" that are text`, i+1)
		}
		duration := DefaultDuration
		if c.Duration != nil {
			duration = r.duration(i+1, fmt.Sprint(c.Duration))
		}
		r.Commands = append(r.Commands, Command{keys, duration})
	}
	return nil
}
