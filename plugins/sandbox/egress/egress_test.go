package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/task"
)

// bench is a proxy with a resolver of its own and servers on loopback.
type bench struct {
	*Proxy
	t       *testing.T
	port    string // of the server
	names   map[string][]string
	mu      sync.Mutex
	lookups []string
	dialed  []string
	refused []string
}

func open(t *testing.T, allow ...string) *bench {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s %s %s", r.Method, r.Host, r.URL.Path, body)
	}))
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, port: port, names: map[string][]string{}}
	b.Proxy = New(Options{
		Lookup: func(_ context.Context, name string) ([]netip.Addr, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.lookups = append(b.lookups, name)
			var out []netip.Addr
			for _, a := range b.names[name] {
				out = append(out, netip.MustParseAddr(a))
			}
			if len(out) == 0 {
				return nil, errors.New("no such host")
			}
			return out, nil
		},
		Dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			b.mu.Lock()
			b.dialed = append(b.dialed, to.String())
			b.mu.Unlock()
			var d net.Dialer // whatever the address: the test's server is on loopback
			return d.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
		},
		Own: func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("203.0.113.7")} },
		Refused: func(host, why string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.refused = append(b.refused, host+": "+why)
		},
	})
	t.Cleanup(b.Close)
	b.allow(allow...)
	return b
}

func (b *bench) allow(list ...string) {
	b.t.Helper()
	r, err := task.ParseHosts(list)
	if err != nil {
		b.t.Fatal(err)
	}
	b.Allow(r)
}

