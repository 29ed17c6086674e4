package anthropic

import (
	"encoding/json"
	"strings"

	"github.com/berth-eval/berth/dialects/internal/wire"
	"github.com/berth-eval/berth/plugins/dialect"
)

// known are the members of a request that do not make the provider fetch or run
// anything.
var known = wire.Set(
	"model", "messages", "system", "max_tokens", "metadata", "stop_sequences", "stream", "temperature", "top_k", "top_p", "thinking",
	"tools", "tool_choice", "cache_control", "context_management", "output_config", "output_format", "service_tier", "speed",
	"inference_geo",
)

// kept are members that refer to data stored by the provider.
var kept = wire.Set("container")

// own are the prefixes of the types of tools that the client runs, or that
// search only the tools of the request.
var own = []string{"bash_", "text_editor_", "computer_", "browser_toolset_", "memory_", "tool_search_tool_"}

func hostedTool(raw json.RawMessage) (string, bool) {
	kind := wire.TypeOf(raw)
	if kind == "" || kind == "custom" {
		return kind, false
	}
	for _, o := range own {
		if strings.HasPrefix(kind, o) {
			return kind, false
		}
	}
	return kind, true
}

// Restrict implements dialect.Dialect.
func (Dialect) Restrict(_ dialect.Call, body *dialect.Object, allowed []string) (dropped []string, refused string) {
	s := &wire.Restriction{Allowed: allowed}
	s.Members(body, known, kept)
	s.Tools(body, hostedTool)
	contents(body, s)
	return s.Dropped, s.Refused
}

// contents checks the content of all messages.
func contents(body *dialect.Object, s *wire.Restriction) {
	content(body.Get("system"), s, 0)
	dialect.Each(body.Get("messages"), func(m json.RawMessage) {
		if b, ok := s.Block(m, "content"); ok {
			content(b.Get("content"), s, 0)
		}
	})
}

// plain are the types of blocks that contain text, or actions of the client.
var plain = wire.Set(
	"text", "thinking", "redacted_thinking", "tool_use", "tool_reference", "tool_search_tool_result", "compaction", "fallback",
)

// content checks blocks and their content.
func content(raw json.RawMessage, s *wire.Restriction, depth int) {
	if depth > wire.Depth {
		s.Refuse("content in content")
		return
	}
	dialect.Each(raw, func(block json.RawMessage) {
		b, ok := s.Block(block, "source", "content", "name")
		if !ok {
			return
		}
		switch {
		case plain[b.Type]:
		case b.Type == "tool_result" || b.Type == "search_result" || b.Type == "mid_conv_system":
			content(b.Get("content"), s, depth+1)
		case b.Type == "image" || b.Type == "document":
			source(b.Type, b.Get("source"), s, depth)
		case b.Type == "server_tool_use" && strings.HasPrefix(string(b.Get("name")), `"tool_search_tool_`):
		default:
			s.Refuse(b.Type)
		}
	})
}

// source checks the source of an image or a document.
func source(of string, raw json.RawMessage, s *wire.Restriction, depth int) {
	b, ok := s.Block(raw, "content", "url", "file_id", "media_type", "data")
	switch {
	case !ok:
	case b.Type == "content":
		content(b.Get("content"), s, depth+1)
	case b.Type != "base64" && b.Type != "text", b.Get("url") != nil, b.Get("file_id") != nil:
		s.Refuse(of + "." + b.Type)
	case b.Type == "base64":
		s.Media.Base64(wire.Text(b.Get("media_type")), b.Get("data"))
	}
}
