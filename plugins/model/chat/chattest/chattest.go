// Package chattest is a model for tests. It answers with the results of a
// function, over a real Unix socket, in the dialects of package chat.
//
// It must not be used outside tests, and checks nothing.
package chattest

import (
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/model/chat"
)

// Token is the token that requests must carry.
const Token = "berth-test-token"

// Question is a request that the model received.
type Question struct {
	Number int             // from 1
	Body   json.RawMessage // as it was sent
	Last   string          // text of the last message
	Turns  int             // replies of the model that the request contains
	Header http.Header
}

// Answer is the model's answer to a question.
type Answer struct {
	Text     string
	Thinking string
	Calls    []chat.Call
	Stop     chat.Stop
	Usage    *[2]int64 // tokens of input and of output; if nil, bytes of the body and of the text
	Status   int       // 0 is 200
	Header   http.Header
	Body     string // instead of everything above
}

// Server is a model.
type Server struct {
	Endpoint model.Endpoint

	mu        sync.Mutex
	questions []Question
}

// Serve starts a model that runs until t ends. It calls answer for one question
// at a time.
func Serve(t testing.TB, d model.Dialect, answer func(Question) Answer) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "chat") // short: it is part of a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var lc net.ListenConfig
	path := filepath.Join(dir, "s")
	l, err := lc.Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Endpoint: model.Endpoint{Host: "unix:" + path, Token: Token, Dialect: d, Name: "test-model"}}
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, answer) }))
	_ = h.Listener.Close()
	h.Listener = l
	h.Start()
	t.Cleanup(h.Close)
	return s
}

// Script answers with one text after the other, by the number of replies in the
// question. It repeats the last one.
func Script(texts ...string) func(Question) Answer {
	return func(q Question) Answer { return Answer{Text: texts[min(q.Turns, len(texts)-1)]} }
}

// Questions returns the questions that were asked so far.
func (s *Server) Questions() []Question {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Question(nil), s.questions...)
}

// entry is a message, or the equivalent in a dialect.
type entry struct {
	Role           string
	Type           string
	Content, Parts json.RawMessage
	Output         string
}

// asked reads a request. A reply of the model may be several entries in a row.
func asked(body []byte) Question {
	var r struct{ Messages, Input, Contents []entry }
	_ = json.Unmarshal(body, &r) // a body that cannot be read has no messages
	q := Question{Body: body}
	before := false
	for _, m := range append(append(r.Messages, r.Input...), r.Contents...) {
		model := m.Role == "assistant" || m.Role == "model" || m.Type == "function_call"
		if model && !before {
			q.Turns++
		}
		before = model
		q.Last = text(m.Content) + text(m.Parts) + m.Output
	}
	return q
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, answer func(Question) Answer) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") + r.Header.Get("X-Api-Key") + r.Header.Get("X-Goog-Api-Key"); key != Token {
		http.Error(w, `{"error": {"message": "wrong token"}}`, http.StatusUnauthorized)
		return
	}
	question := asked(body)
	question.Header = r.Header
	s.mu.Lock()
	defer s.mu.Unlock()
	question.Number = len(s.questions) + 1
	s.questions = append(s.questions, question)
	a := answer(question)
	maps.Copy(w.Header(), a.Header)
	w.Header().Set("Content-Type", "application/json")
	if a.Status != 0 {
		w.WriteHeader(a.Status)
	}
	if a.Body != "" {
		_, _ = io.WriteString(w, a.Body)
		return
	}
	if a.Usage == nil {
		a.Usage = &[2]int64{int64(len(body)/4 + 1), int64(len(a.Text)/4 + 1)}
	}
	_ = json.NewEncoder(w).Encode(a.as(r.URL.Path))
}

type object = map[string]any

