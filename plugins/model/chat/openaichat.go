package chat

import (
	"fmt"
	"net/http"
)

// openaiChat speaks OpenAI's Chat Completions API, which most servers support.
type openaiChat struct{}

type object = map[string]any

func (openaiChat) path(string) string { return "/v1/chat/completions" }

func (openaiChat) authorize(h http.Header, token string) { h.Set("Authorization", "Bearer "+token) }

func (openaiChat) request(name string, r Request) map[string]any {
	var messages []object
	if r.System != "" {
		messages = append(messages, object{"role": "system", "content": r.System})
	}
	for i := range r.Messages {
		messages = append(messages, openaiMessages(&r.Messages[i])...)
	}
	q := object{"model": name, "messages": messages}
	if len(r.Tools) > 0 {
		q["tools"] = r.tools(func(t Tool) object {
			return object{"type": "function", "function": object{"name": t.Name, "description": t.Description, "parameters": t.Parameters}}
		})
	}
	if r.Effort != "" {
		q["reasoning_effort"] = r.Effort
	}
	r.sampling(q, "max_completion_tokens", "top_p")
	return q
}

// format implements dialect.
func (openaiChat) format(request object, s *schema) {
	request["response_format"] = object{"type": "json_schema", "json_schema": object{"name": "reply", "schema": s.sent, "strict": s.strict}}
}

// openaiMessages converts one message. Results become separate messages, before
// the rest of the user's message. They are text, so their pictures follow in the
// user's message.
func openaiMessages(m *Message) (out []object) {
	var parts []object
	for _, r := range m.Results {
		out = append(out, object{"role": "tool", "tool_call_id": r.CallID, "content": r.Text})
		if len(r.Images) > 0 {
			parts = append(parts, object{"type": "text", "text": fmt.Sprintf("Pictures in the result of the tool call %s:", r.CallID)})
		}
		parts = append(parts, chatImages(r.Images)...)
	}
	switch {
	case m.Role == Assistant:
		said := object{"role": "assistant", "content": m.Text}
		var calls []object
		for _, c := range m.Calls {
			calls = append(calls, object{"id": c.ID, "type": "function", "function": object{"name": c.Name, "arguments": string(c.Arguments)}})
		}
		if calls != nil {
			said["tool_calls"] = calls
		}
		return append(out, said)
	case len(m.Images)+len(parts) > 0:
		if m.Text != "" {
			parts = append(parts, object{"type": "text", "text": m.Text})
		}
		return append(out, object{"role": "user", "content": append(parts, chatImages(m.Images)...)})
	case m.Text != "":
		return append(out, object{"role": "user", "content": m.Text})
	}
	return out
}

func chatImages(images []Image) (parts []object) {
	for i := range images {
		parts = append(parts, object{"type": "image_url", "image_url": images[i].detailed(object{"url": images[i].url()})})
	}
	return parts
}
