package gateway

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/testlevel"
)

const oneReply = `
chunk: 3
replies:
  - thinking: Ich überlege …
    text: "Grüße ✓ 世界"
    tools: [{name: bash, arguments: {command: "echo ✓"}}]
    usage: {input: 1000, cached: 600, cache_write: 100, output: 50, reasoning: 20}
`

func TestAScriptAnswersInEveryDialectAndIsMetered(t *testing.T) {
	t.Parallel()
	for i, r := range requests {
		t.Run(r.dialect, func(t *testing.T) {
			t.Parallel()
			answersAndIsMetered(t, r.dialect, r.path, r.body, false)
		})
		t.Run(r.dialect+" stream", func(t *testing.T) {
			t.Parallel()
			path, body := streaming(i)
			answersAndIsMetered(t, r.dialect, path, body, true)
		})
	}
}

func answersAndIsMetered(t *testing.T, dialect, path, body string, stream bool) {
	t.Helper()
	m := scripted(t, oneReply)
	m.Price = priced(10, 1, 20, 100)
	b := start(t, m)
	got := b.ask(t.Context(), t, path, body)
	if got.status != http.StatusOK || got.err != nil || !strings.Contains(got.body, "bash") {
		t.Fatalf("%d %v %s", got.status, got.err, got.body)
	}
	if !stream && !strings.Contains(got.body, "世界") {
		t.Errorf("no text in %s", got.body)
	}
	want := record.Usage{
		Role: "agent", Model: "m1", Requests: 1, InputTokens: 1000, CachedTokens: 600, CacheWrite: 100, OutputTokens: 50, ReasoningTokens: 20,
	}
	if dialect == "gemini" {
		want.CacheWrite = 0 // the dialect has no such figure
	}
	u := b.Usage()
	if len(u) != 1 || u[0].CostUSD == nil {
		t.Fatalf("usage %+v", u)
	}
	cost := *u[0].CostUSD
	u[0].CostUSD, u[0].WaitedMS = nil, 0
	if u[0] != want {
		t.Errorf("usage %+v\nwant  %+v", u[0], want)
	}
	if want := (10*float64(400-want.CacheWrite) + 600 + 20*float64(want.CacheWrite) + 5000) / 1e6; math.Abs(cost-want) > 1e-9 {
		t.Errorf("cost %g, want %g", cost, want)
	}
	if x := b.last(t); x.Raw == nil || x.Estimated || x.Stream != stream || x.Dialect != dialect {
		t.Errorf("written down: %+v", x)
	}
}

// Why a model stopped is known in every dialect, in one of the words of the
// providers: whoever judges a turn asks for it.
func TestTheGatewayKnowsWhyAModelStopped(t *testing.T) {
	t.Parallel()
	for i, r := range requests {
		for reply, want := range map[string]string{
			"text: All is there.":                           "stop end_turn STOP",
			"text: I look., tools: [{name: ls}]":            "tool_calls tool_use",
			"text: All is, stop: length":                    "length max_tokens max_output_tokens MAX_TOKENS",
			"thinking: Well., text: '', tools: [{name: f}]": "tool_calls tool_use",
		} {
			for _, stream := range []bool{false, true} {
				path, body := r.path, r.body
				if stream {
					path, body = streaming(i)
				}
				t.Run(fmt.Sprintf("%s/%s/%v", r.dialect, reply, stream), func(t *testing.T) {
					t.Parallel()
					b := start(t, scripted(t, "replies:\n  - {"+reply+"}\n"))
					if got := b.ask(t.Context(), t, path, body); got.status != http.StatusOK {
						t.Fatal(got.status, got.body)
					}
					if x := b.last(t); !slices.Contains(strings.Fields(want), x.Stop) || b.State().Last.Stop != x.Stop {
						t.Errorf("it stopped because of %q, and last of %q; want one of %s", x.Stop, b.State().Last.Stop, want)
					}
				})
			}
		}
	}
}

