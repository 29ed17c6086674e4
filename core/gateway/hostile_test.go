package gateway

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway/ledger"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/redact"
	"github.com/berth-eval/berth/internal/testlevel"
)

// rawProvider sends the same bytes on each connection and closes it.
func rawProvider(t *testing.T, answer string) cell.Model {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	testlevel.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go rawAnswer(c, answer)
		}
	}()
	key := cell.Plain(canaryKey)
	return cell.Model{Provider: "anthropic", Name: "m1", BaseURL: "http://" + l.Addr().String(), APIKey: &key, Price: priced(1, 1, 1, 1)}
}

func rawAnswer(c net.Conn, answer string) {
	defer c.Close()
	buf := make([]byte, 64<<10)
	_, _ = c.Read(buf)
	_, _ = io.WriteString(c, answer) // the gateway may have hung up
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.CloseWrite()
	}
	_, _ = io.Copy(io.Discard, c)
}

// These are heads of responses.
const (
	plainHead = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
	eventHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
	began     = "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":100,\"output_tokens\":1}}}\n\n"
	ended     = "data: {\"type\":\"message_stop\"}\n\n"
)

type hostile struct {
	name, answer string
	status       int    // that the client gets
	down         string // in why the provider could not serve; empty: it could
	estimated    bool   // the usage; the budget keeps the worst then
	input        int64  // tokens, unless they are estimated
	output       int64
}

var hostiles = []hostile{
	{name: "HTTP/1.0", answer: "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + `{"content":[],"usage":{"input_tokens":3,"output_tokens":4}}`, status: 200, input: 3, output: 4},
	{name: "status 000", answer: "HTTP/1.1 000 X\r\nContent-Length: 2\r\n\r\n{}", status: 502, down: "status 0"},
	{name: "status 999", answer: "HTTP/1.1 999 X\r\nContent-Length: 2\r\n\r\n{}", status: 502, down: "status 999"},
	{name: "another protocol", answer: "HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nhi", status: 502, down: "status 101"},
	{name: "no HTTP", answer: "SSH-2.0-OpenSSH_9\r\n", status: 502, down: "malformed"},
	{name: "silence", answer: "", status: 502, down: "closed the connection"},
	{name: "a redirect", answer: "HTTP/1.1 307 X\r\nLocation: http://elsewhere.example/v1?key=" + canaryKey + "\r\nContent-Length: 0\r\n\r\n", status: 404, down: `leads to "http://elsewhere.example/v1"`},
	{name: "nothing at all", answer: "HTTP/1.1 204 No\r\n\r\n", status: 204, down: "is not valid for anthropic", estimated: true},
	{name: "no JSON", answer: "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<html>log in</html>", status: 200, down: "is not valid for anthropic", estimated: true},
	{name: "half of it", answer: plainHead + `{"usage":{"input`, status: 200, down: "is not valid for anthropic", estimated: true},
	{name: "half of it, with a length", answer: "HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n" + `{"usage":{"input_tokens":3}}`, status: 200, down: "is not valid for anthropic", estimated: true},
	{name: "a packing that nobody knows", answer: "HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\n{}", status: 502, down: `packed with "br"`},
	{name: "no usage", answer: plainHead + `{"content":[]}`, status: 200, estimated: true},
	{name: "usage below zero", answer: plainHead + `{"content":[],"usage":{"input_tokens":-3000000,"output_tokens":-4}}`, status: 200, estimated: true},
	{name: "usage that is not a number", answer: plainHead + `{"content":[],"usage":{"input_tokens":{},"output_tokens":4}}`, status: 200, estimated: true},
	{name: "usage with a point", answer: plainHead + `{"content":[],"usage":{"input_tokens":12.0,"output_tokens":4e1}}`, status: 200, input: 12, output: 40},
	{name: "usage as text", answer: plainHead + `{"content":[],"usage":{"input_tokens":"12","output_tokens":"4"}}`, status: 200, input: 12, output: 4},
	{name: "usage without bounds", answer: plainHead + `{"content":[],"usage":{"input_tokens":9223372036854775807,"cache_read_input_tokens":1e300,"output_tokens":4}}`, status: 200, estimated: true},
	{name: "usage without output", answer: plainHead + `{"content":[],"usage":{"input_tokens":12}}`, status: 200, estimated: true},
	{name: "events without an end", answer: eventHead + began + strings.Repeat("data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"abc\"}}\n\n", 100), status: 200, down: "no end", estimated: true},
	{name: "events that go back", answer: eventHead + began + "data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":50}}\n\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":7}}\n\n" + ended, status: 200, input: 100, output: 50},
	{name: "events that tell usage twice", answer: eventHead + began + began + "data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":50}}\n\n" + ended, status: 200, input: 100, output: 50},
	{name: "events in another order", answer: eventHead + "data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":50}}\n\n" + ended + began, status: 200, input: 100, output: 50},
	{name: "events below zero", answer: eventHead + began + "data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":-7}}\n\n" + ended, status: 200, estimated: true},
	{name: "events with bytes that are not text", answer: eventHead + "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"\xff\xfe\"}}\n\n" + began + ended, status: 200, input: 100, output: 1},
}

