package gateway

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway/ratelimit"
	"github.com/berth-eval/berth/core/gateway/recording"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/internal/testlevel"
)

// sdkDir is the folder in which scripts/sdk-for-tests installs the vendors' libraries:
// venv and node.
const sdkDir = "../../.cache/sdk"

const sdkScript = `
chunk: 4
replies:
  - thinking: What is there?
    text: I look around.
    tools: [{name: bash, arguments: {command: "echo Grüße"}}]
    usage: {input: 1000, output: 50, reasoning: 20}
  - when: {last: world}
    text: "Die Welt ✓ 世界"
    usage: {input: 1100, output: 9}
`

// The vendors' own libraries, unmodified, use a scripted model and then a
// replay of what was recorded. They must understand both and report the same.
func TestTheVendorsLibraries(t *testing.T) {
	t.Parallel()
	dir, err := filepath.Abs(sdkDir)
	testlevel.Must(t, err)
	if _, err = os.Stat(filepath.Join(dir, "installed")); err != nil {
		t.Skip("the vendors' libraries are not installed: run scripts/sdk-for-tests")
	}
	here, err := filepath.Abs(filepath.Join("testdata", "sdk"))
	testlevel.Must(t, err)
	for name, argv := range map[string][]string{
		"python": {filepath.Join(dir, "venv", "bin", "python"), filepath.Join(here, "client.py")},
		"node":   {"node", filepath.Join(here, "client.mjs")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := func(b *bench) string { return runClient(t, b, dir, argv) }
			first := ""
			run := recordedRun(t, scripted(t, sdkScript), func(b *bench) { first = client(b) })
			if strings.Count(first, "\n") != 4 || strings.Count(first, "Die Welt ✓ 世界") != 4 || strings.Count(first, "echo Grüße") != 4 {
				t.Errorf("the clients say\n%s", first)
			}
			m := cell.Model{Provider: "script", Name: "m1", Replay: run}
			again := client(start(t, m, func(_ *cell.Model, _ *Options, s *models.Spec) { s.Task, s.Repetition = "x", 1 }))
			if again != first {
				t.Errorf("the replay differs:\n%s\nfrom\n%s", again, first)
			}
			t.Logf("\n%s", first)
			for _, dialect := range []string{"anthropic", "gemini"} {
				readsOverSigns(t, dialect, func(b *bench) string { return runClient(t, b, dir, argv, "SDK_ONLY="+dialect) })
			}
		})
	}
}

// readsOverSigns checks that a library ignores the keep-alive bytes that come
// while a provider delays, before streams and before whole responses.
func readsOverSigns(t *testing.T, dialect string, client func(*bench) string) {
	t.Helper()
	behind := start(t, scripted(t, sdkScript))
	to, err := url.Parse(behind.e.HostURL)
	testlevel.Must(t, err)
	pass := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Header.Set("X-Api-Key", behind.e.Token)
		r.Out.Header.Set("X-Goog-Api-Key", behind.e.Token)
	}}
	var asked atomic.Int64
	p := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(strings.ToLower(r.URL.Path), "count") && asked.Add(1)%2 == 1 {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(p.Close)
	key := cell.Plain(canaryKey)
	b := start(t, cell.Model{Provider: dialect, Name: "m1", BaseURL: p.URL, APIKey: &key}, func(_ *cell.Model, o *Options, _ *models.Spec) {
		o.RateLimit, o.Silence = ratelimit.Options{First: 100 * time.Millisecond}, time.Millisecond
	})
	if said := client(b); strings.Count(said, "Die Welt ✓ 世界") != 1 {
		t.Errorf("%s, kept waiting: the client says\n%s", dialect, said)
	}
	if err = b.Revoke(t.Context()); err != nil {
		t.Error(err)
	}
	for _, x := range b.lines {
		if x.Kind == recording.KindGenerate && (x.Tries == 0 || x.Waited < 20*time.Millisecond) {
			t.Errorf("%s: a request did not wait: %+v", dialect, x)
		}
	}
}

func runClient(t *testing.T, b *bench, dir string, argv []string, env ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "GATEWAY_URL="+b.e.HostURL, "GATEWAY_KEY="+b.e.Token, "SDK_NODE="+filepath.Join(dir, "node"))
	cmd.Env = append(cmd.Env, env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", argv[0], err, out, stderr.String())
	}
	return string(out)
}
