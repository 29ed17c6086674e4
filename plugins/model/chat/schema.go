package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	ordered "github.com/berth-eval/berth/plugins/dialect"
	"github.com/berth-eval/berth/plugins/fault"
	jsonschema "github.com/berth-eval/berth/plugins/internal/schema"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/output"
)

// ErrBadReply means that the model answered, but not with JSON that matches the
// schema of the request, also when it was asked again. It is not agent.ErrModel:
// the model was there.
var ErrBadReply = fault.ErrBadReply

const (
	asksAgain = 2        // after a reply that does not match
	maxQuoted = 32 << 10 // bytes of such a reply that the model sees again
	maxSaid   = 1000     // bytes of what is wrong with it
)

// schema is the schema of a request.
type schema struct {
	check *jsonschema.Schema
	raw   json.RawMessage
	// sent is the schema as providers take it, and strict reports whether every
	// object in it requires all of its members. Sent is nil if the schema cannot be
	// written with what all providers know.
	sent   json.RawMessage
	strict bool
}

// compile reads a schema. It loads nothing that the schema refers to.
func compile(raw json.RawMessage) (*schema, error) {
	check, err := jsonschema.Compile(raw)
	if err != nil {
		return nil, err
	}
	s := &schema{raw: raw, check: check}
	p := portable{strict: true}
	if sent := p.schema(raw, 0); !p.failed && isObject(sent) {
		s.sent, s.strict = sent, p.strict
	}
	return s, nil
}

// isObject reports whether a schema describes an object, as providers want it of
// the whole reply.
func isObject(raw json.RawMessage) bool {
	var s struct{ Type any }
	return json.Unmarshal(raw, &s) == nil && s.Type == "object"
}

// portable rewrites a schema so that every provider accepts it: they know types,
// members, elements, alternatives and enumerations, and want objects closed. Other
// rules, such as the length of a string, become part of the description. They are
// still checked when the reply comes.
type portable struct {
	failed bool // something that cannot be said in this way
	strict bool
}

const maxDepth = 32 // of schemas in schemas

func (p *portable) schema(raw json.RawMessage, depth int) json.RawMessage {
	in, err := ordered.ParseObject(raw)
	if err != nil || depth > maxDepth {
		p.failed = true // also the schemas true and false
		return raw
	}
	out, err := ordered.ParseObject([]byte("{}"))
	if err != nil {
		p.failed = true
		return raw
	}
	var rules []string
	var about string
	in.Into("description", &about)
	for _, name := range in.Names() {
		v := in.Get(name)
		switch name {
		case "type", "required", "enum", "$ref":
			out.Set(name, v)
		case "const":
			out.Set("enum", slices.Concat(json.RawMessage("["), v, json.RawMessage("]")))
		case "properties", "$defs":
			out.Set(name, p.members(v, depth))
		case "items":
			out.Set(name, p.schema(v, depth+1))
		case "anyOf", "oneOf":
			out.Set("anyOf", p.list(v, depth))
		case "description", "additionalProperties", "$schema", "$id", "$comment", "title", "default", "examples":
		case "minLength", "maxLength", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
			"minItems", "maxItems", "uniqueItems":
			rules = append(rules, name+": "+string(v))
		default:
			p.failed = true
		}
	}
	if isObject(raw) {
		p.closed(in, out)
	}
	if len(rules) > 0 {
		about = strings.TrimSpace(about + " (" + strings.Join(rules, ", ") + ")")
	}
	if about != "" {
		out.SetString("description", about)
	}
	return out.Bytes()
}

// closed makes an object one without further members.
func (p *portable) closed(in, out *ordered.Object) {
	var all map[string]json.RawMessage
	var required []string
	in.Into("properties", &all)
	in.Into("required", &required)
	if len(all) == 0 {
		p.failed = true // any members
	}
	for name := range all {
		p.strict = p.strict && slices.Contains(required, name)
	}
	out.Set("additionalProperties", json.RawMessage("false"))
}

func (p *portable) members(raw json.RawMessage, depth int) json.RawMessage {
	o, err := ordered.ParseObject(raw)
	if err != nil {
		p.failed = true
		return raw
	}
	for _, name := range o.Names() {
		o.Set(name, p.schema(o.Get(name), depth+1))
	}
	return o.Bytes()
}

func (p *portable) list(raw json.RawMessage, depth int) json.RawMessage {
	var all []json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		p.failed = true
	}
	for i := range all {
		all[i] = p.schema(all[i], depth+1)
	}
	return ordered.JSON(all)
}

// read takes the JSON out of the last message of a reply to a request.
func (s *schema) read(r *Reply, q *Request) (json.RawMessage, error) {
	text := strings.TrimSpace(r.last)
	switch {
	case r.Stop == Length:
		return nil, errCut
	case r.Stop == Refused:
		return nil, errors.New("the model refused to answer")
	case text == "":
		return nil, errors.New("it is empty")
	case len(text) > maxJSON:
		return nil, fmt.Errorf("it has %d bytes, at most %d are allowed", len(text), maxJSON)
	}
	var given strings.Builder
	for _, m := range q.Messages {
		given.WriteString(m.Text + "\n")
		for _, result := range m.Results {
			given.WriteString(result.Text + "\n")
		}
	}
	return s.find(text, given.String())
}

