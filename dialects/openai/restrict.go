package openai

import (
	"encoding/json"

	"github.com/berth-eval/berth/dialects/internal/wire"
	"github.com/berth-eval/berth/plugins/dialect"
)

// known are the members of a request that do not make the provider fetch or run
// anything.
var known = wire.Set(
	"model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "max_tool_calls", "max_output_tokens", "temperature",
	"top_p", "top_logprobs", "reasoning", "text", "include", "store", "stream", "stream_options", "truncation", "context_management",
	"service_tier", "metadata", "client_metadata", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
	"prompt_cache_options",
)

// kept are members that refer to data stored by the provider: a conversation,
// or a prompt with its own tools.
var kept = wire.Set("previous_response_id", "conversation", "prompt")

// own are the types of tools that the client runs.
var own = wire.Set(
	"", "function", "custom", "tool_search", "local_shell", "apply_patch", "computer", "computer_use_preview",
)

func hostedTool(raw json.RawMessage) (string, bool) {
	kind := wire.TypeOf(raw)
	outside, hosted := kind, false
	dialect.Fields(raw, func(name string, v json.RawMessage) {
		switch {
		case kind == "shell" && name == "environment" && string(v) != "null":
			hosted = hosted || wire.TypeOf(v) != "local"
		case kind == "namespace" && name == "tools": // its tools are functions
			dialect.Each(v, func(t json.RawMessage) {
				if k := wire.TypeOf(t); !hosted && !own[k] {
					outside, hosted = k, true
				}
			})
		}
	})
	return outside, hosted || !own[kind] && kind != "shell" && kind != "namespace"
}

// Restrict implements dialect.Dialect.
func (Dialect) Restrict(_ dialect.Call, body *dialect.Object, allowed []string) (dropped []string, refused string) {
	s := &wire.Restriction{Allowed: allowed}
	s.Members(body, known, kept)
	s.Tools(body, hostedTool)
	for _, name := range []string{"instructions", "input"} {
		if raw := body.Get(name); raw != nil {
			if left := wire.Map(raw, func(i json.RawMessage) json.RawMessage { return sealed(i, s) }); len(left) != len(raw) {
				body.Set(name, left)
			}
		}
	}
	return s.Dropped, s.Refused
}

// plain are the types of items without content: output or tool calls of the
// model, and text results.
var plain = wire.Set(
	"function_call", "custom_tool_call", "local_shell_call", "local_shell_call_output", "shell_call_output", "apply_patch_call",
	"apply_patch_call_output", "computer_call", "tool_search_call", "reasoning", "compaction", "compaction_summary", "compaction_trigger",
)

// sealed checks one item of the conversation and removes tools that the
// provider would run; nil if nothing is left.
func sealed(raw json.RawMessage, s *wire.Restriction) json.RawMessage {
	b, ok := s.Block(raw, "role", "content", "output", "tools", "environment")
	switch {
	case !ok, plain[b.Type]:
	case b.Type == "message", b.Type == "" && b.Get("role") != nil, b.Type == "agent_message":
		parts(b.Get("content"), s)
	case b.Type == "function_call_output" || b.Type == "custom_tool_call_output" || b.Type == "computer_call_output":
		parts(b.Get("output"), s)
	case b.Type == "additional_tools" || b.Type == "tool_search_output":
		return without(raw, s)
	case b.Type == "shell_call" && (b.Get("environment") == nil || wire.TypeOf(b.Get("environment")) == "local"):
	case b.Type == "": // an item with only an id is a reference
		s.Refuse("item_reference")
	default:
		s.Refuse(b.Type)
	}
	return raw
}

// without returns an item without the tools that the provider would run.
func without(raw json.RawMessage, s *wire.Restriction) json.RawMessage {
	o, err := dialect.ParseObject(raw)
	if err != nil {
		return raw
	}
	tools := wire.Map(o.Get("tools"), func(t json.RawMessage) json.RawMessage {
		if name, ok := hostedTool(t); ok && s.Drop(name) {
			return nil
		}
		return t
	})
	switch {
	case len(tools) == len(o.Get("tools")):
		return raw
	case string(tools) == "[]" && len(o.Get("tools")) > 2 && wire.TypeOf(raw) == "additional_tools":
		return nil
	}
	o.Set("tools", tools)
	return o.Bytes()
}

// text are the types of parts that contain text or bytes.
var text = wire.Set(
	"input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text", "input_audio", "encrypted_content",
)

// parts checks the content of a message or of an output.
func parts(raw json.RawMessage, s *wire.Restriction) {
	dialect.Each(raw, func(part json.RawMessage) {
		b, ok := s.Block(part, "image_url", "file_url", "file_id", "file_data", "input_audio")
		switch {
		case !ok:
		case b.Type == "input_audio":
			s.Media.Sound(b.Get("input_audio"))
		case text[b.Type]:
		case b.Type != "input_image" && b.Type != "input_file" && b.Type != "computer_screenshot":
			s.Refuse(b.Type)
		default:
			s.Inline(b.Type+".image_url", b.Get("image_url"))
			s.Inline(b.Type+".file_data", b.Get("file_data"))
			for _, name := range []string{"file_url", "file_id"} {
				if b.Get(name) != nil {
					s.Refuse(b.Type + "." + name)
				}
			}
		}
	})
}
