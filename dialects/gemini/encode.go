package gemini

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/berth-eval/berth/dialects/internal/wire"
	"github.com/berth-eval/berth/dialects/scripted"
	"github.com/berth-eval/berth/plugins/dialect"
)

var _ scripted.Voice = Dialect{}

type object map[string]any

// content is one entry of contents.
type content struct {
	Role  string `json:"role"`
	Parts []struct {
		Text     string `json:"text"`
		Response *struct {
			Response json.RawMessage `json:"response"`
		} `json:"functionResponse"`
	} `json:"parts"`
}

// text returns the text of the content. The result of a function counts as its
// JSON, or as its output if it has nothing else.
func (c *content) text() string {
	var parts []string
	for _, p := range c.Parts {
		if p.Text != "" {
			parts = append(parts, p.Text)
		}
		if p.Response == nil {
			continue
		}
		var o map[string]json.RawMessage
		var s string
		if json.Unmarshal(p.Response.Response, &o) == nil && len(o) == 1 && json.Unmarshal(o["output"], &s) == nil {
			parts = append(parts, s)
			continue
		}
		parts = append(parts, string(p.Response.Response))
	}
	return strings.Join(parts, "\n")
}

// Talk implements scripted.Voice.
func (Dialect) Talk(body *dialect.Object) (scripted.Talk, error) {
	var contents []content
	if err := json.Unmarshal(body.Get("contents"), &contents); err != nil {
		return scripted.Talk{}, fmt.Errorf("contents: %w", err)
	}
	var t scripted.Talk
	var last []string
	for i := range contents {
		if contents[i].Role == "model" {
			t.Turn++
			last = nil
			continue
		}
		last = append(last, contents[i].text())
	}
	var system content
	body.Into("systemInstruction", &system)
	body.Into("system_instruction", &system)
	t.Last, t.System = strings.Join(last, "\n"), system.text()
	var tools []struct {
		Functions []struct{ Name string } `json:"functionDeclarations"`
		Snake     []struct{ Name string } `json:"function_declarations"`
	}
	body.Into("tools", &tools)
	for _, tool := range tools {
		for _, f := range append(tool.Functions, tool.Snake...) {
			t.Tools = append(t.Tools, f.Name)
		}
	}
	return t, nil
}

func finish(s scripted.Speech) string {
	switch s.Stop {
	case scripted.StopLength:
		return "MAX_TOKENS"
	case scripted.StopRefused:
		return "SAFETY"
	default:
		return "STOP"
	}
}

func usageOf(u dialect.Usage) object {
	o := object{
		"promptTokenCount": u.Input, "candidatesTokenCount": u.Output - u.Reasoning, "totalTokenCount": u.Input + u.Output,
	}
	if u.Cached > 0 {
		o["cachedContentTokenCount"] = u.Cached
	}
	if u.Reasoning > 0 {
		o["thoughtsTokenCount"] = u.Reasoning
	}
	return o
}

// call makes a function call.
func call(s scripted.Speech, i int) object {
	args := s.Tools[i].ArgumentText()
	if args == "" || args[0] != '{' {
		args = string(dialect.JSON(object{"input": args}))
	}
	return object{"functionCall": object{
		"id": fmt.Sprintf("fc_%s_%d", s.ID, i), "name": s.Tools[i].Name, "args": json.RawMessage(args),
	}}
}

func piece(s scripted.Speech, parts []object, last bool) object {
	c := object{"index": 0, "content": object{"role": "model", "parts": parts}}
	o := object{"candidates": []object{c}, "modelVersion": s.Model, "responseId": s.ID}
	if last {
		c["finishReason"] = finish(s)
		o["usageMetadata"] = usageOf(s.Usage)
	}
	return o
}

// Whole implements scripted.Voice.
func (Dialect) Whole(s scripted.Speech) []byte {
	parts := []object{}
	if s.Thinking != "" {
		parts = append(parts, object{"text": s.Thinking, "thought": true})
	}
	if s.Text != "" {
		parts = append(parts, object{"text": s.Text})
	}
	for i := range s.Tools {
		parts = append(parts, call(s, i))
	}
	return dialect.JSON(piece(s, parts, true))
}

// Stream implements scripted.Voice.
func (Dialect) Stream(s scripted.Speech) [][]byte {
	var parts []object
	for _, p := range scripted.Pieces(s.Thinking, s.Chunk) {
		parts = append(parts, object{"text": p, "thought": true})
	}
	for _, p := range scripted.Pieces(s.Text, s.Chunk) {
		parts = append(parts, object{"text": p})
	}
	for i := range s.Tools {
		parts = append(parts, call(s, i))
	}
	if len(parts) == 0 {
		parts = append(parts, object{"text": ""})
	}
	var out [][]byte
	for i, p := range parts {
		out = append(out, wire.SSE("", piece(s, []object{p}, i == len(parts)-1)))
	}
	return out
}

// Counted implements scripted.Voice.
func (Dialect) Counted(tokens int64) []byte { return dialect.JSON(object{"totalTokens": tokens}) }

// Listed implements dialect.Dialect.
func (Dialect) Listed(names []string) []byte {
	models := []object{}
	for _, n := range names {
		models = append(models, object{
			"name": "models/" + n, "displayName": n, "supportedGenerationMethods": []string{"generateContent", "countTokens"},
		})
	}
	return dialect.JSON(object{"models": models})
}
