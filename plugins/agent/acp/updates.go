package acp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/berth-eval/berth/plugins/agent/cli"
	"github.com/berth-eval/berth/plugins/output"
)

// maxText is how much of one message is kept, in bytes.
const maxText = 1 << 20

// call is one tool call.
type call struct {
	name, title, kind string
	fresh             bool   // not yet part of a step
	input             bool   // its arguments were received
	content           string // its newest output
	book              *cli.Transcript
}

// Line implements cli.Dialog.
func (d *dialog) Line(line []byte) {
	var m message
	if json.Unmarshal(line, &m) != nil && m.Method == "" && len(m.ID) == 0 {
		return
	}
	asked := len(m.ID) > 0 && string(m.ID) != "null"
	switch {
	case m.Method == "" && asked:
		if then := d.waits[string(m.ID)]; then != nil {
			delete(d.waits, string(m.ID))
			then(m.reply)
		}
	case m.Method == "session/update":
		d.update(m.Params)
	case m.Method == "session/request_permission" && asked:
		d.permit(m.ID, m.Params)
	case asked:
		d.send(map[string]any{"id": m.ID, "error": map[string]any{"code": -32601, "message": "this client has no " + output.Middle(m.Method, 200)}})
	}
}

// update is a session/update.
type update struct {
	Kind    string          `json:"sessionUpdate"`
	Message string          `json:"messageId"`
	Content json.RawMessage `json:"content"` // a block, or the list of a call's outputs
	Entries []struct {
		Content string `json:"content"`
		Status  string `json:"status"`
	} `json:"entries"`
	told
}

// told is the description of a call, in updates and in requests for permission.
type told struct {
	Call   string                     `json:"toolCallId"`
	Title  string                     `json:"title"`
	Tool   string                     `json:"kind"`
	Status string                     `json:"status"`
	Input  json.RawMessage            `json:"rawInput"`
	Output json.RawMessage            `json:"rawOutput"`
	Meta   map[string]json.RawMessage `json:"_meta"`
}

// meta is what some agents add under their own key: the tool's name as the
// model knows it, and the call that started the sub-agent that makes this call.
type meta struct {
	Name   string `json:"toolName"`
	Parent string `json:"parentToolUseId"`
}

func (t *told) meta() (m meta) {
	for _, raw := range t.Meta {
		var one meta
		if json.Unmarshal(raw, &one) == nil && one != (meta{}) {
			m = one
		}
	}
	return m
}

func (d *dialog) update(params json.RawMessage) {
	var p struct {
		Session string `json:"sessionId"`
		Update  update `json:"update"`
	}
	cli.Parse(params, &p)
	u := &p.Update
	switch u.Kind {
	case "agent_message_chunk", "agent_thought_chunk":
		d.chunk(u)
	case "tool_call", "tool_call_update":
		d.tool(&u.told, u.Content)
	case "plan":
		var list []string
		for _, e := range u.Entries {
			list = append(list, fmt.Sprintf("%s (%s)", e.Content, e.Status))
		}
		d.book.Log("plan: %s", strings.Join(list, "; "))
	}
}

// chunk adds a piece of a message or of a thought. Consecutive pieces of one
// kind form one message.
func (d *dialog) chunk(u *update) {
	text := blockText(u.Content)
	if text == "" {
		return
	}
	if parent := u.meta().Parent; parent != "" {
		if u.Kind == "agent_message_chunk" {
			d.book.In(parent).Say(u.Message, text)
		}
		return
	}
	if kind := u.Kind + u.Message; kind != d.kind {
		d.flush()
		d.kind = kind
		if d.book.Waits("") { // a call is still running: this is another message
			d.book.Next()
		}
	}
	if d.text.Len() < maxText {
		d.text.WriteString(text)
	}
}

// flush hands over the message received so far.
func (d *dialog) flush() {
	text, kind := d.text.String(), d.kind
	d.text.Reset()
	d.kind = ""
	if text == "" {
		return
	}
	if strings.HasPrefix(kind, "agent_thought_chunk") {
		d.book.Think("", text)
		return
	}
	d.said = text
	d.book.Say("", text)
}

// block is a piece of content.
type block struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	URI      string `json:"uri"`
	Resource struct {
		Text string `json:"text"`
		URI  string `json:"uri"`
	} `json:"resource"`
}

func blockText(raw json.RawMessage) string {
	var b block
	if len(raw) == 0 || json.Unmarshal(raw, &b) != nil && b.Type == "" {
		return ""
	}
	switch b.Type {
	case "text":
		return b.Text
	case "resource":
		return b.Resource.URI + "\n" + b.Resource.Text
	case "resource_link":
		return b.URI
	default:
		return "[" + output.Middle(b.Type, 40) + "]"
	}
}