// Whatever a provider sends, the client gets a response, the spending is what
// the provider stated, and the agent is not blamed for the provider's errors.
func TestAHostileProvider(t *testing.T) {
	t.Parallel()
	for _, tt := range hostiles {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.check(t)
		})
	}
}

func (tt *hostile) check(t *testing.T) {
	t.Helper()
	b := start(t, rawProvider(t, tt.answer))
	b.c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	body := requests[0].body
	if strings.HasPrefix(tt.name, "events") {
		_, body = streaming(0)
	}
	got := b.ask(t.Context(), t, "/v1/messages", body)
	if got.status != tt.status || got.err != nil {
		t.Errorf("status %d, %v; want %d", got.status, got.err, tt.status)
	}
	x := b.last(t)
	text := fmt.Sprint(got.header, got.body, b.State().Down, x)
	if strings.Contains(text, canaryKey) {
		t.Errorf("the key is in %s", text)
	}
	if down := b.State().Down; (down != nil) != (tt.down != "") || down != nil && !strings.Contains(down.Error(), tt.down) {
		t.Errorf("down: %v; want %q", down, tt.down)
	}
	spent := b.g.Settled()
	switch {
	case tt.estimated:
		if !x.Estimated || x.Usage == nil || x.Usage.Input < 20 || spent.Tokens < 100 {
			t.Errorf("written down %+v, usage %+v, settled %+v", x, x.Usage, spent)
		}
	case tt.input > 0:
		if x.Estimated || x.Usage == nil || x.Usage.Input != tt.input || x.Usage.Output != tt.output || spent.Tokens != tt.input+tt.output {
			t.Errorf("written down %+v, usage %+v, settled %+v", x, x.Usage, spent)
		}
	case x.Usage != nil || spent != ledger.Amount{}:
		t.Errorf("usage %+v, settled %+v; want none", x.Usage, spent)
	}
}

// If a provider compresses a response without being asked to, the gateway
// decompresses it, so that its usage is counted and the client can read it.
func TestAnAnswerThatIsPackedIsUnpacked(t *testing.T) {
	t.Parallel()
	b := start(t, rawProvider(t, strings.Replace(plainHead, "\r\n\r\n", "\r\nContent-Encoding: gzip\r\n\r\n", 1)+string(gzipped(t, `{"usage":{"input_tokens":3,"output_tokens":4}}`))))
	got := b.ask(t.Context(), t, requests[0].path, requests[0].body)
	if x := b.last(t); got.body != `{"usage":{"input_tokens":3,"output_tokens":4}}` || x.Estimated || x.Usage.Output != 4 {
		t.Errorf("%d %q, %+v", got.status, got.body, x)
	}
}

// A response that never ends, or that decompresses to one, is cut off.
func TestAnAnswerIsNotEndless(t *testing.T) {
	t.Parallel()
	bomb := string(gzipped(t, strings.Repeat("0", maxReply+1)))
	b := start(t, rawProvider(t, strings.Replace(plainHead, "\r\n\r\n", "\r\nContent-Encoding: gzip\r\n\r\n", 1)+bomb))
	got := b.ask(t.Context(), t, requests[0].path, requests[0].body)
	if x := b.last(t); got.err == nil || len(got.body) > maxReply || x.Broken != "provider" || !strings.Contains(fmt.Sprint(b.State().Down), "larger than 64 MiB") {
		t.Errorf("%v after %d bytes, %+v, down %v", got.err, len(got.body), x, b.State().Down)
	}
}

