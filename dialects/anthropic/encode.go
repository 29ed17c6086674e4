package anthropic

import (
	"encoding/json"
	"fmt"

	"github.com/berth-eval/berth/dialects/internal/wire"
	"github.com/berth-eval/berth/dialects/scripted"
	"github.com/berth-eval/berth/plugins/dialect"
)

var _ scripted.Voice = Dialect{}

func stopReason(s scripted.Speech) string {
	switch {
	case s.Stop == scripted.StopLength:
		return "max_tokens"
	case s.Stop == scripted.StopRefused:
		return "refusal"
	case len(s.Tools) > 0:
		return "tool_use"
	default:
		return "end_turn"
	}
}

type object map[string]any

func usageOf(u dialect.Usage, output int64) object {
	o := object{
		"input_tokens": u.Input - u.Cached - u.CacheWrite, "cache_creation_input_tokens": u.CacheWrite,
		"cache_read_input_tokens": u.Cached, "output_tokens": output, "service_tier": "standard",
	}
	if u.Reasoning > 0 && output == u.Output {
		o["output_tokens_details"] = object{"thinking_tokens": u.Reasoning}
	}
	return o
}

func toolID(s scripted.Speech, i int) string { return fmt.Sprintf("toolu_%s_%d", s.ID, i) }

func envelope(s scripted.Speech, content []object, stop any, usage object) object {
	return object{
		"id": "msg_" + s.ID, "type": "message", "role": "assistant", "model": s.Model, "content": content,
		"stop_reason": stop, "stop_sequence": nil, "usage": usage,
	}
}

// Whole implements scripted.Voice.
func (Dialect) Whole(s scripted.Speech) []byte {
	content := []object{}
	if s.Thinking != "" {
		content = append(content, object{"type": "thinking", "thinking": s.Thinking, "signature": "c2NyaXB0"})
	}
	if s.Text != "" {
		content = append(content, object{"type": "text", "text": s.Text})
	}
	for i, t := range s.Tools {
		content = append(content, object{"type": "tool_use", "id": toolID(s, i), "name": t.Name, "input": json.RawMessage(input(t))})
	}
	return dialect.JSON(envelope(s, content, stopReason(s), usageOf(s.Usage, s.Usage.Output)))
}

// input returns the arguments of a call, which are always an object in this
// dialect.
func input(t scripted.ToolCall) string {
	a := t.ArgumentText()
	if len(a) == 0 || a[0] != '{' {
		return string(dialect.JSON(object{"input": a}))
	}
	return a
}

// Stream implements scripted.Voice.
func (Dialect) Stream(s scripted.Speech) [][]byte {
	var out [][]byte
	say := func(name string, o object) {
		o["type"] = name
		out = append(out, wire.SSE(name, o))
	}
	index := 0
	part := func(start object, deltas []object) {
		say("content_block_start", object{"index": index, "content_block": start})
		for _, d := range deltas {
			say("content_block_delta", object{"index": index, "delta": d})
		}
		say("content_block_stop", object{"index": index})
		index++
	}
	pieces := func(kind, field, text string) (ds []object) {
		for _, p := range scripted.Pieces(text, s.Chunk) {
			ds = append(ds, object{"type": kind, field: p})
		}
		return ds
	}
	say("message_start", object{"message": envelope(s, []object{}, nil, usageOf(s.Usage, min(1, s.Usage.Output)))})
	if s.Thinking != "" {
		part(object{"type": "thinking", "thinking": "", "signature": ""},
			append(pieces("thinking_delta", "thinking", s.Thinking), object{"type": "signature_delta", "signature": "c2NyaXB0"}))
	}
	say("ping", object{})
	if s.Text != "" {
		part(object{"type": "text", "text": ""}, pieces("text_delta", "text", s.Text))
	}
	for i, t := range s.Tools {
		part(object{"type": "tool_use", "id": toolID(s, i), "name": t.Name, "input": object{}},
			pieces("input_json_delta", "partial_json", input(t)))
	}
	say("message_delta", object{
		"delta": object{"stop_reason": stopReason(s), "stop_sequence": nil}, "usage": usageOf(s.Usage, s.Usage.Output),
	})
	say("message_stop", object{})
	return out
}

// Counted implements scripted.Voice.
func (Dialect) Counted(tokens int64) []byte { return dialect.JSON(object{"input_tokens": tokens}) }

// Listed implements dialect.Dialect.
func (Dialect) Listed(names []string) []byte {
	data := []object{}
	for _, n := range names {
		data = append(data, object{"type": "model", "id": n, "display_name": n, "created_at": "1970-01-01T00:00:00Z"})
	}
	first, last := any(nil), any(nil)
	if len(names) > 0 {
		first, last = names[0], names[len(names)-1]
	}
	return dialect.JSON(object{"data": data, "has_more": false, "first_id": first, "last_id": last})
}