// Every byte of a stream reaches the client, whatever its pieces and unknown
// events, and the usage is counted.
func TestAStreamPassesUntouched(t *testing.T) {
	t.Parallel()
	for i, r := range requests {
		for _, piece := range []int{1, 7, 1 << 20} {
			t.Run(fmt.Sprintf("%s in pieces of %d", r.dialect, piece), func(t *testing.T) {
				t.Parallel()
				path, body := streaming(i)
				if r.dialect == "openai-chat" {
					body = strings.Replace(body, `{`, `{"stream_options":{"include_usage":true},`, 1)
				}
				passesUntouched(t, r.dialect, path, body, piece)
			})
		}
	}
}

// inPieces sends a stream and flushes after each piece.
func inPieces(all []byte, size int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-New", "1")
		for rest := all; len(rest) > 0; {
			n := min(size, len(rest))
			_, _ = w.Write(rest[:n])
			_ = http.NewResponseController(w).Flush()
			rest = rest[n:]
		}
	}
}

func passesUntouched(t *testing.T, dialect, path, body string, piece int) {
	t.Helper()
	want := recorded(t, dialect)
	p := provide(t, inPieces(want, piece))
	b := start(t, p.model(dialect))
	got := b.ask(t.Context(), t, path, body)
	if got.err != nil || got.body != string(want) || got.header.Get("X-New") != "1" {
		t.Fatalf("%v: %d bytes, want %d\n%s", got.err, len(got.body), len(want), got.body)
	}
	if p.bodies[0] != body {
		t.Errorf("the provider was asked\n%s\nwant\n%s", p.bodies[0], body)
	}
	for k, v := range p.heads[0] {
		if strings.Contains(strings.Join(v, " "), b.e.Token) {
			t.Errorf("the token went to the provider in %s", k)
		}
	}
	u := b.Usage()[0]
	if u.InputTokens != 12704 || u.CachedTokens != 12584 || u.OutputTokens != 42 || u.ReasoningTokens != 7 {
		t.Errorf("usage %+v", u)
	}
}

func TestUsageIsAskedForAndTakenOutAgain(t *testing.T) {
	t.Parallel()
	whole := recorded(t, "openai-chat")
	p := provide(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write(whole)
	})
	b := start(t, p.model("openai-chat"))
	path, body := streaming(2)
	got := b.ask(t.Context(), t, path, body)
	if strings.Contains(got.body, `"choices":[]`) || strings.Contains(got.body, `"choices": []`) || !strings.HasSuffix(got.body, "data: [DONE]\n\n") {
		t.Errorf("the client got\n%s", got.body)
	}
	if !strings.Contains(p.bodies[0], "include_usage") || b.Usage()[0].OutputTokens != 42 {
		t.Errorf("asked %s, usage %+v", p.bodies[0], b.Usage())
	}
}

