// Package chattest is a model for tests. It answers with the results of a
// function, over a real Unix socket, in the dialects of a scripted model.
//
// It must not be used outside tests, and checks nothing.
package chattest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/berth-eval/berth/dialects/anthropic"
	"github.com/berth-eval/berth/dialects/gemini"
	"github.com/berth-eval/berth/dialects/openai"
	"github.com/berth-eval/berth/dialects/openaichat"
	"github.com/berth-eval/berth/dialects/scripted"
	"github.com/berth-eval/berth/plugins/dialect"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/model/chat"
)

// Token is the token that requests must carry.
const Token = "berth-test-token"

// Question is a request that the model received.
type Question struct {
	Number int             // from 1
	Body   json.RawMessage // as it was sent
	Last   string          // text since the last reply of the model
	Turns  int             // replies of the model that the request contains
	Header http.Header
}

// Answer is the model's answer to a question.
type Answer struct {
	Text     string
	Thinking string
	Calls    []chat.Call // without the ids, which the dialect makes
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

// dialects are those in which the model answers.
var dialects = dialect.Set{Dialects: []dialect.Dialect{anthropic.Dialect{}, openai.Dialect{}, gemini.Dialect{}, openaichat.Dialect{}}}

// asked reads a request. A body that cannot be read has no messages.
func asked(r *http.Request, body []byte) Question {
	q := Question{Body: body, Header: r.Header}
	if o, err := dialect.ParseObject(body); err == nil {
		t, _ := scripted.Read(o)
		q.Last, q.Turns = t.Last, t.Turn
	}
	return q
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, answer func(Question) Answer) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	of, _, _ := dialects.Of(r)
	d, ok := of.(scripted.Voice)
	switch {
	case !ok:
		http.NotFound(w, r)
		return
	case d.Token(r) != Token:
		f := d.Failure(dialect.Failure{Kind: dialect.BadToken, Message: "wrong token"})
		w.WriteHeader(f.Status)
		_, _ = w.Write(f.Body)
		return
	}
	question := asked(r, body)
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
	said := scripted.Speech{
		ID: fmt.Sprint(question.Number), Model: "test-model-1", Thinking: a.Thinking, Text: a.Text, Stop: scripted.Stop(a.Stop),
		Usage: dialect.Usage{Input: a.Usage[0], Output: a.Usage[1]},
	}
	for _, c := range a.Calls {
		said.Tools = append(said.Tools, scripted.ToolCall{Name: c.Name, Arguments: c.Arguments})
	}
	_, _ = w.Write(d.Whole(said))
}
