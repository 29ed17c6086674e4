package command

import (
	"bufio"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// The agent types a loop that prints until its time in the terminal is over.
const watchedReplies = `replies:
  - when: {turn: 0}
    text: '{"analysis": "I begin.", "plan": "Wait.", "commands": [{"keystrokes": "n=0; while [ ! -e /app/done ]; do n=$((n+1)); echo tick-$n; sleep 0.2; done\n", "duration": 5}]}'
  - when: {last: ""}
    text: '{"analysis": "", "plan": "", "commands": [], "task_complete": true}'
`

// pages are what a person sees in the browser.
type pages struct {
	*http.Client

	address string
}

// viewed starts berth view and returns its pages.
func viewed(t *testing.T, dir string) pages {
	t.Helper()
	cmd, _, _ := tree.Command(t, dir, "view")
	cmd.Stdout = nil
	out, err := cmd.StdoutPipe()
	e2etest.Must(t, err)
	e2etest.Must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() })
	said, err := bufio.NewReader(out).ReadString('\n')
	e2etest.Must(t, err)
	u, err := url.Parse(strings.TrimSpace(said))
	e2etest.Must(t, err)
	jar, err := cookiejar.New(nil)
	e2etest.Must(t, err)
	p := pages{&http.Client{Jar: jar, Timeout: time.Minute}, "http://" + u.Host}
	p.get(t, "/?"+u.RawQuery)
	return p
}

func (p *pages) open(t *testing.T, path string) *http.Response {
	t.Helper()
	r, err := p.Get(p.address + path) //nolint:noctx // the client has a time limit
	e2etest.Must(t, err)
	t.Cleanup(func() { _ = r.Body.Close() })
	return r
}

func (p *pages) get(t *testing.T, path string) *html.Node {
	t.Helper()
	n, err := html.Parse(p.open(t, path).Body) //nolint:bodyclose // the test closes it at its end
	e2etest.Must(t, err)
	return n
}

// attribute returns the first value of an attribute that contains a text.
func attribute(n *html.Node, key, part string) string {
	for d := range n.Descendants() {
		for _, a := range d.Attr {
			if a.Key == key && strings.Contains(a.Val, part) {
				return a.Val
			}
		}
	}
	return ""
}

// While an agent works in its sandbox, the viewer lists its attempt, with buttons, and then
// the recording of its terminal.
func TestViewShowsAnAgentAtWork(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	task(t, filepath.Join(dir, "tasks"), "ticks", "touch /app/done")
	e2etest.Write(t, dir, map[string]string{"replies.yaml": watchedReplies})
	experiment(t, dir, "agent.terminus", "  model = model.m\n")
	hcl := filepath.Join(dir, "experiment.hcl")
	b, err := os.ReadFile(hcl)
	e2etest.Must(t, err)
	e2etest.Write(t, dir, map[string]string{"experiment.hcl": string(b) + "agent \"terminus\" {\n  plugin = \"terminus\"\n}\nmodel \"m\" {\n  provider = \"script\"\n  script   = \"replies.yaml\"\n}\n"})
	run := begin(t, dir, []string{"run"}, "never printed")
	p := viewed(t, dir)
	attempt := ""
	testlevel.Eventually(t, "an agent at work is shown", func() bool {
		name := attribute(p.get(t, "/"), "href", "/run/")
		if name == "" {
			return false
		}
		attempt = attribute(p.get(t, name), "href", "/trial/")
		return attempt != "" && attribute(p.get(t, attempt), "value", "end-turn") != ""
	})
	e2etest.Must(t, run.Wait())
	page := p.get(t, attempt)
	if attribute(page, "value", "end-turn") != "" || attribute(page, "data-cast", "terminal.cast") == "" {
		t.Error("the page does not have the recording after the end, or still has buttons")
	}
}
