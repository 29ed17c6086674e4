package chat

import (
	"encoding/json"
	"fmt"
	"net/http"
)

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
		var tools []object
		for _, t := range r.Tools {
			tools = append(tools, object{"type": "function", "name": t.Name, "description": t.Description, "parameters": t.Parameters})
		}
		q["tools"] = tools
	}
	if r.Effort != "" {
		q["reasoning"] = object{"effort": r.Effort}
	}
	if r.MaxTokens > 0 {
		q["max_output_tokens"] = r.MaxTokens
	}
	if r.Temperature != nil {
		q["temperature"] = *r.Temperature
	}
	if r.TopP != nil {
		q["top_p"] = *r.TopP
	}
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
	parts := openaiParts(kind, m.Text, m.Images)
	if parts == nil && len(m.Results)+len(m.Calls) == 0 {
		parts = []object{{"type": kind, "text": ""}}
	}
	if parts != nil {
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

// openaiAnswer is a reply in the provider's format.
type openaiAnswer struct {
	Model, Status string
	Incomplete    struct{ Reason string } `json:"incomplete_details"`
	Error         *struct{ Message string }
	Output        []openaiOutput
	Usage         *struct {
		Input   *int64 `json:"input_tokens"`
		Output  *int64 `json:"output_tokens"`
		Details struct {
			Cached *int64 `json:"cached_tokens"`
		} `json:"input_tokens_details"`
		OutputDetails struct {
			Reasoning *int64 `json:"reasoning_tokens"`
		} `json:"output_tokens_details"`
	}
}

type openaiOutput struct {
	Type, Name, Arguments string
	CallID                string `json:"call_id"`
	Content               []struct{ Type, Text, Refusal string }
	Summary               []struct{ Text string }
}

func (openai) reply(body []byte) (Reply, error) {
	var a openaiAnswer
	if err := json.Unmarshal(body, &a); err != nil {
		return Reply{}, err
	}
	switch {
	case a.Error != nil:
		return Reply{}, fmt.Errorf("the provider failed: %s", a.Error.Message)
	case a.Output == nil:
		return Reply{}, errNothing
	}
	r := Reply{Stop: Done, Model: a.Model}
	for i := range a.Output {
		a.Output[i].into(&r)
	}
	if a.Status == "incomplete" {
		r.Stop = Length
		if a.Incomplete.Reason == "content_filter" {
			r.Stop = Refused
		}
	}
	if u := a.Usage; u != nil {
		r.Usage = Usage{Input: u.Input, Output: u.Output, Cached: u.Details.Cached, Reasoning: u.OutputDetails.Reasoning}
	}
	return r, nil
}

// into adds an item of the output to a reply.
func (o *openaiOutput) into(r *Reply) {
	switch o.Type {
	case "reasoning":
		for _, s := range o.Summary {
			r.Thinking += s.Text
		}
	case "function_call":
		r.Calls = append(r.Calls, Call{ID: o.CallID, Name: o.Name, Arguments: json.RawMessage(o.Arguments)})
	case "message":
		r.last = ""
		for _, c := range o.Content {
			r.Text += c.Text
			r.last += c.Text
			if c.Type == "refusal" {
				r.Stop = Refused
				r.Text += c.Refusal
			}
		}
	}
}
