package answer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// reader reads one piece.
type reader struct {
	p              Piece
	text, thinking strings.Builder
	last           int  // where the last message begins in the text
	first          bool // it reads the first reply; others are only counted
	unread         bool // a part of the reply is of an unknown form
	exclusive      bool // input_tokens do not include what the cache holds
}

// maxWhere bounds how deep parts lie in each other, by the length of the path.
const maxWhere = 200

// maxNotes is how many notes of one piece are kept.
const maxNotes = 20

// note says that a member is of an unknown form.
func (r *reader) note(where string, v gjson.Result) {
	form := map[gjson.Type]string{gjson.Number: "a number", gjson.String: "a text", gjson.True: "true", gjson.False: "false", gjson.JSON: "an object", gjson.Null: "null"}[v.Type]
	if v.IsArray() {
		form = "a list"
	}
	if text := where + " is " + form; len(r.p.Notes) < maxNotes && !slices.Contains(r.p.Notes, text) {
		r.p.Notes = append(r.p.Notes, text)
	}
}

func absent(v gjson.Result) bool { return v.Type == gjson.Null }

// empty reports whether a member says nothing.
func empty(v gjson.Result) bool {
	return absent(v) || v.Type == gjson.False || v.Raw == `""` || v.Raw == "{}" || v.Raw == "[]"
}

// word returns a text, or a number as a text; empty for anything else.
func word(v gjson.Result) string {
	if v.Type == gjson.String || v.Type == gjson.Number {
		return v.String()
	}
	return ""
}

// firstOf returns the first member that says something.
func firstOf(v gjson.Result, names ...string) (name string, member gjson.Result) {
	for _, name = range names {
		if member = v.Get(name); !empty(member) {
			return name, member
		}
	}
	return name, gjson.Result{}
}

// problem reads an error: a text, or an object with a message.
func (r *reader) problem(v gjson.Result) {
	if empty(v) || r.p.Error != "" {
		return
	}
	_, said := firstOf(v, "message", "detail", "msg")
	_, kind := firstOf(v, "status", "type", "code")
	switch {
	case !v.IsObject():
		r.p.Error = v.String()
	case said.Type == gjson.String && kind.Type == gjson.String:
		r.p.Error = kind.Str + ": " + said.Str
	case said.Type == gjson.String:
		r.p.Error = said.Str
	default:
		r.p.Error = v.Raw
	}
}

// list calls f with each element of a list, or with a single object.
func (r *reader) list(where string, v gjson.Result, f func(i int, v gjson.Result)) {
	switch {
	case absent(v):
	case v.IsObject():
		f(0, v)
	case v.IsArray():
		i := 0
		v.ForEach(func(_, e gjson.Result) bool {
			if e.IsObject() {
				f(i, e)
			} else {
				r.note(where+"[]", e)
			}
			i++
			return true
		})
	default:
		r.note(where, v)
	}
}

// say adds text or thought of the model.
func (r *reader) say(text string, thought bool) {
	r.p.Said += int64(len(text))
	switch {
	case !r.first:
	case thought:
		r.thinking.WriteString(text)
	default:
		r.text.WriteString(text)
	}
}

// parts reads what the model said: a text, a part, or a list of both.
func (r *reader) parts(where string, v gjson.Result, thought bool) {
	if !v.IsArray() {
		r.part(where, v, thought)
		return
	}
	v.ForEach(func(_, e gjson.Result) bool {
		r.part(where+"[]", e, thought)
		return true
	})
}

// part reads one part of what the model said, in any dialect. It takes no note of
// parts that are neither text nor calls, such as pictures.
func (r *reader) part(where string, v gjson.Result, thought bool) {
	kind := word(v.Get("type"))
	thought = thought || v.Get("thought").Type == gjson.True || slices.Contains(thoughtful, kind)
	switch {
	case absent(v) || strings.HasSuffix(kind, "_result"): // what a tool of the provider said
	case v.Type == gjson.String:
		r.say(v.Str, thought)
	case !v.IsObject() || len(where) > maxWhere:
		r.note(where, v)
		r.unread = true
		r.p.Said += int64(len(v.Raw))
	case v.Get("functionCall").IsObject():
		f := v.Get("functionCall")
		r.call(f.Get("id"), f.Get("name"), f.Get("args"), word(v.Get("thoughtSignature")))
	case kind == "tool_use":
		r.call(v.Get("id"), v.Get("name"), v.Get("input"), "")
	case kind == "function_call":
		_, id := firstOf(v, "call_id", "id")
		r.call(id, v.Get("name"), v.Get("arguments"), "")
	case slices.Contains(clientCalls, kind):
		r.p.Called = true
	case kind == "message":
		r.last = r.text.Len()
		r.parts(where+".content", v.Get("content"), thought)
	case kind == "refusal":
		r.refuse(v.Get("refusal"))
	default:
		if name, said := firstOf(v, "text", "thinking", "summary", "content", "reasoning", "value"); said.Exists() {
			r.parts(where+"."+name, said, thought)
		}
	}
}

