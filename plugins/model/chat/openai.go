package chat

import "net/http"

// openai speaks OpenAI's Responses API.
type openai struct{}

func (openai) path(string) string { return "/v1/responses" }

func (openai) authorize(h http.Header, token string) { h.Set("Authorization", "Bearer "+token) }

func (openai) request(name string, r Request) map[string]any {
	input := []object{}
	for i := range r.Messages {
		input = append(input, openaiItems(&r.Messages[i])...)
	}
	// The provider stores nothing: each request contains the whole
	// conversation.
	q := object{"model": name, "input": input, "store": false}
	if r.System != "" {
		q["instructions"] = r.System
	}
	if len(r.Tools) > 0 {
		q["tools"] = r.tools(func(t Tool) object {
			return object{"type": "function", "name": t.Name, "description": t.Description, "parameters": t.Parameters}
		})
	}
	if r.Effort != "" {
		q["reasoning"] = object{"effort": r.Effort}
	}
	r.sampling(q, "max_output_tokens", "top_p")
	return q
}

// format implements dialect. The provider holds a model to a schema in which some
// member is not required only as well as it can.
func (openai) format(request object, s *schema) {
	member(request, "text")["format"] = object{"type": "json_schema", "name": "reply", "schema": s.sent, "strict": s.strict}
}

// openaiItems converts one message to items of the input. Results and calls are
// separate items.
func openaiItems(m *Message) (out []object) {
	for _, r := range m.Results {
		var output any = r.Text
		if len(r.Images) > 0 {
			output = openaiParts("input_text", r.Text, r.Images)
		}
		out = append(out, object{"type": "function_call_output", "call_id": r.CallID, "output": output})
	}
	kind := map[Role]string{User: "input_text", Assistant: "output_text"}[m.Role]
	if parts := openaiParts(kind, m.Text, m.Images); parts != nil {
		out = append(out, object{"type": "message", "role": string(m.Role), "content": parts})
	}
	for _, c := range m.Calls {
		out = append(out, object{"type": "function_call", "call_id": c.ID, "name": c.Name, "arguments": string(c.Arguments)})
	}
	return out
}

// openaiParts returns a text, which has that type, and pictures; nil if there is
// neither.
func openaiParts(kind, text string, images []Image) (parts []object) {
	if text != "" {
		parts = append(parts, object{"type": kind, "text": text})
	}
	for i := range images {
		parts = append(parts, images[i].detailed(object{"type": "input_image", "image_url": images[i].url()}))
	}
	return parts
}
