package openaichat

import (
	"encoding/json"

	"github.com/berth-eval/berth/dialects/internal/wire"
	"github.com/berth-eval/berth/plugins/dialect"
)

// known are the members of a request that do not make the provider fetch or run
// anything: those of the API, and those with which other servers set sampling,
// templates and limits.
var known = wire.Set(
	"model", "messages", "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "max_tokens", "max_completion_tokens",
	"temperature", "top_p", "n", "stop", "stream", "stream_options", "seed", "logprobs", "top_logprobs", "logit_bias", "frequency_penalty",
	"presence_penalty", "response_format", "reasoning_effort", "verbosity", "prediction", "modalities", "audio", "store", "metadata",
	"service_tier", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options",

	"top_k", "top_a", "min_p", "typical_p", "tfs_z", "repetition_penalty", "repeat_penalty", "length_penalty", "best_of", "use_beam_search",
	"min_tokens", "ignore_eos", "stop_token_ids", "bad_words", "include_stop_str_in_output", "skip_special_tokens",
	"spaces_between_special_tokens", "truncate_prompt_tokens", "prompt_logprobs", "guided_json", "guided_regex", "guided_choice",
	"guided_grammar", "guided_whitespace_pattern", "structured_outputs", "grammar", "json_schema", "regex", "ebnf", "echo",
	"add_generation_prompt", "continue_final_message", "add_special_tokens", "chat_template_kwargs", "separate_reasoning", "priority",
	"request_id", "return_token_ids", "return_tokens_as_token_ids", "cache_prompt", "cache_salt", "num_ctx", "keep_alive", "think", "options",
	"mirostat", "mirostat_tau", "mirostat_eta", "dynatemp_range", "dynatemp_exponent", "do_sample", "random_seed", "safe_prompt",
	"reasoning", "include_reasoning", "reasoning_format", "reasoning_split", "reasoning_budget", "thinking", "thinking_budget",
	"enable_thinking", "thinking_config", "tool_stream", "usage", "prompt_mode", "preserve_thinking", "cache_control",
)

func hostedTool(raw json.RawMessage) (string, bool) {
	kind := wire.TypeOf(raw)
	if kind != "" {
		return kind, kind != "function" && kind != "custom"
	}
	name, hosted := "", false // servers that accept a tool without a type may recognise it by its members
	dialect.Fields(raw, func(member string, _ json.RawMessage) {
		if !ofTool[member] && !hosted {
			name, hosted = member, true
		}
	})
	return name, hosted
}

// ofTool are the members of a tool that the client runs.
var ofTool = wire.Set("type", "function", "custom", "name", "description", "parameters", "strict", "cache_control", "defer_loading", "format")

// Restrict implements dialect.Dialect.
func (Dialect) Restrict(_ dialect.Call, body *dialect.Object, allowed []string) (dropped []string, refused string) {
	s := &wire.Restriction{Allowed: allowed}
	s.Members(body, known, nil)
	s.Tools(body, hostedTool)
	contents(body, s)
	return s.Dropped, s.Refused
}

// contents checks the content of all messages.
func contents(body *dialect.Object, s *wire.Restriction) {
	dialect.Each(body.Get("messages"), func(m json.RawMessage) {
		if b, ok := s.Block(m, "content", "audio"); ok {
			dialect.Each(b.Get("content"), func(p json.RawMessage) { part(p, s) })
			s.Media.Audio = s.Media.Audio || b.Get("audio") != nil // of an earlier answer
		}
	})
}

// text are the types of parts that contain text or bytes.
var text = wire.Set("", "text", "refusal", "thinking", "reasoning", "input_text", "output_text", "input_audio")

// media are the types of parts that name a file, either in a member with the
// same name or directly.
var media = wire.Set("image_url", "video_url", "audio_url", "input_image", "file", "input_file")

// part checks a part of a message.
func part(raw json.RawMessage, s *wire.Restriction) {
	names := []string{"image_url", "video_url", "audio_url", "file", "file_id", "file_url", "input_audio"}
	b, ok := s.Block(raw, names...)
	if !ok {
		return
	}
	if !text[b.Type] && !media[b.Type] {
		s.Refuse(b.Type)
		return
	}
	for _, name := range names {
		v := b.Get(name)
		switch {
		case v == nil:
		case name == "file_id" || name == "file_url":
			s.Refuse(b.Type + "." + name)
		case name == "input_audio":
			s.Media.Sound(v)
		case v[0] != '{':
			s.Inline(name, v)
		default:
			in, _ := s.Block(v, "url", "file_data", "file_id", "file_url")
			s.Inline(name, in.Get("url"))
			s.Inline(name+".file_data", in.Get("file_data"))
			for _, n := range []string{"file_id", "file_url"} {
				if in.Get(n) != nil {
					s.Refuse(name + "." + n)
				}
			}
		}
	}
}