// clientCalls are calls of the Responses API that the client answers, beside those of
// functions. The provider runs other tools itself.
var clientCalls = []string{"custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call", "computer_call"}

// thoughtful are the types of parts that hold thoughts.
var thoughtful = []string{"thinking", "reasoning", "reasoning_text", "reasoning.text", "reasoning.summary", "thinking_delta"}

func (r *reader) refuse(v gjson.Result) {
	if v.Type == gjson.String && v.Str != "" {
		r.say(v.Str, false)
		r.p.Stop = Refused
	}
}

// call reads a tool call.
func (r *reader) call(id, name, arguments gjson.Result, signature string) {
	a := argumentsOf(arguments)
	r.p.Said += int64(len(a))
	if r.first {
		r.p.Called = true
		r.p.Calls = append(r.p.Calls, Call{ID: word(id), Name: word(name), Arguments: a, Signature: signature})
	}
}

// argumentsOf returns the arguments of a call: an object, also in a text. Nothing
// at all is an object without members.
func argumentsOf(v gjson.Result) json.RawMessage {
	if absent(v) {
		return json.RawMessage("{}")
	}
	if v.Type != gjson.String {
		return json.RawMessage(v.Raw)
	}
	text := strings.TrimSpace(v.Str)
	if inner := gjson.Parse(text); inner.Type == gjson.String && json.Valid([]byte(text)) { // a text in a text
		text = strings.TrimSpace(inner.Str)
	}
	var whole json.RawMessage
	switch {
	case text == "" || text == "null":
		return json.RawMessage("{}")
	case text[0] == '{' && json.NewDecoder(bytes.NewReader([]byte(text))).Decode(&whole) == nil: // what follows it is not a part of it
		return whole
	}
	return json.RawMessage(v.Str)
}

// stops are the reasons of all dialects for which a reply ended before the model
// was done.
var stops = map[string]Stop{
	"length": Length, "max_tokens": Length, "max_output_tokens": Length, "model_length": Length, "model_context_window_exceeded": Length,
	"content_filter": Refused, "refusal": Refused, "safety": Refused, "recitation": Refused, "blocklist": Refused, "prohibited_content": Refused,
	"spii": Refused, "language": Refused, "image_safety": Refused,
}

// finish reads why a reply ended. Some servers send an empty text until then.
func (r *reader) finish(where string, v gjson.Result) {
	if absent(v) || v.Raw == `""` {
		return
	}
	r.p.End = true
	if r.first {
		r.p.Reason = word(v)
	}
	reason := strings.ToLower(word(v))
	switch stop := stops[reason]; {
	case v.Type != gjson.String:
		r.note(where, v)
	case reason == "error" && r.p.Error == "":
		r.p.Error = fmt.Sprintf("%s is %q", where, v.Str)
	case r.first && stop != Done:
		r.p.Stop = stop
	}
}

// thoughtEnd matches the end of thoughts in a text.
var thoughtEnd = regexp.MustCompile(`</(think|thinking|thought|reasoning)>`)

// apart moves thoughts that begin the text to where thoughts belong. Servers leave
// them in it that do not know the model's format.
func (p *Piece) apart() {
	tag := thoughtEnd.FindStringSubmatchIndex(p.Text)
	if tag == nil {
		return
	}
	thought, rest, begin := p.Text[:tag[0]], p.Text[tag[1]:], "<"+p.Text[tag[2]:tag[3]]+">"
	begun := strings.HasPrefix(strings.TrimSpace(thought), begin)
	// Some templates put the begin into the request. Then the end is on its own line.
	alone := strings.HasSuffix(thought, "\n") && strings.HasPrefix(rest, "\n") && !strings.Contains(thought, begin)
	if !begun && !alone {
		return
	}
	p.Thinking += strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(thought), begin))
	before := len(p.Text)
	p.Text = strings.TrimSpace(rest)
	if len(p.Last) == before || len(p.Last) > len(p.Text) {
		p.Last = p.Text
	}
}