func TestFailuresOfAProvider(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status int
		retry  string
		body   string
	}{
		{429, "7", `{"error":{"message":"slow down"}}`},
		{429, "", `{"error":{"message":"slow down"}}`},
		{529, "", `{"error":{"message":"overloaded"}}`},
		{500, "", `{"error":{"message":"oops ` + canaryKey + `"}}`},
		{401, "", `{"error":{"message":"bad key ` + canaryKey + `"}}`},
		{400, "", `{"error":{"message":"no such field"}}`},
	} {
		t.Run(fmt.Sprint(tt.status, tt.retry), func(t *testing.T) {
			t.Parallel()
			p := provide(t, func(w http.ResponseWriter, _ *http.Request) {
				if tt.retry != "" {
					w.Header().Set("Retry-After", tt.retry)
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			m := p.model("anthropic")
			b := start(t, m)
			got := b.ask(t.Context(), t, requests[0].path, requests[0].body)
			if got.status != tt.status || got.header.Get("Retry-After") != tt.retry {
				t.Errorf("status %d, Retry-After %q", got.status, got.header.Get("Retry-After"))
			}
			down := b.State().Down
			if down == nil || strings.Contains(fmt.Sprint(down), canaryKey) || strings.Contains(got.body, canaryKey) {
				t.Errorf("down %v, body %s", down, got.body)
			}
			if len(b.Usage()) != 0 {
				t.Errorf("usage %+v", b.Usage())
			}
		})
	}
}

func TestAnAnswerThatBreaksOffBreaksOffForTheClientToo(t *testing.T) {
	t.Parallel()
	for i, r := range requests {
		t.Run(r.dialect, func(t *testing.T) {
			t.Parallel()
			whole := recorded(t, r.dialect)
			half := whole[:len(whole)*2/3]
			p := provide(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = w.Write(half)
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			})
			m := p.model(r.dialect)
			m.Price = priced(1, 1, 1, 1)
			b := start(t, m)
			path, body := streaming(i)
			got := b.ask(t.Context(), t, path, body)
			if got.err == nil || !strings.HasPrefix(string(half), got.body) {
				t.Errorf("got %v and %q", got.err, got.body)
			}
			x := b.last(t)
			if x.Broken != "provider" || !x.Estimated || x.Usage == nil || x.Usage.Input == 0 || b.State().Down == nil {
				t.Errorf("written down: %+v, down %v", x, b.State().Down)
			}
		})
	}
}

func TestTokensAreGoodForTheirTurnOnly(t *testing.T) {
	t.Parallel()
	b := start(t, scripted(t, oneReply))
	ask := func(headers ...string) int {
		return b.ask(t.Context(), t, requests[0].path, requests[0].body, headers...).status
	}
	if got := ask("X-Api-Key", "berth-guessed", "Authorization", ""); got != http.StatusUnauthorized {
		t.Errorf("a guessed token: %d", got)
	}
	testlevel.Must(t, b.Revoke(t.Context()))
	if got := ask(); got != http.StatusForbidden {
		t.Errorf("between turns: %d", got)
	}
	b.Allow(t.Context())
	if got := ask(); got != http.StatusOK {
		t.Errorf("in the next turn: %d", got)
	}
	other := b.open(t, models.Spec{Trial: "t2", Attempt: 1, Role: "agent", Models: b.spec.Models})
	defer other.Close(t.Context())
	if got := ask("X-Api-Key", other.Endpoints()["default"].Token, "Authorization", ""); got != http.StatusUnauthorized {
		t.Errorf("the token of another session: %d", got)
	}
	if err := b.Revoke(t.Context()); err != nil || !b.State().Served || other.State().Served {
		t.Errorf("%v; served %v, and the session that asked nothing %v; want true, false", err, b.State().Served, other.State().Served)
	}
}

func TestRevokeEndsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	b := start(t, scripted(t, "replies:\n  - {text: \"never all of it\", break: stall}\n"))
	path, body := streaming(0)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://gateway"+path, strings.NewReader(body))
	testlevel.Must(t, err)
	req.Header.Set("X-Api-Key", b.e.Token)
	resp, err := b.c.Do(req)
	testlevel.Must(t, err)
	defer resp.Body.Close()
	if _, err = resp.Body.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	testlevel.Must(t, b.Revoke(ctx))
	if rest, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("the answer came to an end: %s", rest)
	}
	if x := b.last(t); x.Broken != "client" || !x.Estimated || b.State().Down != nil || b.State().Served {
		t.Errorf("written down: %+v, down %v, served %v", x, b.State().Down, b.State().Served)
	}
}