var errCut = errors.New("it was cut off at the limit of a reply")

// tell is what a model is told that gets no schema from its provider.
func (s *schema) tell(system string) string {
	return strings.TrimSpace(system + "\n\nReply with one JSON value and nothing else: no text before or after it. It has to match this JSON Schema:\n" + string(s.raw))
}

// noFormat matches the messages with which endpoints say that they cannot force
// a reply into a schema.
var noFormat = regexp.MustCompile(`(?i)schema|response_?format|output_(config|format)|text\.format|response_?mime_?type|structured[_ ]output|guided`)

// native reports whether the endpoint takes a schema beside the tools of a
// request.
func (c *Client) native(r *Request) bool {
	// Of Google's models those before Gemini 3 refuse a schema beside tools.
	return !c.plain.Load() && (c.end.Dialect != model.DialectGemini || len(r.Tools) == 0 || gemini3(c.end.Name))
}

// matching asks until the reply matches the schema of the request or calls tools.
func (c *Client) matching(ctx context.Context, r Request) (Reply, error) {
	s, err := compile(r.Schema)
	if err != nil {
		return Reply{}, fmt.Errorf("ask model %q: the schema of its reply: %w", c.end.Name, err)
	}
	system := r.System
	var before Reply
	for asked := 0; ; asked++ {
		r.System, r.schema = system, s
		if s.sent == nil || !c.native(&r) {
			r.System, r.schema = s.tell(system), nil
		}
		reply, err := c.ask(ctx, r)
		if errors.Is(err, errFormat) && r.schema != nil && !c.plain.Swap(true) {
			asked-- // the same again, as text
			continue
		}
		if r.wide && errors.Is(err, ErrRefused) { // it has no more room than it took
			return before, c.bad(errCut, asked)
		}
		if err != nil {
			return Reply{}, err
		}
		reply.add(&before)
		if len(reply.Calls) > 0 {
			return reply, nil
		}
		var wrong error
		if reply.JSON, wrong = s.read(&reply, &r); wrong == nil {
			return reply, nil
		}
		if asked == asksAgain || errors.Is(wrong, errCut) && r.wide {
			return reply, c.bad(wrong, asked+1)
		}
		before = reply
		r.again(&reply, wrong)
	}
}

// again makes the request after a reply that could not be read: the same with more
// room if it was cut off, else one that says what was wrong.
func (r *Request) again(reply *Reply, wrong error) {
	if errors.Is(wrong, errCut) {
		r.wide, r.MaxTokens = true, DefaultMaxTokens
		if n := reply.Usage.Output; n != nil {
			r.MaxTokens = max(r.MaxTokens, 2**n)
		}
		return
	}
	r.Messages = append(slices.Clip(r.Messages), Message{Role: Assistant, Text: output.First(reply.Text, maxQuoted)}, Message{
		Role: User,
		Text: "Your reply could not be read: " + output.First(wrong.Error(), maxSaid) + "\nReply again with one JSON value that matches the schema, and nothing else.",
	})
}

// bad is what replies end with that do not match.
func (c *Client) bad(wrong error, replies int) error {
	return fmt.Errorf("ask model %q: %w, after %d replies: %s", c.end.Name, ErrBadReply, replies, output.First(wrong.Error(), maxSaid))
}

// widen sets the limit of a reply, under the name that the experiment gave it.
func widen(request object, limit int64) {
	if _, ok := request["max_tokens"]; ok {
		delete(request, "max_completion_tokens")
	}
	for _, name := range []string{"max_tokens", "max_completion_tokens", "max_output_tokens"} {
		if _, ok := request[name]; ok {
			request[name] = limit
		}
	}
	if _, ok := request["generationConfig"]; ok {
		member(request, "generationConfig")["maxOutputTokens"] = limit
	}
}

// member returns a member of a request that is an object, to add to it. It may
// be one of the experiment's parameters.
func member(request object, name string) object {
	var o object
	switch v := request[name].(type) {
	case object:
		o = v
	case json.RawMessage:
		_ = json.Unmarshal(v, &o) // what is not an object is replaced
	}
	if o == nil {
		o = object{}
	}
	request[name] = o
	return o
}

// add counts what the replies before it used.
func (r *Reply) add(before *Reply) {
	r.Tries += before.Tries
	for _, u := range []struct{ to, more **int64 }{
		{&r.Usage.Input, &before.Usage.Input},
		{&r.Usage.Cached, &before.Usage.Cached},
		{&r.Usage.Output, &before.Usage.Output},
		{&r.Usage.Reasoning, &before.Usage.Reasoning},
	} {
		if *u.more != nil {
			*u.to = sum(*u.more, *u.to)
		}
	}
}
