// Package localmodel tests the gateway and the client of our own agents with a real
// server of models, llama.cpp, and a small model with random weights. `make
// test-local-model` installs it.
package localmodel

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/model/chat"
)

// serve starts the server and returns its address.
func serve(t *testing.T) string {
	t.Helper()
	python, err := filepath.Abs("../../../.cache/local-model/bin/python")
	e2etest.Must(t, err)
	if _, err = os.Stat(python); err != nil {
		t.Skip("llama.cpp's server is not installed: make test-local-model")
	}
	file := filepath.Join(t.TempDir(), "random.gguf")
	if out, bad := exec.CommandContext(t.Context(), python, "testdata/model.py", file).CombinedOutput(); bad != nil {
		t.Fatalf("model.py: %v: %s", bad, out)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, python, "testdata/serve.py", file)
	stdin, err := cmd.StdinPipe()
	e2etest.Must(t, err)
	stdout, err := cmd.StdoutPipe()
	e2etest.Must(t, err)
	var said strings.Builder
	cmd.Stderr = &said
	e2etest.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		cancel()
		_ = cmd.Wait() // it was killed
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("serve.py: %v: %s", err, said.String())
	}
	return strings.TrimSpace(line)
}

// tokens are those that the server itself has counted: of input that was not in its
// cache, and of output.
type tokens struct{ fresh, output int64 }

func counted(t *testing.T, address string) (n tokens) {
	t.Helper()
	text := get(t, address+"/metrics", "", "")
	for name, to := range map[string]*int64{"prompt_tokens_total": &n.fresh, "tokens_predicted_total": &n.output} {
		m := regexp.MustCompile(`(?m)^llamacpp:` + name + ` (\d+)`).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("no %s in %s", name, text)
		}
		*to, _ = strconv.ParseInt(m[1], 10, 64) // they are digits
	}
	return n
}

// get sends a request and returns the answer. An empty body is a GET.
func get(t *testing.T, address, token, body string) string {
	t.Helper()
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	q, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	e2etest.Must(t, err)
	q.Header.Set("Authorization", "Bearer "+token)
	q.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(q)
	e2etest.Must(t, err)
	defer func() { _ = resp.Body.Close() }()
	all, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d, %v: %s", address, resp.StatusCode, err, all)
	}
	return string(all)
}

// streams are a request for a stream in each dialect of the server, and its path.
var streams = map[model.Dialect][2]string{
	model.DialectOpenAIChat: {"/v1/chat/completions", `{"model":"random","stream":true,"max_completion_tokens":30,"messages":[{"role":"user","content":"Hello there."}]}`},
	model.DialectAnthropic:  {"/v1/messages", `{"model":"random","stream":true,"max_tokens":30,"messages":[{"role":"user","content":"Hello there."}]}`},
	model.DialectOpenAI:     {"/v1/responses", `{"model":"random","stream":true,"max_output_tokens":30,"input":"Hello there."}`},
}

// What the gateway counts is what the server counts, in each dialect that it speaks:
// whole answers to our own client, with tools and a schema, and streams.
func TestTheServerCountsAsTheGatewayDoes(t *testing.T) { //nolint:paralleltest // the server counts for all
	address := serve(t)
	for d, stream := range streams {
		t.Run(string(d), func(t *testing.T) {
			before := counted(t, address)
			s := session(t, d, address)
			e := s.Endpoints()["default"]
			converse(t, e)
			if text := get(t, e.HostURL+stream[0], e.Token, stream[1]); !strings.Contains(text, "data: ") {
				t.Errorf("no stream: %s", text)
			}
			e2etest.Must(t, s.Revoke(t.Context()))
			after, u := counted(t, address), s.Usage()
			if len(u) != 1 || u[0].Estimated > 0 || s.Down() != nil || len(s.Findings()) > 0 {
				t.Fatalf("usage %+v, down %v, findings %+v", u, s.Down(), s.Findings())
			}
			got := tokens{u[0].InputTokens - u[0].CachedTokens, u[0].OutputTokens}
			if want := (tokens{after.fresh - before.fresh, after.output - before.output}); got != want || got.output == 0 {
				t.Errorf("the gateway counted %+v, the server %+v", got, want)
			}
			t.Logf("%d requests: %+v, and %d tokens from the cache", u[0].Requests, got, u[0].CachedTokens)
		})
	}
}

// session opens a session of a gateway with the server.
func session(t *testing.T, d model.Dialect, address string) models.Session {
	t.Helper()
	key := cell.Plain("none")
	m := &cell.Model{Label: "m", Provider: string(d), Name: "random", BaseURL: address, APIKey: &key}
	if d != model.DialectAnthropic {
		m.BaseURL += "/v1"
	}
	dir, err := os.MkdirTemp("", "lm")
	e2etest.Must(t, err)
	g, err := gateway.New(gateway.Options{Dialects: dialects.All, Dir: dir, Models: []*cell.Model{m}})
	e2etest.Must(t, err)
	s, err := g.Session(t.Context(), models.Spec{Trial: "t", Attempt: 1, Role: "agent", Models: map[string]*cell.Model{"default": m}})
	e2etest.Must(t, err)
	t.Cleanup(func() {
		_ = s.Close(context.Background())
		_ = g.Close()
	})
	e2etest.Must(t, s.Allow(t.Context()))
	return s
}

// converse asks with our own client: in two turns with a tool, and with a schema.
func converse(t *testing.T, e model.Endpoint) {
	t.Helper()
	c, err := chat.Dial(e)
	e2etest.Must(t, err)
	defer c.Close()
	ask := func(r chat.Request) chat.Reply {
		reply, err := c.Ask(t.Context(), r)
		if err != nil || reply.Text == "" || reply.Usage.Input == nil || reply.Usage.Output == nil || *reply.Usage.Output == 0 {
			t.Errorf("got %+v, %v", reply, err)
		}
		return reply
	}
	r := chat.Request{
		System: "You add.", MaxTokens: 40, Messages: []chat.Message{{Role: chat.User, Text: "Add 1 and 2."}},
		Tools: []chat.Tool{{Name: "add", Description: "Adds.", Parameters: json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}}}`)}},
	}
	first := ask(r)
	r.Messages = append(r.Messages,
		chat.Message{Role: chat.Assistant, Text: first.Text, Calls: []chat.Call{{ID: "c1", Name: "add", Arguments: json.RawMessage(`{"a":1,"b":2}`)}}},
		chat.Message{Role: chat.User, Results: []chat.Result{{CallID: "c1", Text: "3"}}})
	ask(r)
	verdict := chat.Request{
		MaxTokens: 100, Messages: []chat.Message{{Role: chat.User, Text: "Is it 3?"}},
		Schema: json.RawMessage(`{"type":"object","required":["verdict"],"properties":{"verdict":{"enum":["pass","fail"]}}}`),
	}
	if e.Dialect == model.DialectOpenAIChat { // the server has schemas only here
		if reply := ask(verdict); len(reply.JSON) == 0 {
			t.Errorf("a reply with a schema: %+v", reply)
		}
	}
}