// dial is a connection from inside.
func (b *bench) inside() net.Conn {
	l, err := (&net.ListenConfig{}).Listen(b.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	defer l.Close()
	c, err := (&net.Dialer{}).DialContext(b.t.Context(), "tcp", l.Addr().String())
	if err != nil {
		b.t.Fatal(err)
	}
	ours, err := l.Accept()
	if err != nil {
		b.t.Fatal(err)
	}
	go b.Serve(ours)
	b.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// connect asks for a tunnel and returns the status.
func (b *bench) connect(authority string) (net.Conn, int, string) {
	b.t.Helper()
	c := b.inside()
	_, _ = fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", authority, authority)
	r, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
	if err != nil {
		b.t.Fatalf("CONNECT %s: %v", authority, err)
	}
	body := ""
	if r.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(r.Body)
		body = string(text)
	}
	_ = r.Body.Close()
	return c, r.StatusCode, body
}

func TestWhoMayBeReached(t *testing.T) {
	b := open(t, "api.example.com", "*.pkg.example", "198.51.100.9", "10.1.0.0/16", "2001:db8::5")
	b.names = map[string][]string{
		"api.example.com": {"93.184.216.34"}, "a.pkg.example": {"93.184.216.35"}, "b.a.pkg.example": {"93.184.216.36"},
		"pkg.example": {"93.184.216.37"}, "evil.example": {"93.184.216.38"}, "xpkg.example": {"93.184.216.39"},
	}
	for to, want := range map[string]int{
		"api.example.com:443": 200, "API.Example.COM.:443": 200, "api.example.com:8443": 200,
		"a.pkg.example:443": 200, "b.a.pkg.example:443": 200, "pkg.example:443": 403, "xpkg.example:443": 403,
		"evil.example:443": 403, "api.example.com.evil.example:443": 403, "evil-api.example.com:443": 403,
		"198.51.100.9:22": 200, "198.51.100.10:22": 403, "10.1.2.3:80": 200, "10.2.2.3:80": 403, "[2001:db8::5]:443": 200, "[2001:db8::6]:443": 403,
		"[::ffff:198.51.100.9]:22": 200, "[::ffff:10.2.2.3]:80": 403, "127.0.0.1:80": 403, "[::1]:80": 403, "localhost:80": 403,
		"169.254.169.254:80": 403, "2130706433:80": 403, "0x7f.1:80": 403, "0177.0.0.1:80": 403, "[fe80::1%25lo]:80": 403,
		"api.example.com": 502, "api.example.com:0": 502, "api.example.com:99999": 502, ":443": 502,
	} {
		if _, got, body := b.connect(to); got != want {
			t.Errorf("CONNECT %s: %d %s, want %d", to, got, body, want)
		}
	}
	for _, name := range b.lookups {
		if name != "api.example.com" && !strings.HasSuffix(name, ".pkg.example") {
			t.Errorf("%s was looked up, which is a message to its name server", name)
		}
	}
	if !slices.Contains(b.refused, "evil.example: the task may reach api.example.com, *.pkg.example, 198.51.100.9, 10.1.0.0/16, 2001:db8::5") {
		t.Errorf("told: %q", b.refused)
	}
	failed := b.Failed()
	if failed["evil.example"] == "" || failed["api.example.com"] != "" || failed[""] != "" {
		t.Errorf("failed: %q", failed)
	}
	b.names = nil
	b.allow("api.example.com")
	b.connect("api.example.com:443")
	if failed = b.Failed(); len(failed) != 1 || failed["api.example.com"] != "look up api.example.com: no such host" {
		t.Errorf("failed under the new rules: %q", failed)
	}
}

// A name that is allowed and whose owner is not: it leads to this machine, to
// what is around it, or elsewhere at a second look.
func TestNamesThatLeadInside(t *testing.T) {
	b := open(t, "a.example", "b.example", "127.9.9.9")
	for _, inner := range []string{
		"127.0.0.1", "10.0.0.1", "172.20.0.1", "192.168.1.1", "169.254.169.254", "100.100.1.1", "0.0.0.0", "::1", "fe80::1", "fd00::1",
		"::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "203.0.113.7", "224.0.0.1", "255.255.255.255",
	} {
		b.names["a.example"] = []string{inner}
		if _, got, _ := b.connect("a.example:80"); got != http.StatusForbidden {
			t.Errorf("a name of %s: %d", inner, got)
		}
	}
	if len(b.dialed) > 0 {
		t.Errorf("dialed %q", b.dialed)
	}
	b.names["b.example"] = []string{"127.9.9.9"}
	if _, got, body := b.connect("b.example:80"); got != http.StatusOK {
		t.Errorf("a listed address: %d %s", got, body)
	}
	b.names["a.example"] = []string{"127.0.0.1", "93.184.216.34"}
	b.lookups, b.dialed = nil, nil
	_, got, _ := b.connect("a.example:80")
	if got != http.StatusOK || len(b.lookups) != 1 || !slices.Equal(b.dialed, []string{"93.184.216.34:80"}) {
		t.Errorf("%d: looked up %q, dialed %q; want one look, and the public address of it", got, b.lookups, b.dialed)
	}
}

func TestAnyPublicHost(t *testing.T) {
	b := open(t)
	b.Allow(task.Hosts{Any: true})
	b.names = map[string][]string{"a.example": {"93.184.216.34"}, "in.example": {"10.0.0.1"}}
	for to, want := range map[string]int{
		"a.example:443": 200, "93.184.216.34:443": 200, "in.example:443": 403, "10.0.0.1:443": 403, "127.0.0.1:80": 403, "localhost:80": 403, "203.0.113.7:22": 403,
	} {
		if _, got, body := b.connect(to); got != want {
			t.Errorf("CONNECT %s: %d %s, want %d", to, got, body, want)
		}
	}
}

func TestATunnelCarriesBytesBothWaysUntilTheListChanges(t *testing.T) {
	b := open(t, "a.example")
	b.names["a.example"] = []string{"93.184.216.34"}
	c, _, _ := b.connect("a.example:80")
	in := bufio.NewReader(c)
	for range 2 {
		_, _ = io.WriteString(c, "GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n")
		r, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil || string(text) != "GET a.example /x " {
			t.Errorf("got %q, %v", text, err)
		}
	}
	b.allow()
	if _, err := in.ReadByte(); err == nil {
		t.Error("a connection outlived the list that allowed it")
	}
	if _, got, _ := b.connect("a.example:80"); got != http.StatusForbidden {
		t.Errorf("after the list: %d", got)
	}
}

func TestRequestsWithoutTLS(t *testing.T) {
	b := open(t, "a.example")
	b.names["a.example"] = []string{"93.184.216.34"}
	client := &http.Client{Transport: &http.Transport{
		Proxy:       func(*http.Request) (*url.URL, error) { return url.Parse("http://proxy.inside:1") },
		DialContext: func(context.Context, string, string) (net.Conn, error) { return b.inside(), nil }, //nolint:contextcheck // a connection of the test
	}}
	defer client.CloseIdleConnections()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://a.example/path", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Expect", "100-continue")
	r, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if text, readErr := io.ReadAll(r.Body); readErr != nil || r.StatusCode != http.StatusOK || string(text) != "POST a.example /path hello" {
		t.Errorf("got %d %q, %v", r.StatusCode, text, readErr)
	}
	for ask, want := range map[string]string{
		"GET http://a.example/path HTTP/1.1\r\nHost: other.example\r\n\r\n": "GET a.example /path",
		"GET http://other.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n":     "other.example may not be reached: the task may reach a.example",
		"GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n":        "HTTP/1.1 400 ",
		"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n":                         "HTTP/1.1 400 ",
	} {
		c := b.inside()
		_, _ = io.WriteString(c, ask)
		if text, _ := io.ReadAll(c); !strings.Contains(string(text), want) {
			t.Errorf("%q: %q, want %q", ask, text, want)
		}
	}
}

// Whatever a sandbox writes, nothing that is not listed is dialed.
func FuzzServe(f *testing.F) {
	f.Add([]byte("CONNECT a.example:443 HTTP/1.1\r\n\r\n"))
	f.Add([]byte("GET http://a.example/ HTTP/1.1\r\nHost: b\r\n\r\n"))
	f.Add([]byte("CONNECT [::1]:1 HTTP/1.0\r\nContent-Length: -1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, head []byte) {
		rules, err := task.ParseHosts([]string{"a.example"})
		if err != nil {
			t.Fatal(err)
		}
		p := New(Options{
			Lookup: func(_ context.Context, name string) ([]netip.Addr, error) {
				if name != "a.example" {
					t.Errorf("looked up %q", name)
				}
				return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
			},
			Dial: func(_ context.Context, to netip.AddrPort) (net.Conn, error) {
				if to.Addr() != netip.MustParseAddr("93.184.216.34") {
					t.Errorf("dialed %s", to)
				}
				return nil, errors.New("not here")
			},
		})
		p.Allow(rules)
		ours, theirs := net.Pipe()
		go func() {
			_, _ = theirs.Write(head)
			_ = theirs.SetReadDeadline(time.Now().Add(5 * time.Second))
			_, _ = io.Copy(io.Discard, theirs)
			_ = theirs.Close()
		}()
		cut := time.AfterFunc(50*time.Millisecond, func() { p.Allow(rules) }) // a head that never ends
		defer cut.Stop()
		p.Serve(ours)
		p.Close()
	})
}
