// Package calls reads the actions in a model's reply, for agents that act by
// writing calls such as click('12') instead of calling tools.
//
// Nothing in a reply is evaluated: arguments are literals. A reply is foreign
// input, and every error says what is wrong with it in a text that can be sent
// back to the model.
package calls

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/suggest"
)

// The limits of a reply.
const (
	MaxReply = 1 << 20 // bytes
	MaxCalls = 100     // calls in a reply
	maxDepth = 32      // of lists and dicts in each other
)

// ErrNone means that there is no call in a reply: it is text, or empty.
var ErrNone = errors.New("the reply has no call")

// Call is one action with its arguments.
type Call struct {
	Name       string
	Positional []json.RawMessage
	Named      []Named // in the order of the reply
}

// Named is an argument with its name.
type Named struct {
	Name  string
	Value json.RawMessage
}

// Parse returns the calls of a reply, in their order. They are looked for in the
// last code fence, then in the whole reply, each first as calls and then as JSON:
// an object with the key action, a function object (name and arguments, as in
// tool calls), or a list of these. A reply without any fails with ErrNone; one
// whose last fence holds something else fails with what is wrong in it.
func Parse(reply string) ([]Call, error) {
	if len(reply) > MaxReply {
		return nil, fmt.Errorf("the reply has %d bytes, and %d are allowed", len(reply), MaxReply)
	}
	var first error
	for _, text := range []string{fenced(reply), strings.TrimSpace(reply)} {
		if text == "" {
			continue
		}
		calls, err := read(text)
		if err == nil {
			return calls, nil
		}
		if first == nil {
			first = err
		}
	}
	if first == nil {
		first = ErrNone
	}
	return nil, first
}

// fenced returns the content of the last code fence, without the name of a
// language after its first mark.
func fenced(reply string) string {
	const mark = "```"
	end := strings.LastIndex(reply, mark)
	if end < 0 {
		return ""
	}
	begin := strings.LastIndex(reply[:end], mark)
	if begin < 0 {
		return strings.TrimSpace(word(reply[end+len(mark):])) // it is not closed
	}
	if strings.Count(reply[:end], mark)%2 == 0 { // the last mark opens a fence that is not closed
		return strings.TrimSpace(word(reply[end+len(mark):]))
	}
	return strings.TrimSpace(word(reply[begin+len(mark) : end]))
}

// word cuts off a word right after the mark of a fence, such as python.
func word(text string) string {
	line, rest, more := strings.Cut(text, "\n")
	if more && isName(strings.TrimSpace(line)) {
		return rest
	}
	return text
}

// read reads calls, or else JSON.
func read(text string) ([]Call, error) {
	calls, err := (&scanner{text: text}).calls()
	if err == nil {
		return calls, nil
	}
	if text[0] != '{' && text[0] != '[' {
		return nil, err
	}
	calls, wrong := fromJSON([]byte(text), 0)
	if wrong == nil && len(calls) == 0 {
		wrong = ErrNone
	}
	return calls, wrong
}

// fromJSON reads an object with an action, a function object, or a list of them.
func fromJSON(text []byte, depth int) ([]Call, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("the JSON is nested deeper than %d", maxDepth)
	}
	text = bytes.TrimSpace(text)
	if !json.Valid(text) {
		var v any
		return nil, fmt.Errorf("not valid JSON: %w", json.Unmarshal(text, &v))
	}
	switch text[0] {
	case '[':
		var list []json.RawMessage
		if err := json.Unmarshal(text, &list); err != nil {
			return nil, err
		}
		var all []Call
		for _, one := range list {
			calls, err := fromJSON(one, depth+1)
			if err != nil {
				return nil, err
			}
			if all = append(all, calls...); len(all) > MaxCalls {
				return nil, tooMany()
			}
		}
		return all, nil
	case '"':
		var calls string
		if err := json.Unmarshal(text, &calls); err != nil {
			return nil, err
		}
		return (&scanner{text: calls}).calls()
	case '{':
		return object(text, depth)
	default:
		return nil, fmt.Errorf("%s is not a call: write name(arguments), or {\"name\": …, \"arguments\": {…}}", shorten(string(text)))
	}
}

