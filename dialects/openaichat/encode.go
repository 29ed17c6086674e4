package openaichat

import (
	"fmt"

	"github.com/berth-eval/berth/dialects/internal/wire"
	"github.com/berth-eval/berth/dialects/scripted"
	"github.com/berth-eval/berth/plugins/dialect"
)

var _ scripted.Voice = Dialect{}

type object map[string]any

func finish(s scripted.Speech) string {
	switch {
	case s.Stop == scripted.StopLength:
		return "length"
	case s.Stop == scripted.StopRefused:
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

func call(s scripted.Speech, i int, arguments string) object {
	t := s.Tools[i]
	o := object{"id": fmt.Sprintf("call_%s_%d", s.ID, i), "type": "function", "function": object{"name": t.Name, "arguments": arguments}}
	if t.Custom {
		o["type"] = "custom"
		o["custom"] = object{"name": t.Name, "input": arguments}
		delete(o, "function")
	}
	return o
}

// Whole implements scripted.Voice.
func (Dialect) Whole(s scripted.Speech) []byte {
	m := object{"role": "assistant", "content": s.Text, "refusal": nil}
	if s.Text == "" && len(s.Tools) > 0 {
		m["content"] = nil
	}
	if s.Stop == scripted.StopRefused {
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

// Stream implements scripted.Voice. The usage is in its second to last event.
func (Dialect) Stream(s scripted.Speech) [][]byte {
	var out [][]byte
	chunk := func(choices []object, usage any) {
		out = append(out, wire.SSE("", object{
			"id": "chatcmpl-" + s.ID, "object": "chat.completion.chunk", "created": 0, "model": s.Model, "choices": choices, "usage": usage,
		}))
	}
	say := func(delta object, finish any) {
		chunk([]object{{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": nil}}, nil)
	}
	say(object{"role": "assistant", "content": ""}, nil)
	for _, p := range scripted.Pieces(s.Thinking, s.Chunk) {
		say(object{"reasoning_content": p}, nil)
	}
	field := "content"
	if s.Stop == scripted.StopRefused {
		field = "refusal"
	}
	for _, p := range scripted.Pieces(s.Text, s.Chunk) {
		say(object{field: p}, nil)
	}
	for i, t := range s.Tools {
		first := call(s, i, "")
		first["index"] = i
		say(object{"tool_calls": []object{first}}, nil)
		for _, p := range scripted.Pieces(t.ArgumentText(), s.Chunk) {
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