// as returns the answer in the dialect that belongs to the path.
func (a Answer) as(path string) object {
	switch {
	case strings.HasSuffix(path, "/messages"):
		return a.anthropic()
	case strings.HasSuffix(path, "/responses"):
		return a.openai()
	case strings.HasSuffix(path, ":generateContent"):
		return a.gemini()
	default:
		return a.openaiChat()
	}
}

func (a Answer) openai() object {
	output := []object{}
	if a.Thinking != "" {
		output = append(output, object{"type": "reasoning", "summary": []object{{"type": "summary_text", "text": a.Thinking}}})
	}
	output = append(output, object{"type": "message", "role": "assistant", "content": []object{{"type": "output_text", "text": a.Text}}})
	for _, c := range a.Calls {
		output = append(output, object{"type": "function_call", "call_id": c.ID, "name": c.Name, "arguments": string(c.Arguments)})
	}
	o := object{
		"model": "test-model-1", "status": "completed", "output": output,
		"usage": object{"input_tokens": a.Usage[0], "output_tokens": a.Usage[1]},
	}
	if reason := map[chat.Stop]string{chat.Length: "max_output_tokens", chat.Refused: "content_filter"}[a.Stop]; reason != "" {
		o["status"], o["incomplete_details"] = "incomplete", object{"reason": reason}
	}
	return o
}

func (a Answer) gemini() object {
	parts := []object{}
	if a.Thinking != "" {
		parts = append(parts, object{"text": a.Thinking, "thought": true})
	}
	parts = append(parts, object{"text": a.Text})
	for _, c := range a.Calls {
		parts = append(parts, object{"functionCall": object{"id": c.ID, "name": c.Name, "args": c.Arguments}})
	}
	finish := map[chat.Stop]string{"": "STOP", chat.Done: "STOP", chat.Length: "MAX_TOKENS", chat.Refused: "SAFETY"}[a.Stop]
	return object{
		"modelVersion": "test-model-1", "candidates": []object{{"content": object{"role": "model", "parts": parts}, "finishReason": finish}},
		"usageMetadata": object{"promptTokenCount": a.Usage[0], "candidatesTokenCount": a.Usage[1]},
	}
}

func (a Answer) anthropic() object {
	stop := map[chat.Stop]string{chat.Length: "max_tokens", chat.Refused: "refusal"}[a.Stop]
	content := []object{}
	if a.Thinking != "" {
		content = append(content, object{"type": "thinking", "thinking": a.Thinking, "signature": ""})
	}
	content = append(content, object{"type": "text", "text": a.Text})
	for _, c := range a.Calls {
		content = append(content, object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": c.Arguments})
	}
	return object{
		"type": "message", "role": "assistant", "model": "test-model-1", "content": content, "stop_reason": stop,
		"usage": object{"input_tokens": a.Usage[0], "output_tokens": a.Usage[1], "cache_read_input_tokens": 0},
	}
}

func (a Answer) openaiChat() object {
	finish := map[chat.Stop]string{chat.Length: "length", chat.Refused: "content_filter"}[a.Stop]
	m := object{"role": "assistant", "content": a.Text}
	if a.Thinking != "" {
		m["reasoning_content"] = a.Thinking
	}
	var calls []object
	for _, c := range a.Calls {
		calls = append(calls, object{"id": c.ID, "type": "function", "function": object{"name": c.Name, "arguments": string(c.Arguments)}})
	}
	if calls != nil {
		m["tool_calls"] = calls
	}
	return object{
		"model": "test-model-1", "choices": []object{{"message": m, "finish_reason": finish}},
		"usage": object{"prompt_tokens": a.Usage[0], "completion_tokens": a.Usage[1], "total_tokens": a.Usage[0] + a.Usage[1]},
	}
}

// text returns a string, or the text of a list of parts or blocks.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []struct {
		Text    string
		Content string
	}
	_ = json.Unmarshal(raw, &parts) // parts that cannot be read have no text
	var out []string
	for _, p := range parts {
		out = append(out, p.Text+p.Content)
	}
	return strings.Join(out, "\n")
}