// Some providers repeat the key. It reaches no client, log or file, in whatever
// pieces it arrives.
func TestAKeyThatIsSaidAgain(t *testing.T) {
	t.Parallel()
	said := "data: {\"type\":\"error\",\"error\":{\"type\":\"x\",\"message\":\"the key " + canaryKey + " is bad\"}}\n\n"
	for _, size := range []int{1, 3, 50, 1000} {
		t.Run(fmt.Sprint("pieces of ", size), func(t *testing.T) {
			t.Parallel()
			p := provide(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Echo", "Bearer "+canaryKey)
				inPieces([]byte(said), size)(w, r)
			})
			b := start(t, p.model("anthropic"))
			path, body := streaming(0)
			got := b.ask(t.Context(), t, path, body)
			want := strings.ReplaceAll(said, canaryKey, strings.Repeat("*", len(canaryKey)))
			if got.body != want || got.header.Get("X-Echo") != "Bearer "+redact.Mark {
				t.Errorf("got %q and %v; want %q", got.body, got.header, want)
			}
			if x := b.last(t); x.Upstream != "x: the key "+strings.Repeat("*", len(canaryKey))+" is bad" || strings.Contains(fmt.Sprint(b.State().Down), canaryKey) {
				t.Errorf("written down %+v, down %v", x, b.State().Down)
			}
		})
	}
}

// A placeholder for a key that does not exist is not treated as a secret.
func TestAShortKeyIsNoSecret(t *testing.T) {
	t.Parallel()
	p := provide(t, replies(`{"text":"the list is EMPTY","usage":{"input_tokens":3,"output_tokens":4}}`))
	m := p.model("anthropic")
	key := cell.Plain("EMPTY")
	m.APIKey = &key
	b := start(t, m)
	if got := b.ask(t.Context(), t, requests[0].path, requests[0].body); !strings.Contains(got.body, "EMPTY") {
		t.Errorf("got %s", got.body)
	}
}

