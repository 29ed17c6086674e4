package gemini

import (
	"encoding/json"
	"fmt"

	"github.com/berth-eval/berth/dialects/internal/wire"
	"github.com/berth-eval/berth/dialects/scripted"
	"github.com/berth-eval/berth/plugins/dialect"
)

var _ scripted.Voice = Dialect{}

type object map[string]any

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