func TestLargeResultsAndPackedBodies(t *testing.T) {
	t.Parallel()
	p := provide(t, replies(`{"usage":{"input_tokens":3,"output_tokens":4}}`))
	b := start(t, p.model("anthropic"))
	big := `{"model":"m1","max_tokens":5,"messages":[{"role":"user","content":[{"type":"tool_result","content":"` + strings.Repeat("line ✓\\n", 10<<20/9) + `"}]}]}`
	if got := b.ask(t.Context(), t, "/v1/messages", big); got.status != http.StatusOK || p.bodies[0] != big {
		t.Errorf("status %d, %d bytes arrived of %d", got.status, len(p.bodies[0]), len(big))
	}
	for enc, packed := range map[string][]byte{"gzip": gzipped(t, requests[0].body), "zstd": zstded(t, requests[0].body)} {
		got := b.ask(t.Context(), t, "/v1/messages", string(packed), "Content-Encoding", enc)
		if got.status != http.StatusOK || p.bodies[len(p.bodies)-1] != requests[0].body {
			t.Errorf("%s: %d, %s", enc, got.status, got.body)
		}
	}
	if got := b.ask(t.Context(), t, "/v1/messages", `{"model":`); got.status != http.StatusBadRequest {
		t.Errorf("no JSON: %d", got.status)
	}
}

// Each of the real programs sends other requests beside the usual one.
func TestWhatRealClientsAsk(t *testing.T) {
	t.Parallel()
	const messages = `{"model":"m1","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`
	for _, tt := range []struct {
		method, path, body string
		headers            []string
		status             int
		want               string
	}{
		{"POST", "/s/x/v1/messages?beta=true", messages, []string{"Anthropic-Beta", "some-beta-2026", "Anthropic-Version", "2023-06-01"}, 200, `"type":"message"`},
		{"POST", "/v1/messages/count_tokens?beta=true", messages, nil, 200, `"input_tokens":`},
		{"GET", "/v1/models", "", []string{"Anthropic-Version", "2023-06-01"}, 200, `"m1"`},
		{"GET", "/v1/models", "", nil, 200, `"m1"`},
		{"HEAD", "/", "", nil, 200, ""},
		{"HEAD", "/api/hello", "", nil, 200, ""},
		{"GET", "/v1/responses", "", []string{"Connection", "Upgrade", "Upgrade", "websocket"}, 426, ""},
		{"POST", "/v1/responses", string(zstded(t, `{"model":"m1","stream":true,"input":"hi"}`)), []string{"Content-Encoding", "zstd"}, 200, "event: response.completed"},
		{"POST", "/v1/chat/completions", `{"model":"m1","stream":true,"messages":[]}`, nil, 200, "data: [DONE]"},
		{"POST", "/v1beta/models/m1:streamGenerateContent?alt=sse", `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`, nil, 200, "data: {"},
		{"POST", "/v1beta/models/m1:streamGenerateContent", `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`, nil, 200, "[{"},
		{"POST", "/v1beta/models/m1:countTokens", `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`, nil, 200, `"totalTokens":`},
		{"GET", "/v1beta/models", "", nil, 200, `"models/m1"`},
		{"POST", "/api/event_logging/batch", "{}", nil, 404, "serves models and nothing else"},
	} {
		t.Run(tt.method+" "+tt.path, func(t *testing.T) {
			t.Parallel()
			b := start(t, scripted(t, "replies:\n  - {text: Hello there}\n"))
			req, err := http.NewRequestWithContext(t.Context(), tt.method, b.e.HostURL+tt.path, strings.NewReader(tt.body))
			testlevel.Must(t, err)
			req.Header.Set("Authorization", "Bearer "+b.e.Token)
			if strings.Contains(tt.path, "v1beta") {
				req.Header.Del("Authorization")
				req.Header.Set("X-Goog-Api-Key", b.e.Token)
			}
			for i := 0; i < len(tt.headers); i += 2 {
				req.Header.Set(tt.headers[i], tt.headers[i+1])
			}
			c := &http.Client{Transport: &http.Transport{}}
			defer c.CloseIdleConnections()
			resp, err := c.Do(req)
			testlevel.Must(t, err)
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != tt.status || !strings.Contains(string(got), tt.want) {
				t.Errorf("%d %v %s; want %d with %q", resp.StatusCode, err, got, tt.status, tt.want)
			}
		})
	}
}