// object reads {"action": …}, {"name": …, "arguments": …} or {"function": {…}}.
func object(text []byte, depth int) ([]Call, error) {
	var o map[string]json.RawMessage
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, err
	}
	if f, ok := o["function"]; ok && f[0] == '{' {
		return fromJSON(f, depth+1)
	}
	name := ""
	for _, key := range []string{"name", "function", "action"} {
		raw, ok := o[key]
		if !ok {
			continue
		}
		if key == "action" && (raw[0] != '"' || !isName(unquoted(raw))) {
			return fromJSON(raw, depth+1)
		}
		if name = unquoted(raw); !isName(name) {
			return nil, fmt.Errorf("%s is not the name of an action", shorten(string(raw)))
		}
		break
	}
	if name == "" {
		return nil, errors.New(`the object has neither "action" nor "name"`)
	}
	for _, key := range []string{"arguments", "args", "parameters", "kwargs"} {
		raw, ok := o[key]
		if !ok {
			continue
		}
		if raw[0] == '"' { // as in tool calls
			raw = json.RawMessage(unquoted(raw))
		}
		return given(name, raw)
	}
	for _, key := range []string{"name", "function", "action", "type"} {
		delete(o, key)
	}
	rest, err := json.Marshal(o) // {"action": "click", "bid": "12"}
	if err != nil {
		return nil, err
	}
	return given(name, rest)
}

// given returns a call with arguments as JSON: an object, or a list in the order of
// the parameters.
func given(name string, arguments json.RawMessage) ([]Call, error) {
	c := Call{Name: name}
	arguments = bytes.TrimSpace(arguments)
	switch {
	case len(arguments) == 0 || string(arguments) == "null":
	case arguments[0] == '[':
		if err := json.Unmarshal(arguments, &c.Positional); err != nil {
			return nil, fmt.Errorf("arguments of %s: %w", name, err)
		}
	default:
		var o map[string]json.RawMessage
		if err := json.Unmarshal(arguments, &o); err != nil {
			return nil, fmt.Errorf("arguments of %s are not an object: %w", name, err)
		}
		for _, key := range slices.Sorted(maps.Keys(o)) {
			c.Named = append(c.Named, Named{Name: key, Value: o[key]})
		}
	}
	return []Call{c}, nil
}

// Arguments returns the arguments as a JSON object. parameters are the names of the
// action's parameters in their order.
func (c *Call) Arguments(parameters []string) (json.RawMessage, error) {
	if len(c.Positional) > len(parameters) {
		return nil, fmt.Errorf("%s takes %d arguments, and got %d", c.Name, len(parameters), len(c.Positional))
	}
	all := map[string]json.RawMessage{}
	for i, v := range c.Positional {
		all[parameters[i]] = v
	}
	for _, n := range c.Named {
		if !slices.Contains(parameters, n.Name) {
			return nil, fmt.Errorf("%s has no argument %q%s", c.Name, n.Name, suggest.After(n.Name, parameters))
		}
		if _, twice := all[n.Name]; twice {
			return nil, fmt.Errorf("%s got the argument %q twice", c.Name, n.Name)
		}
		all[n.Name] = n.Value
	}
	return json.Marshal(all)
}

func unquoted(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s) // empty if it is not text
	return s
}

func tooMany() error { return fmt.Errorf("the reply has more than %d calls", MaxCalls) }

// shorten cuts a text from a reply for an error.
func shorten(s string) string {
	const most = 40
	r := []rune(strings.Join(strings.Fields(s), " "))
	if len(r) > most {
		r = append(r[:most], '…')
	}
	return string(r)
}
