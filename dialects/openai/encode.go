package openai

import (
	"fmt"
	"maps"

	"github.com/berth-eval/berth/dialects/internal/wire"
	"github.com/berth-eval/berth/dialects/scripted"
	"github.com/berth-eval/berth/plugins/dialect"
)

var _ scripted.Voice = Dialect{}

type object map[string]any

func usageOf(u dialect.Usage) object {
	return object{
		"input_tokens": u.Input, "input_tokens_details": object{"cached_tokens": u.Cached, "cache_write_tokens": u.CacheWrite},
		"output_tokens": u.Output, "output_tokens_details": object{"reasoning_tokens": u.Reasoning},
		"total_tokens": u.Input + u.Output,
	}
}

// items returns the output items of a reply, and the part of each item that a
// stream sends in pieces.
func items(s scripted.Speech) (all []object, texts []string) {
	add := func(o object, text string) { all, texts = append(all, o), append(texts, text) }
	if s.Thinking != "" {
		add(object{
			"type": "reasoning", "id": "rs_" + s.ID, "summary": []object{{"type": "summary_text", "text": s.Thinking}},
		}, "")
	}
	if s.Text != "" || len(s.Tools) == 0 {
		kind, field := "output_text", "text"
		if s.Stop == scripted.StopRefused {
			kind, field = "refusal", "refusal"
		}
		part := object{"type": kind, field: s.Text}
		if kind == "output_text" {
			part["annotations"], part["logprobs"] = []object{}, []object{}
		}
		add(object{
			"type": "message", "id": "msg_" + s.ID, "role": "assistant", "status": "completed", "content": []object{part},
		}, s.Text)
	}
	for i, t := range s.Tools {
		id := fmt.Sprintf("%s_%d", s.ID, i)
		if t.Custom {
			add(object{
				"type": "custom_tool_call", "id": "ctc_" + id, "call_id": "call_" + id, "name": t.Name, "input": t.ArgumentText(),
				"status": "completed",
			}, t.ArgumentText())
			continue
		}
		add(object{
			"type": "function_call", "id": "fc_" + id, "call_id": "call_" + id, "name": t.Name, "arguments": t.ArgumentText(),
			"status": "completed",
		}, t.ArgumentText())
	}
	return all, texts
}

func response(s scripted.Speech, status string, output []object, usage any) object {
	incomplete := any(nil)
	if status == "incomplete" {
		incomplete = object{"reason": "max_output_tokens"}
	}
	return object{
		"id": "resp_" + s.ID, "object": "response", "created_at": 0, "model": s.Model, "status": status, "output": output,
		"error": nil, "incomplete_details": incomplete, "usage": usage, "instructions": nil, "metadata": object{},
		"parallel_tool_calls": true, "temperature": 1, "top_p": 1, "tool_choice": "auto", "tools": []object{},
	}
}

func status(s scripted.Speech) string {
	if s.Stop == scripted.StopLength {
		return "incomplete"
	}
	return "completed"
}

// Whole implements scripted.Voice.
func (Dialect) Whole(s scripted.Speech) []byte {
	all, _ := items(s)
	return dialect.JSON(response(s, status(s), all, usageOf(s.Usage)))
}

// stream collects numbered events.
type stream struct {
	out [][]byte
}

func (st *stream) say(name string, o object) {
	o["type"], o["sequence_number"] = name, len(st.out)
	st.out = append(st.out, wire.SSE(name, o))
}

// with returns a copy of o with other values for some members.
func (o object) with(over object) object {
	c := object{}
	maps.Copy(c, o)
	maps.Copy(c, over)
	return c
}

// Stream implements scripted.Voice.
func (Dialect) Stream(s scripted.Speech) [][]byte {
	st := &stream{}
	all, texts := items(s)
	st.say("response.created", object{"response": response(s, "in_progress", []object{}, nil)})
	st.say("response.in_progress", object{"response": response(s, "in_progress", []object{}, nil)})
	for i, it := range all {
		at := object{"output_index": i, "item_id": it["id"]}
		pieces := scripted.Pieces(texts[i], s.Chunk)
		switch it["type"] {
		case "message":
			st.message(it, at, pieces)
		case "function_call":
			st.call(it, at, pieces, "response.function_call_arguments", "arguments")
		case "custom_tool_call":
			st.call(it, at, pieces, "response.custom_tool_call_input", "input")
		default:
			st.say("response.output_item.added", object{"output_index": i, "item": it})
		}
		st.say("response.output_item.done", object{"output_index": i, "item": it})
	}
	name := "response." + status(s)
	st.say(name, object{"response": response(s, status(s), all, usageOf(s.Usage))})
	return st.out
}

func (st *stream) message(it, at object, pieces []string) {
	st.say("response.output_item.added", object{
		"output_index": at["output_index"], "item": it.with(object{"status": "in_progress", "content": []object{}}),
	})
	parts, ok := it["content"].([]object)
	if !ok {
		return
	}
	part := parts[0]
	field, name := "text", "response.output_text"
	if part["type"] == "refusal" {
		field, name = "refusal", "response.refusal"
	}
	at = at.with(object{"content_index": 0})
	st.say("response.content_part.added", at.with(object{"part": part.with(object{field: ""})}))
	for _, p := range pieces {
		st.say(name+".delta", at.with(object{"delta": p, "logprobs": []object{}}))
	}
	st.say(name+".done", at.with(object{field: part[field], "logprobs": []object{}}))
	st.say("response.content_part.done", at.with(object{"part": part}))
}

func (st *stream) call(it, at object, pieces []string, name, field string) {
	st.say("response.output_item.added", object{
		"output_index": at["output_index"], "item": it.with(object{"status": "in_progress", field: ""}),
	})
	for _, p := range pieces {
		st.say(name+".delta", at.with(object{"delta": p}))
	}
	st.say(name+".done", at.with(object{field: it[field], "name": it["name"]}))
}

// Counted implements scripted.Voice.
func (Dialect) Counted(tokens int64) []byte {
	return dialect.JSON(object{"object": "response.input_tokens", "input_tokens": tokens})
}

// Listed implements dialect.Dialect.
func (Dialect) Listed(names []string) []byte {
	data := []object{}
	for _, n := range names {
		data = append(data, object{"id": n, "object": "model", "created": 0, "owned_by": "gateway"})
	}
	return dialect.JSON(object{"object": "list", "data": data})
}
