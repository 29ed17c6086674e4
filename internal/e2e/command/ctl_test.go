package command

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// ctlUntil waits until the status of the last run is as ok wants it.
func ctlUntil(t *testing.T, dir, what string, ok func(*types.CtlStatus) bool) *types.CtlStatus {
	t.Helper()
	var s types.CtlStatus
	testlevel.Eventually(t, what, func() bool {
		r := berth(t, dir, "ctl", "last", "--json")
		if r.code != 0 {
			return false
		}
		s = answer[types.CtlStatus](t, r, "cli-ctl-status")
		return ok(&s)
	})
	return &s
}

// inTurn reports whether n attempts are in the turns of their agents, and no others.
func inTurn(n int) func(*types.CtlStatus) bool {
	return func(s *types.CtlStatus) bool {
		other := slices.ContainsFunc(s.Attempts, func(a types.CtlAttempt) bool { return a.Phase != record.PhaseTurn })
		return s.InProgress == n && !other
	}
}

// A run is controlled from another terminal, while it shows its progress on one;
// after a kill it is resumed with the limits that were set, and controlled again.
func TestARunIsControlled(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	for _, name := range []string{"one", "two", "three", "four"} {
		task(t, filepath.Join(dir, "tasks"), name, "touch /app/done; sleep 600")
	}
	experiment(t, dir, "agent.oracle", "  limits {\n    in_flight = 2\n  }")
	cmd := exec.CommandContext(t.Context(), tree.Binary, "run")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TERM=xterm")
	screen, err := pty.StartWithSize(cmd, &window)
	e2etest.Must(t, err)
	shown := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(screen) //nolint:errcheck // the end of the other side is an error here
		shown <- string(b)
	}()
	s := ctlUntil(t, dir, "two begin", inTurn(2))
	ctl := func(code int, want string, args ...string) {
		t.Helper()
		r := berth(t, dir, append([]string{"ctl", "last"}, args...)...)
		if r.code != code || !strings.Contains(r.out+r.stderr, want) {
			t.Errorf("berth ctl last %q: code %d, %s%s; want %d and %q", args, r.code, r.out, r.stderr, code, want)
		}
	}
	ended := s.Attempts[0].Trial
	ctl(0, "paused the run", "pause", "--why", "a look")
	ctl(0, "ended the turn", "end-turn", ended[:12], "--why", "it only sleeps")
	s = ctlUntil(t, dir, "its attempt ends", inTurn(1))
	ctl(0, "from none to 5", "set", "cost_usd=5")
	ctl(1, "--yes", "set", "cost_usd=6")
	ctl(0, "cost_usd from 5 to 6, tokens from none to 1000000", "set", "cost_usd=6", "tokens=1000000", "--yes")
	ctl(0, "in_flight from 2 to 3", "set", "in_flight=3")
	ctl(0, "cancelled e2e/", "cancel", s.Attempts[0].Task, "--why", "a slip")
	cancelled := s.Attempts[0].Trial
	ctl(1, "no attempt of it is in progress", "end-turn", ended[:12], "--why", "again")
	a := answer[types.Ctl](t, berth(t, dir, "ctl", "last", "continue", "--json"), "cli-ctl")
	if a.Status.State != "running" || a.Did != "continued the run" {
		t.Errorf("continue: %+v", a)
	}
	ctlUntil(t, dir, "the others begin", inTurn(2))
	e2etest.Must(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	_ = screen.Close()
	if got := <-shown; !strings.Contains(got, "paused the run: a look") {
		t.Errorf("the terminal shows %q", got)
	}
	ctl(1, "is not running", "pause")

	resumed := begin(t, dir, []string{"resume", "last"}, "in_flight is 3, as")
	s = ctlUntil(t, dir, "three go on", inTurn(3))
	if *s.Limits[0].Most != 3 || *s.Limits[1].Most != 6 {
		t.Errorf("the resumed run has %+v", s.Limits)
	}
	ctl(0, "can be resumed then", "drain")
	ctl(0, "1 in progress", "cancel", cancelled[:12], "--why", "still a slip")
	for _, at := range s.Attempts {
		if at.Trial != cancelled {
			ctl(0, "ended the turn", "end-turn", at.Trial[:12], "--why", "the end")
		}
	}
	r := resumed.end(t)
	if r.code != 3 || !strings.Contains(r.stderr, "in_flight is 3, as") || !strings.Contains(r.stderr, "cost_usd is 6, as") {
		t.Errorf("the resumed run: %+v", r)
	}
	ctl(1, "Resume it with", "status")
	checkControlled(t, dir, ended, cancelled)
}

