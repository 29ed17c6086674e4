package openaichat

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/berth-eval/berth/core/gateway/dialect"
	"github.com/berth-eval/berth/dialects/openai"
)

type object map[string]any

// Talk implements dialect.Voice.
func (Dialect) Talk(body *dialect.Object) (dialect.Talk, error) {
	var messages []struct {
		Role    string
		Content json.RawMessage
	}
	if err := json.Unmarshal(body.Get("messages"), &messages); err != nil {
		return dialect.Talk{}, fmt.Errorf("messages: %w", err)
	}
	var t dialect.Talk
	var last, system []string
	for _, m := range messages {
		switch m.Role {
		case "assistant":
			t.Turn++
			last = nil
		case "system", "developer":
			system = append(system, openai.Text(m.Content))
		default:
			last = append(last, openai.Text(m.Content))
		}
	}
	t.Last, t.System = strings.Join(last, "\n"), strings.Join(system, "\n")
	var tools []struct {
		Function struct{ Name string }
		Custom   struct{ Name string }
	}
	body.Into("tools", &tools)
	for _, tool := range tools {
		t.Tools = append(t.Tools, tool.Function.Name+tool.Custom.Name)
	}
	return t, nil
}

func finish(s dialect.Speech) string {
	switch {
	case s.Stop == dialect.StopLength:
		return "length"
	case s.Stop == dialect.StopRefused:
		return "content_filter"
	case len(s.Tools) > 0:
		return "tool_calls"
	default:
		return "stop"
	}
}

func usageOf(u dialect.Usage) object {
	return object{
		"prompt_tokens": u.Input, "completion_tokens": u.Output, "total_tokens": u.Input + u.Output,
		"prompt_tokens_details":     object{"cached_tokens": u.Cached, "cache_write_tokens": u.CacheWrite},
		"completion_tokens_details": object{"reasoning_tokens": u.Reasoning},
	}
}

func call(s dialect.Speech, i int, arguments string) object {
	t := s.Tools[i]
	o := object{"id": fmt.Sprintf("call_%s_%d", s.ID, i), "type": "function", "function": object{"name": t.Name, "arguments": arguments}}
	if t.Custom {
		o["type"] = "custom"
		o["custom"] = object{"name": t.Name, "input": arguments}
		delete(o, "function")
	}
	return o
}

// Whole implements dialect.Voice.
func (Dialect) Whole(s dialect.Speech) []byte {
	m := object{"role": "assistant", "content": s.Text, "refusal": nil}
	if s.Text == "" && len(s.Tools) > 0 {
		m["content"] = nil
	}
	if s.Stop == dialect.StopRefused {
		m["content"], m["refusal"] = nil, s.Text
	}
	if s.Thinking != "" {
		m["reasoning_content"] = s.Thinking
	}
	var calls []object
	for i, t := range s.Tools {
		calls = append(calls, call(s, i, t.ArgumentText()))
	}
	if calls != nil {
		m["tool_calls"] = calls
	}
	return dialect.JSON(object{
		"id": "chatcmpl-" + s.ID, "object": "chat.completion", "created": 0, "model": s.Model,
		"choices": []object{{"index": 0, "message": m, "finish_reason": finish(s), "logprobs": nil}}, "usage": usageOf(s.Usage),
	})
}

// Stream implements dialect.Voice. Its last event but one holds the usage.
func (Dialect) Stream(s dialect.Speech) [][]byte {
	var out [][]byte
	chunk := func(choices []object, usage any) {
		out = append(out, dialect.SSE("", object{
			"id": "chatcmpl-" + s.ID, "object": "chat.completion.chunk", "created": 0, "model": s.Model, "choices": choices, "usage": usage,
		}))
	}
	say := func(delta object, finish any) {
		chunk([]object{{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": nil}}, nil)
	}
	say(object{"role": "assistant", "content": ""}, nil)
	for _, p := range dialect.Pieces(s.Thinking, s.Chunk) {
		say(object{"reasoning_content": p}, nil)
	}
	field := "content"
	if s.Stop == dialect.StopRefused {
		field = "refusal"
	}
	for _, p := range dialect.Pieces(s.Text, s.Chunk) {
		say(object{field: p}, nil)
	}
	for i, t := range s.Tools {
		first := call(s, i, "")
		first["index"] = i
		say(object{"tool_calls": []object{first}}, nil)
		for _, p := range dialect.Pieces(t.ArgumentText(), s.Chunk) {
			piece := object{"index": i, "function": object{"arguments": p}}
			if t.Custom {
				piece = object{"index": i, "custom": object{"input": p}}
			}
			say(object{"tool_calls": []object{piece}}, nil)
		}
	}
	say(object{}, finish(s))
	chunk([]object{}, usageOf(s.Usage))
	return append(out, []byte("data: [DONE]\n\n"))
}

// Counted implements dialect.Voice; the dialect has no such question.
func (Dialect) Counted(tokens int64) []byte { return dialect.JSON(object{"input_tokens": tokens}) }

// Listed implements dialect.Voice.
func (Dialect) Listed(names []string) []byte { return openai.Listed(names) }
