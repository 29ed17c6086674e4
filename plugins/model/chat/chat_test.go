package chat

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/model"
)

// conversation has one of everything.
func conversation() Request {
	warm := 0.5
	return Request{
		System: "Be brief.", Effort: "low", MaxTokens: 99, Temperature: &warm, TopP: &warm,
		Tools: []Tool{{Name: "add", Description: "Adds.", Parameters: json.RawMessage(`{"type":"object"}`)}},
		Messages: []Message{
			{Role: User, Text: "Look.", Images: []Image{{MediaType: "image/png", Data: []byte("png"), Detail: "low"}}},
			{Role: Assistant, Text: "I add.", Calls: []Call{{ID: "c1", Name: "add", Arguments: json.RawMessage(`{"a":1}`), Signature: "s1"}}},
			{Role: User, Results: []Result{{CallID: "c1", Text: "2", Failed: true}}},
		},
	}
}

func TestRequestsAreWhatTheDialectsWant(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		d    dialect
		want string
	}{
		{"openai-chat", openaiChat{}, `{
			"model": "m", "reasoning_effort": "low", "max_completion_tokens": 99, "temperature": 0.5, "top_p": 0.5,
			"tools": [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}],
			"messages": [
				{"role": "system", "content": "Be brief."},
				{"role": "user", "content": [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n", "detail": "low"}}]},
				{"role": "assistant", "content": "I add.", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{\"a\":1}"}}]},
				{"role": "tool", "tool_call_id": "c1", "content": "2"}]}`},
		{"anthropic", anthropic{}, `{
			"model": "m", "output_config": {"effort": "low"}, "max_tokens": 99, "temperature": 0.5, "top_p": 0.5, "system": "Be brief.",
			"tools": [{"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}],
			"messages": [
				{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"}}, {"type": "text", "text": "Look.", "cache_control": {"type": "ephemeral"}}]},
				{"role": "assistant", "content": [{"type": "text", "text": "I add."}, {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}}]},
				{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "2", "is_error": true, "cache_control": {"type": "ephemeral"}}]}]}`},
		{"openai", openai{}, `{
			"model": "m", "store": false, "reasoning": {"effort": "low"}, "max_output_tokens": 99, "temperature": 0.5, "top_p": 0.5, "instructions": "Be brief.",
			"tools": [{"type": "function", "name": "add", "description": "Adds.", "parameters": {"type": "object"}}],
			"input": [
				{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look."}, {"type": "input_image", "image_url": "data:image/png;base64,cG5n", "detail": "low"}]},
				{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I add."}]},
				{"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{\"a\":1}"},
				{"type": "function_call_output", "call_id": "c1", "output": "2"}]}`},
		{"gemini", gemini{}, `{
			"generationConfig": {"thinkingConfig": {"thinkingLevel": "low"}, "maxOutputTokens": 99, "temperature": 0.5, "topP": 0.5},
			"systemInstruction": {"parts": [{"text": "Be brief."}]},
			"tools": [{"functionDeclarations": [{"name": "add", "description": "Adds.", "parametersJsonSchema": {"type": "object"}}]}],
			"contents": [
				{"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "cG5n"}}, {"text": "Look."}]},
				{"role": "model", "parts": [{"text": "I add."}, {"functionCall": {"id": "c1", "name": "add", "args": {"a": 1}}, "thoughtSignature": "s1"}]},
				{"role": "user", "parts": [{"functionResponse": {"id": "c1", "name": "add", "response": {"error": "2"}}}]}]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b, err := json.Marshal(tt.d.request("m", conversation()))
			if err != nil {
				t.Fatal(err)
			}
			var got, want any
			if err := errors.Join(json.Unmarshal(b, &got), json.Unmarshal([]byte(tt.want), &want)); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %s", b)
			}
		})
	}
}

func TestRepliesAreRead(t *testing.T) {
	t.Parallel()
	n := func(i int64) *int64 { return &i }
	for _, tt := range []struct {
		name string
		d    model.Dialect
		in   string
		want Reply
		err  bool
	}{
		{
			name: "chat", d: model.DialectOpenAIChat, in: `{"model": "m-1", "choices": [{"finish_reason": "length", "message": {"content": "Hi", "reasoning_content": "Hm",
			"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{"}}]}}],
			"usage": {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 5}, "completion_tokens_details": {"reasoning_tokens": 1}}}`,
			want: Reply{
				Text: "Hi", Thinking: "Hm", Stop: Length, Model: "m-1", Calls: []Call{{ID: "c", Name: "f", Arguments: json.RawMessage("{")}},
				Usage: Usage{Input: n(7), Output: n(3), Cached: n(5), Reasoning: n(1)},
			},
		},
		{
			name: "chat, parts and no usage", d: model.DialectOpenAIChat, in: `{"choices": [{"message": {"content": [{"type": "text", "text": "a"}, {"text": "b"}], "reasoning": "r"}}]}`,
			want: Reply{Text: "ab", Thinking: "r", Stop: Done},
		},
		{name: "chat, refused", d: model.DialectOpenAIChat, in: `{"choices": [{"message": {"content": null, "refusal": "No."}}]}`, want: Reply{Text: "No.", Stop: Refused}},
		{name: "chat, nothing", d: model.DialectOpenAIChat, in: `{"choices": []}`, err: true},
		{
			name: "anthropic", d: model.DialectAnthropic, in: `{"model": "m-1", "stop_reason": "max_tokens", "content": [{"type": "thinking", "thinking": "Hm"}, {"type": "text", "text": "Hi"},
			{"type": "tool_use", "id": "c", "name": "f", "input": {}}], "usage": {"input_tokens": 2, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 1, "output_tokens": 3}}`,
			want: Reply{
				Text: "Hi", Thinking: "Hm", Stop: Length, Model: "m-1", Calls: []Call{{ID: "c", Name: "f", Arguments: json.RawMessage("{}")}},
				Usage: Usage{Input: n(8), Output: n(3), Cached: n(5)},
			},
		},
		{name: "anthropic, refused", d: model.DialectAnthropic, in: `{"stop_reason": "refusal", "content": []}`, want: Reply{Stop: Refused}},
		{name: "anthropic, an error with status 200", d: model.DialectAnthropic, in: `{"type": "error"}`, err: true},
		{
			name: "openai", d: model.DialectOpenAI, in: `{"model": "m-1", "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "error": null, "output": [
			{"type": "reasoning", "summary": [{"text": "Hm"}]}, {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]},
			{"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{"}],
			"usage": {"input_tokens": 7, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 5}, "output_tokens_details": {"reasoning_tokens": 1}}}`,
			want: Reply{
				Text: "Hi", Thinking: "Hm", Stop: Length, Model: "m-1", Calls: []Call{{ID: "c", Name: "f", Arguments: json.RawMessage("{")}},
				Usage: Usage{Input: n(7), Output: n(3), Cached: n(5), Reasoning: n(1)},
			},
		},
		{name: "openai, refused", d: model.DialectOpenAI, in: `{"output": [{"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}]}`, want: Reply{Text: "No.", Stop: Refused}},
		{name: "openai, failed", d: model.DialectOpenAI, in: `{"status": "failed", "error": {"message": "no"}, "output": []}`, err: true},
		{
			name: "gemini", d: model.DialectGemini, in: `{"modelVersion": "m-1", "candidates": [{"finishReason": "MAX_TOKENS", "content": {"parts": [{"text": "Hm", "thought": true}, {"text": "Hi"},
			{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "s"}]}}],
			"usageMetadata": {"promptTokenCount": 7, "cachedContentTokenCount": 5, "candidatesTokenCount": 2, "thoughtsTokenCount": 1}}`,
			want: Reply{
				Text: "Hi", Thinking: "Hm", Stop: Length, Model: "m-1",
				Calls: []Call{{ID: "berth-call-f-0", Name: "f", Arguments: json.RawMessage("{}"), Signature: "s"}},
				Usage: Usage{Input: n(7), Output: n(3), Cached: n(5), Reasoning: n(1)},
			},
		},
		{name: "gemini, refused", d: model.DialectGemini, in: `{"candidates": [{"finishReason": "SAFETY"}]}`, want: Reply{Stop: Refused}},
		{name: "gemini, the prompt is refused", d: model.DialectGemini, in: `{"promptFeedback": {"blockReason": "SAFETY"}}`, want: Reply{Stop: Refused}},
		{name: "gemini, nothing", d: model.DialectGemini, in: `{}`, err: true},
		{name: "no JSON", d: model.DialectAnthropic, in: `<html>`, err: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, failed := read(tt.d, []byte(tt.in))
			got.last = "" // see TestWhatCountsAsAReplyOfASchema
			if (failed != nil) != tt.err || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, %+v; want %+v", got, failed, tt.want)
			}
		})
	}
}