// checkControlled checks what the commands say of the last run.
func checkControlled(t *testing.T, dir, ended, cancelled string) {
	t.Helper()
	show := answer[types.ShowRun](t, berth(t, dir, "show", "last", "--json"), "cli-show-run")
	notes := strings.Join(show.Notes, "\n")
	if o := show.Summary.Outcomes; o[record.Passed] != 3 || o[record.Cancelled] != 1 || !strings.Contains(notes, "paused the run: a look") || strings.Contains(strings.Join(show.Summary.Marks, "\n"), "paused") {
		t.Errorf("outcomes %v, marks %q, notes %s", o, show.Summary.Marks, notes)
	}
	for _, tt := range []struct {
		args  []string
		wants []string
	}{
		{[]string{"show", "last"}, []string{"ended_early", "ended the turn of the agent", "cancelled during turn", "a slip", "cost_usd from none to 5"}},
		{[]string{"show", "last", ended[:12]}, []string{"agent end  ended_early", "finding    ended_early (note, by core in turn", "ended the turn: it only sleeps", "changed    "}},
		{[]string{"show", "last", cancelled[:12], "2"}, []string{"cancelled it: still a slip", "cost_usd from 5 to 6"}},
		{[]string{"audit", "last"}, []string{"changed:", "it only sleeps", "The record is consistent"}},
	} {
		r := berth(t, dir, tt.args...)
		r.want(t, 0)
		for _, want := range tt.wants {
			if !strings.Contains(strings.Join(strings.Fields(r.out), " "), strings.Join(strings.Fields(want), " ")) {
				t.Errorf("%q has no %q:\n%s", tt.args, want, r.out)
			}
		}
	}
	if left, err := os.Stat(filepath.Join(show.Dir, "control.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v", left)
	}
}

// gate is a provider that answers a request when it is opened.
type gate struct {
	asked chan struct{}
	open  chan struct{}
}

// ServeHTTP implements http.Handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case g.asked <- struct{}{}:
	default:
	}
	select {
	case <-g.open:
	case <-r.Context().Done():
	}
	sayChat(w, "m", "```bash\ntouch /app/done; echo TASK_IS_COMPLETE\n```")
}

// Metrics and traces of a run with a model: what they say, and that no key is in them.
func TestARunTellsMonitoringSystems(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	g := &gate{asked: make(chan struct{}, 1), open: make(chan struct{})}
	provider := httptest.NewServer(g)
	defer provider.Close()
	var mu sync.Mutex
	var sent bytes.Buffer
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.Copy(&sent, r.Body) // what is missing is noticed
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer receiver.Close()
	dir := t.TempDir()
	task(t, filepath.Join(dir, "tasks"), "one", "touch /app/done")
	modelled(t, dir, "  agent = agent.one", "  provider = \"openai-chat\"\n  name = \"m\"\n  api_key = secret(\"KEY\")\n  base_url = \""+provider.URL+"/v1\"\n")
	cmd, out, stderr := tree.Command(t, dir, "run", "--metrics", "127.0.0.1:0")
	cmd.Env = append(cmd.Env, "KEY="+goodKey, "OTEL_EXPORTER_OTLP_ENDPOINT="+receiver.URL)
	said := make(chan struct{})
	cmd.Stderr = notices{stderr, []string{"/metrics\n"}, sync.OnceFunc(func() { close(said) })}
	e2etest.Must(t, cmd.Start())
	for _, c := range []<-chan struct{}{said, g.asked} {
		select {
		case <-c:
		case <-time.After(time.Minute):
			t.Fatal("the run does not begin")
		}
	}
	url := regexp.MustCompile(`metrics: (http://127\.0\.0\.1:\d+/metrics)`).FindStringSubmatch(stderr.String())
	text := fetch(t.Context(), t, url[1])
	for _, want := range []string{`berth_attempts_in_flight{phase="turn"} 1`, `berth_trials{outcome="not_run"} 1`, `berth_run_info{experiment="e2e",run="`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	close(g.open)
	r := ended(t, cmd, cmd.Wait(), out, stderr)
	r.want(t, 0)
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"run e2e", "trial e2e/one", "attempt 1", "verify", "chat m", "gen_ai.usage.input_tokens"} {
		if !bytes.Contains(sent.Bytes(), []byte(want)) {
			t.Errorf("the traces have no %q", want)
		}
	}
	if strings.Contains(text, goodKey) || bytes.Contains(sent.Bytes(), []byte(goodKey)) {
		t.Error("a key was passed on")
	}
}

func fetch(ctx context.Context, t *testing.T, url string) string {
	t.Helper()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	e2etest.Must(t, err)
	res, err := http.DefaultClient.Do(q)
	e2etest.Must(t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	e2etest.Must(t, err)
	return string(b)
}
