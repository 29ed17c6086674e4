package chat

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
)

// anthropic speaks Anthropic's Messages API.
type anthropic struct{}

// anthropicVersion is the only version of the API.
const anthropicVersion = "2023-06-01"

func (anthropic) path(string) string { return "/v1/messages" }

func (anthropic) authorize(h http.Header, token string) {
	h.Set("X-Api-Key", token)
	h.Set("Anthropic-Version", anthropicVersion)
}

func (anthropic) request(name string, r Request) map[string]any {
	limit := r.MaxTokens
	if limit <= 0 {
		limit = DefaultMaxTokens
	}
	var messages []object
	for i := range r.Messages {
		// The provider caches what precedes a mark. Two marks are enough: this
		// request reads the cache that the last one wrote, and writes the cache
		// for the next one.
		messages = append(messages, anthropicMessage(&r.Messages[i], i >= len(r.Messages)-3))
	}
	q := object{"model": name, "max_tokens": limit, "messages": messages}
	if r.System != "" {
		q["system"] = r.System
	}
	if len(r.Tools) > 0 {
		q["tools"] = r.tools(func(t Tool) object {
			return object{"name": t.Name, "description": t.Description, "input_schema": t.Parameters}
		})
	}
	if r.Effort != "" {
		q["output_config"] = object{"effort": r.Effort}
	}
	r.sampling(q, "max_tokens", "top_p")
	return q
}

// format implements dialect.
func (anthropic) format(request object, s *schema) {
	member(request, "output_config")["format"] = object{"type": "json_schema", "schema": s.sent}
}

func anthropicMessage(m *Message, recent bool) object {
	var blocks []object
	for _, r := range m.Results {
		var content any = r.Text
		if len(r.Images) > 0 {
			parts := anthropicImages(r.Images)
			if r.Text != "" { // the API refuses an empty block
				parts = append([]object{{"type": "text", "text": r.Text}}, parts...)
			}
			content = parts
		}
		b := object{"type": "tool_result", "tool_use_id": r.CallID, "content": content}
		if r.Failed {
			b["is_error"] = true
		}
		blocks = append(blocks, b)
	}
	blocks = append(blocks, anthropicImages(m.Images)...)
	if m.Text != "" {
		blocks = append(blocks, object{"type": "text", "text": m.Text})
	}
	for _, c := range m.Calls {
		input := c.Arguments
		if !json.Valid(input) {
			input = json.RawMessage("{}")
		}
		blocks = append(blocks, object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": input})
	}
	if recent && m.Role == User {
		blocks[len(blocks)-1]["cache_control"] = object{"type": "ephemeral"}
	}
	return object{"role": string(m.Role), "content": blocks}
}

func anthropicImages(images []Image) (blocks []object) {
	for _, p := range images {
		blocks = append(blocks, object{"type": "image", "source": object{
			"type": "base64", "media_type": p.MediaType, "data": base64.StdEncoding.EncodeToString(p.Data),
		}})
	}
	return blocks
}