func TestWhatARefusalMeans(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		status int
		header string
		body   string
		want   error
		again  bool
	}{
		{name: "rate", status: 429, body: `{"error": {"message": "slow down"}}`, again: true},
		{name: "overloaded", status: 529, again: true},
		{name: "the gateway says that it is final", status: 500, header: "false", want: ErrRefused},
		{name: "budget", status: 403, body: `{"error": {"message": "a budget is spent"}}`, want: ErrRefused},
		{name: "openai's context", status: 400, body: `{"error": {"code": "context_length_exceeded", "message": "This model's maximum context length is 8 tokens"}}`, want: ErrTooLong},
		{name: "anthropic's context", status: 400, header: "false", body: `{"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}`, want: ErrTooLong},
		{name: "gemini's context", status: 400, body: `{"error": {"code": 400, "message": "The input token count (9) exceeds the maximum number of tokens allowed (8)."}}`, want: ErrTooLong},
		{name: "responses' context", status: 400, body: `{"error": {"code": "context_length_exceeded", "message": "Your input exceeds the context window of this model."}}`, want: ErrTooLong},
		{name: "bad request", status: 400, body: `{"error": {"message": "no such role"}}`, want: ErrRefused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := refusal(&http.Response{StatusCode: tt.status, Header: http.Header{"X-Should-Retry": {tt.header}, "Retry-After": {"2"}}}, []byte(tt.body))
			if f.again != tt.again || tt.want != nil && !errors.Is(f.err, tt.want) {
				t.Errorf("got %+v, %v; want %v, again %v", f, f.err, tt.want, tt.again)
			}
			if tt.again && f.after != 2*time.Second {
				t.Errorf("after %v, want 2s", f.after)
			}
		})
	}
	if f := refusal(&http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"274579"}}}, nil); f.again || !errors.Is(f.err, agent.ErrModel) || !strings.Contains(f.err.Error(), "3 d 4 h") {
		t.Errorf("a wait for days is %+v", f)
	}
	if !errors.Is(ErrRefused, agent.ErrModel) || !errors.Is(ErrUnavailable, agent.ErrModel) {
		t.Error("what a model fails with is not the model's error")
	}
}

func TestDialSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]model.Endpoint{
		"this client speaks": {Host: "unix:/x", Dialect: "morse", Name: "g"},
		"has no address":     {Dialect: model.DialectAnthropic, Name: "a"},
		"not a JSON object":  {Host: "unix:/x", Dialect: model.DialectAnthropic, Parameters: json.RawMessage(`[1]`)},
	} {
		if _, err := Dial(e); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Dial(%+v): got %v; want an error with %q", e, err, want)
		}
	}
}

func TestAModelThatIsGoneIsUnavailableAfterAllTries(t *testing.T) {
	t.Parallel()
	c, err := Dial(model.Endpoint{Host: "unix:" + t.TempDir() + "/none", Dialect: model.DialectOpenAIChat, Name: "gone"})
	if err != nil {
		t.Fatal(err)
	}
	c.pause = time.Millisecond
	_, err = c.Ask(t.Context(), Request{})
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "6 tries") {
		t.Errorf("got %v; want ErrUnavailable after 6 tries", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the turn is over"))
	if _, err = c.Ask(ctx, Request{}); err == nil || !strings.Contains(err.Error(), "the turn is over") {
		t.Errorf("got %v; want why the context ended", err)
	}
}