// The upper bound for the cost of a request holds, whatever the request asks
// for and however it is written.
func TestTheWorstCaseOfARequest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, path, body string
		fits             bool // into a million tokens
	}{
		{"usual", "/v1/chat/completions", `{"messages":[],"max_tokens":500000}`, true},
		{"many answers", "/v1/chat/completions", `{"messages":[],"max_tokens":500000,"n":3}`, false},
		{"many answers without a bound", "/v1/chat/completions", `{"messages":[],"n":128}`, false},
		{"more than a number holds", "/v1/chat/completions", `{"messages":[],"max_tokens":9223372036854775807}`, false},
		{"a product that is more", "/v1/chat/completions", `{"messages":[],"max_tokens":4611686018427387904,"n":4}`, false},
		{"another way to write it", "/v1/chat/completions", `{"messages":[],"max_tokens":2e6}`, false},
		{"as text", "/v1/chat/completions", `{"messages":[],"max_tokens":"2000000"}`, false},
		{"messages", "/v1/messages", `{"messages":[],"max_tokens":9223372036854775807}`, false},
		{"candidates", "/v1beta/models/m1:generateContent", `{"contents":[],"generation_config":{"candidate_count":128}}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := scripted(t, oneReply)
			limit := int64(1e6)
			b := start(t, m, func(_ *cell.Model, o *Options, _ *models.Spec) { o.Run = cell.Budget{Tokens: &limit} })
			got := b.ask(t.Context(), t, tt.path, tt.body)
			if want := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[tt.fits]; got.status != want {
				t.Errorf("%d %s; want %d", got.status, got.body, want)
			}
		})
	}
}

// A request that continues a conversation kept by the provider may cost as much
// as the whole conversation.
func TestWhatTheProviderKeepsIsCounted(t *testing.T) {
	t.Parallel()
	m := scripted(t, "replies:\n  - {text: x, usage: {input: 600000, output: 100}}\n")
	limit := int64(1e6)
	b := start(t, m, func(_ *cell.Model, o *Options, spec *models.Spec) {
		o.Run, spec.Hosted = cell.Budget{Tokens: &limit}, true
	})
	if got := b.ask(t.Context(), t, "/v1/responses", `{"input":"`+strings.Repeat("x ", 300000)+`"}`); got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if got := b.ask(t.Context(), t, "/v1/responses", `{"input":"go on","previous_response_id":"resp_1"}`); got.status != http.StatusForbidden {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// Only requests to a model are forwarded, and a request without its own token
// does not count, whatever it is bundled with.
func TestAHostileClient(t *testing.T) {
	t.Parallel()
	p := provide(t, replies(`{"usage":{"input_tokens":3,"output_tokens":4}}`))
	b := start(t, p.model("anthropic"))
	first := "POST /v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + b.e.Token + "\r\n"
	head := first + "Connection: close\r\n"
	second := "POST /v1/messages HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
	body := requests[0].body
	for _, tt := range []struct {
		name, request, want string
		leave               int // requests that reach the provider
	}{
		{"a path that climbs", strings.Replace(head, "/v1/messages", "/../../../v1/files/../messages", 1) + "Content-Length: 2\r\n\r\n{}", "HTTP/1.1 200", 1},
		{"an address in the path", strings.Replace(head, "/v1/messages", "http://elsewhere.example/v1/messages?key=x", 1) + "Content-Length: 2\r\n\r\n{}", "HTTP/1.1 200", 1},
		{"another path", strings.Replace(head, "/v1/messages", "/v1/files", 1) + "Content-Length: 2\r\n\r\n{}", "HTTP/1.1 404", 0},
		{"a path that goes on", strings.Replace(head, "/v1/messages", "/v1/messages%2f..%2ffiles", 1) + "Content-Length: 2\r\n\r\n{}", "HTTP/1.1 404", 0},
		{"another method", strings.Replace(head, "POST", "DELETE", 1) + "\r\n", "HTTP/1.1 404", 0},
		{"a tunnel", strings.Replace(head, "POST /v1/messages", "CONNECT elsewhere.example:443", 1) + "\r\n", "HTTP/1.1 404", 0},
		{"a web socket", strings.Replace(head, "POST", "GET", 1) + "Upgrade: websocket\r\n\r\n", "HTTP/1.1 426", 0},
		{"two lengths", head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "HTTP/1.1 400", 0},
		{"a length and pieces", first + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + second, "HTTP/1.1 401", 1},
		{"a second without a token", first + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body) + second, "HTTP/1.1 401", 1},
		{"too large a head", head + "X: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", "HTTP/1.1 431", 0},
		{"brackets without end", head + fmt.Sprintf("Content-Length: %d\r\n\r\n", 1<<20) + strings.Repeat("[", 1<<20), "HTTP/1.1 400", 0},
	} {
		before := p.asked()
		if got := b.rawly(t, tt.request); !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %.300q; want %q", tt.name, got, tt.want)
		}
		if n := p.asked() - before; n != tt.leave {
			t.Errorf("%s: %d requests reached the provider, want %d", tt.name, n, tt.leave)
		}
	}
	for i, h := range p.heads {
		if p.paths[i] != "/v1/messages" && p.paths[i] != "/v1/messages?key=x" || h.Get("X-Api-Key") != canaryKey {
			t.Errorf("the provider was asked for %s", p.paths[i])
		}
	}
}

func (p *provider) asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.paths)
}

// rawly sends bytes and returns what comes back until the connection is closed.
func (b *bench) rawly(t *testing.T, request string) string {
	t.Helper()
	c, err := net.Dial("unix", strings.TrimPrefix(b.e.Host, "unix:")) //nolint:noctx // it is local
	testlevel.Must(t, err)
	defer c.Close()
	go func() {
		_, _ = io.WriteString(c, request) // the gateway may have heard enough
	}()
	got, _ := io.ReadAll(c) // it may be cut off, after an answer
	return string(got)
}

// An error in place of an answer costs nothing, whatever its status. One after a
// part of the answer does.
func TestAnErrorInPlaceOfAnAnswer(t *testing.T) {
	t.Parallel()
	for answer, paid := range map[string]bool{
		plainHead + `{"object":"error","message":"overloaded"}`:                        false,
		plainHead + `{"error":"overloaded"}`:                                           false,
		eventHead + "event: error\ndata: {\"error\":{\"message\":\"overloaded\"}}\n\n": false,
		eventHead + began + "event: error\ndata: overloaded\n\n":                       true,
	} {
		b := start(t, rawProvider(t, answer))
		b.ask(t.Context(), t, requests[0].path, requests[0].body)
		x := b.last(t)
		if down := b.State().Down; down == nil || !strings.Contains(down.Error(), "overloaded") || (b.g.Settled() != ledger.Amount{}) != paid || (x.Usage != nil) != paid {
			t.Errorf("%q: down %v, settled %+v, written down %+v", answer, down, b.g.Settled(), x)
		}
	}
}