// openAIChat reads the Chat Completions API.
func (r *reader) openAIChat(v gjson.Result) {
	r.list("choices", v.Get("choices"), func(i int, c gjson.Result) {
		r.p.Message, r.first = true, i == 0
		r.problem(c.Get("error"))
		at, m := firstOf(c, "message", "delta")
		at = "choices[]." + at
		if !m.IsObject() && !empty(m) {
			r.note(at, m)
			r.unread = true
		}
		r.parts(at+".content", m.Get("content"), false)
		name, thought := firstOf(m, "reasoning_content", "reasoning", "thinking", "reasoning_details")
		r.parts(at+"."+name, thought, true)
		r.refuse(m.Get("refusal"))
		r.list(at+".tool_calls", m.Get("tool_calls"), func(_ int, t gjson.Result) {
			f := t.Get("function")
			if !f.IsObject() {
				f = t
			}
			r.call(t.Get("id"), f.Get("name"), f.Get("arguments"), "")
		})
		if f := m.Get("function_call"); f.IsObject() {
			r.call(f.Get("id"), f.Get("name"), f.Get("arguments"), "")
		}
		r.finish("choices[].finish_reason", c.Get("finish_reason"))
	})
	if c := v.Get("choices"); c.Raw == "[]" && v.Get("usage").IsObject() { // the event with the usage is the last one
		r.p.End = true
	}
}

// anthropic reads the Messages API.
func (r *reader) anthropic(v gjson.Result) {
	m := v.Get("message")
	if !m.IsObject() {
		m = v
	} else {
		r.p.ID, r.p.Model = word(m.Get("id")), word(m.Get("model"))
	}
	r.p.Message = !absent(m.Get("content")) || !absent(m.Get("stop_reason"))
	r.parts("content", m.Get("content"), false)
	r.parts("content_block", v.Get("content_block"), false)
	d := v.Get("delta")
	r.parts("delta.text", d.Get("text"), false)
	r.parts("delta.thinking", d.Get("thinking"), true)
	if j := d.Get("partial_json"); j.Exists() {
		r.p.Said += int64(len(j.String()))
	}
	r.finish("stop_reason", m.Get("stop_reason"))
	r.finish("delta.stop_reason", d.Get("stop_reason"))
	r.p.End = r.p.End || word(v.Get("type")) == "message_stop"
}

// openAI reads the Responses API.
func (r *reader) openAI(v gjson.Result) {
	kind := word(v.Get("type"))
	a := v.Get("response")
	if !a.IsObject() {
		a = v
	} else {
		r.p.ID, r.p.Model = word(a.Get("id")), word(a.Get("model"))
		r.problem(a.Get("error"))
	}
	r.p.Message = !absent(a.Get("output"))
	r.parts("output", a.Get("output"), false)
	if kind != "" && kind != "response" { // an event: its deltas have said it
		r.p.Said = 0
	}
	if d := v.Get("delta"); strings.HasSuffix(kind, ".delta") {
		r.p.Said = int64(len(d.String()))
	}
	switch kind {
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done":
		r.p.End = true
	}
	switch status := word(a.Get("status")); {
	case status == "completed":
		r.p.Reason = "stop" // the provider has no word for a regular end
	case status == "incomplete":
		r.p.Stop, r.p.Reason = Length, word(a.Get("incomplete_details.reason"))
		if stop := stops[word(a.Get("incomplete_details.reason"))]; stop != Done {
			r.p.Stop = stop
		}
	case status == "failed" && r.p.Error == "" && (kind == "" || r.p.End):
		r.p.Error = "the answer failed"
	}
}

// gemini reads generateContent.
func (r *reader) gemini(v gjson.Result) {
	r.p.ID, r.p.Model = word(v.Get("responseId")), word(v.Get("modelVersion"))
	r.list("candidates", v.Get("candidates"), func(i int, c gjson.Result) {
		r.p.Message, r.first = true, i == 0
		content := c.Get("content")
		if parts := content.Get("parts"); content.IsObject() && parts.Exists() {
			content = parts
		}
		if content.Raw != "{}" {
			r.parts("candidates[].content", content, false)
		}
		r.finish("candidates[].finishReason", c.Get("finishReason"))
	})
	if f := v.Get("promptFeedback"); !absent(f) && !r.p.Message { // the prompt was refused
		r.p.Message, r.p.End, r.p.Stop = true, true, Refused
	}
}