// tool handles a description of a call and its output so far.
func (d *dialog) tool(t *told, content json.RawMessage) {
	c := d.known(t)
	if c == nil {
		return
	}
	if text := contentText(content); text != "" {
		c.content = text
	}
	if t.Status != "completed" && t.Status != "failed" {
		return
	}
	text := c.content
	if text == "" {
		text = outputText(t.Output)
	}
	c.book.Result(t.Call, text, t.Status == "failed")
	delete(d.calls, t.Call)
}

// known returns the open call that t describes and creates it if needed. Nil:
// too many calls are open, or the call is over.
func (d *dialog) known(t *told) *call {
	d.flush()
	c := d.calls[t.Call]
	if c == nil {
		if t.Call == "" || len(d.calls) >= maxOpen {
			return nil
		}
		if t.Title == "" && len(t.Input) == 0 && t.Tool == "" {
			return nil // the call is over
		}
		c = &call{book: d.book, fresh: true}
		d.calls[t.Call] = c
	}
	m := t.meta()
	if m.Parent != "" {
		c.book = d.book.In(m.Parent)
	}
	if t.Tool != "" {
		c.kind = t.Tool
	}
	if t.Title != "" {
		c.title = output.Middle(t.Title, 1<<10)
	}
	if c.name == "" {
		c.name = cmp.Or(m.Name, c.kind, "other")
	}
	input := t.Input
	c.input = c.input || len(input) > 2 // more than {}
	if !c.input && c.title != "" {
		if b, err := json.Marshal(map[string]string{"title": c.title}); err == nil {
			input = b // the agent reports nothing else
		}
	}
	if c.fresh || c.book.Waits(t.Call) { // otherwise its step has been recorded
		d.called = true
		c.book.Call("", t.Call, output.Middle(c.name, 200), input)
	}
	c.fresh = false
	return c
}

// contentText returns the output of a call as text for the trajectory.
func contentText(raw json.RawMessage) string {
	var list []struct {
		Type     string          `json:"type"`
		Content  json.RawMessage `json:"content"`
		Path     string          `json:"path"`
		Old      *string         `json:"oldText"`
		New      string          `json:"newText"`
		Terminal string          `json:"terminalId"`
	}
	if len(raw) == 0 || raw[0] != '[' || json.Unmarshal(raw, &list) != nil && len(list) == 0 {
		return ""
	}
	var out []string
	for _, e := range list {
		switch e.Type {
		case "content":
			out = append(out, blockText(e.Content))
		case "diff":
			text := "wrote " + e.Path
			if e.Old != nil {
				text = "changed " + e.Path
			}
			out = append(out, fmt.Sprintf("%s:\n%s", text, e.New))
		}
	}
	return strings.Join(out, "\n")
}

// outputText returns the raw output of a tool as text: the string itself, the
// field that usually holds the text, or the whole JSON.
func outputText(raw json.RawMessage) string {
	var text string
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) == nil {
		for _, name := range []string{"formatted_output", "aggregated_output", "output", "stdout", "text"} {
			if json.Unmarshal(fields[name], &text) == nil && text != "" {
				return text
			}
		}
	}
	return string(raw)
}

// option is an answer to a request for permission.
type option struct {
	ID   string `json:"optionId"`
	Kind string `json:"kind"`
}

// choose returns the option that allows or rejects; it prefers an option that
// applies once.
func choose(list []option, allow bool) string {
	wanted := []string{"reject_once", "reject_always"}
	if allow {
		wanted = []string{"allow_once", "allow_always"}
	}
	for _, kind := range wanted {
		for _, o := range list {
			if o.Kind == kind {
				return o.ID
			}
		}
	}
	return ""
}

// permit answers a request for permission.
func (d *dialog) permit(id, params json.RawMessage) {
	var p struct {
		Call    told     `json:"toolCall"`
		Options []option `json:"options"`
	}
	kind, title := "other", ""
	if err := json.Unmarshal(params, &p); err == nil || p.Call.Call != "" {
		title = p.Call.Title
		if p.Call.Tool != "" {
			kind = p.Call.Tool
		}
		if c := d.known(&p.Call); c != nil {
			title, kind = c.title, cmp.Or(c.kind, kind)
		}
	}
	allow := d.o.Allow == nil || d.o.Allow(kind)
	outcome := map[string]any{"outcome": "cancelled"}
	if option := choose(p.Options, allow); option != "" && !d.stopped {
		outcome = map[string]any{"outcome": "selected", "optionId": option}
	}
	said := map[bool]string{true: "given", false: "not given"}[allow]
	if outcome["outcome"] == "cancelled" {
		said += ", but the agent offers no such option: canceled"
	}
	d.book.Log("permission to %s %q: %s", output.Middle(kind, 40), title, said)
	d.send(map[string]any{"id": id, "result": map[string]any{"outcome": outcome}})
}
