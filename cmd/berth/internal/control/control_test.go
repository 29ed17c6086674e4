package control_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/berth-eval/berth/cmd/berth/internal/control"
	"github.com/berth-eval/berth/cmd/berth/internal/runtest"
	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/internal/testlevel"
)

func TestMain(m *testing.M) {
	runtest.Main(m, func() error { return goleak.Find() })
}

// going is a run that goes on: its scheduler, store and socket are real, and its
// attempts do nothing until they are released or cancelled.
type going struct {
	dir     string
	store   *store.Run
	client  *control.Client
	server  *control.Server
	release chan struct{}
	over    chan run.Report // gets the report of the run

	mu   sync.Mutex
	said []string
}

// start begins a run of n trials in two cells, with two attempts in flight.
func start(t *testing.T, n int) *going {
	t.Helper()
	return startIn(t, t.TempDir(), n)
}

func startIn(t *testing.T, dir string, n int) *going {
	t.Helper()
	p := &plan.Plan{Experiment: &experiment.Experiment{}}
	m := &store.Manifest{Header: store.Header{Experiment: "exp"}, Cells: []store.Cell{{Key: "agent=a", Slug: "a"}, {Key: "agent=b", Slug: "b"}}}
	for i := range n {
		id := fmt.Sprintf("%08d%056d", i, i)
		tr := store.Trial{ID: id, Dir: store.TrialDir("task", "a", i+1, id), Task: fmt.Sprintf("task-%d", i), TaskDigest: "d", Cell: i % 2, Repetition: 1}
		p.Trials = append(p.Trials, plan.Trial{Trial: tr})
		m.Trials = append(m.Trials, tr)
	}
	s, err := store.Create(dir, m, nil)
	must(t, err)
	g := &going{dir: s.Dir, store: s, release: make(chan struct{}), over: make(chan run.Report, 1)}
	limits := experiment.RunLimits{Places: experiment.Places{InFlight: new(2)}, Budget: cell.Budget{CostUSD: new(5.0)}}
	c := &run.Control{}
	g.server, err = control.Serve(t.Context(), control.Options{Store: s, Control: c, Limits: limits, Say: func(text string) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.said = append(g.said, text)
	}})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		report, failed := run.Schedule(ctx, run.Spec{Plan: p, Store: s, Executor: &runtest.Held{Release: g.release}, Limits: limits, Watch: g.server.Event, Control: c})
		if failed != nil {
			t.Error(failed)
		}
		g.over <- report
		close(g.over)
	}()
	t.Cleanup(func() {
		cancel()
		for range g.over { // until it is closed
		}
		if left := errors.Join(g.server.Close(), s.Close()); left != nil {
			t.Error(left)
		}
	})
	g.client, err = control.Find(g.dir)
	must(t, err)
	t.Cleanup(g.client.Close)
	return g
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// do asks for a change that is made.
func (g *going) do(t *testing.T, q control.Request) *control.Answer {
	t.Helper()
	a, err := g.client.Do(t.Context(), q)
	if err != nil {
		t.Fatalf("%s: %v", q.Action, err)
	}
	return a
}

// refused asks for a change that is refused, with a text.
func (g *going) refused(t *testing.T, q control.Request, want string) {
	t.Helper()
	before := len(g.store.Index().Notes)
	_, err := g.client.Do(t.Context(), q)
	if _, ok := errors.AsType[*control.RefusedError](err); !ok || !strings.Contains(err.Error(), want) {
		t.Errorf("%+v: %v, want a refusal with %q", q, err, want)
	}
	if after := len(g.store.Index().Notes); after != before {
		t.Errorf("%+v was refused, and recorded", q)
	}
}

// until waits until a status is as f wants it.
func (g *going) until(t *testing.T, what string, f func(*control.Status) bool) *control.Status {
	t.Helper()
	var s *control.Status
	testlevel.Eventually(t, what, func() bool {
		var err error
		s, err = g.client.Status(t.Context())
		must(t, err)
		return f(s)
	})
	return s
}

func running(n int) func(*control.Status) bool {
	return func(s *control.Status) bool { return s.InProgress == n }
}

// outcomes counts the outcomes of the trials of a cell.
func (g *going) outcomes(cell int) map[record.Outcome]int {
	n := map[record.Outcome]int{}
	for _, t := range g.store.Index().Trials {
		if t.Cell == cell {
			n[t.Outcome()]++
		}
	}
	return n
}

func TestARunIsPausedAndGoesOn(t *testing.T) {
	t.Parallel()
	g := start(t, 8)
	s := g.until(t, "an agent of two works", func(s *control.Status) bool {
		return running(2)(s) && len(s.Attempts) > 0 && s.Attempts[0].Phase == record.PhaseTurn
	})
	if s.State != control.Running || s.Planned != 8 || s.Left != 6 || *s.Limits[0].Most != 2 || s.PID != os.Getpid() {
		t.Errorf("status: %+v", s)
	}
	a := g.do(t, control.Request{Action: control.Pause, Why: "look"})
	if a.Status.State != control.Paused || !strings.HasSuffix(a.Status.Why, "paused the run: look") {
		t.Errorf("paused: %+v", a)
	}
	g.release <- struct{}{}
	g.release <- struct{}{}
	s = g.until(t, "both end", running(0))
	if s.Left != 6 {
		t.Errorf("after a pause: %+v", s)
	}
	g.do(t, control.Request{Action: control.Set, Set: map[string]*float64{control.InFlight: new(5.0)}})
	if s, err := g.client.Status(t.Context()); err != nil || s.InProgress != 0 {
		t.Errorf("more places begin nothing in a paused run: %+v, %v", s, err)
	}
	g.do(t, control.Request{Action: control.Continue})
	g.until(t, "five begin", running(5))
	g.do(t, control.Request{Action: control.Set, Set: map[string]*float64{control.InFlight: new(1.0)}})
	g.release <- struct{}{}
	g.until(t, "fewer places keep the next one from beginning", running(4))
	close(g.release)
	if report := <-g.over; report.Stopped != "" || report.Ran != 8 {
		t.Errorf("the run: %+v", report)
	}
	g.refused(t, control.Request{Action: control.Pause}, run.ErrNotGoingOn.Error())
	x := g.store.Index()
	var did []string
	for _, n := range x.Notes {
		did = append(did, n.Intervention.Action)
		if n.Intervention.UID != os.Getuid() || n.Intervention.User == "" || n.Time.IsZero() || !strings.Contains(n.Note, n.Intervention.User) {
			t.Errorf("recorded: %+v", n)
		}
	}
	if want := []string{"pause", "set", "continue", "set"}; !slices.Equal(did, want) || x.Notes[0].Intervention.Why != "look" || len(g.said) != 4 {
		t.Errorf("recorded %q, want %q; said %q", did, want, g.said)
	}
}

func TestTrialsAreCancelled(t *testing.T) {
	t.Parallel()
	g := start(t, 10)
	s := g.until(t, "two begin", running(2))
	g.do(t, control.Request{Action: control.Pause})
	g.do(t, control.Request{Action: control.Cancel, Trial: s.Attempts[0].Task, Why: "a slip"})
	g.until(t, "it ends", running(1))
	g.do(t, control.Request{Action: control.Cancel, Trial: "00000008"}) // waits
	a := g.do(t, control.Request{Action: control.Cancel, Cell: "agent=b"})
	if !strings.Contains(a.Did, "1 in progress, 4 that had not begun") || !strings.Contains(a.Did, "resume") {
		t.Errorf("a cell: %q", a.Did)
	}
	for _, r := range []struct {
		q    control.Request
		want string
	}{
		{control.Request{Action: control.Cancel, Trial: "00000008"}, "nothing to cancel"},
		{control.Request{Action: control.Cancel, Cell: "b"}, "nothing to cancel"},
		{control.Request{Action: control.Cancel, Cell: "c"}, "no cell"},
		{control.Request{Action: control.Cancel, Trial: "task-1x"}, "no trial"},
		{control.Request{Action: control.Cancel}, "either a trial or a cell"},
		{control.Request{Action: control.Pause, Trial: "1"}, "whole run"},
		{control.Request{Action: control.EndTurn, Trial: "00000008", Why: "x"}, "no attempt of it"},
		{control.Request{Action: control.EndTurn, Trial: "00000008"}, "give a reason"},
		{control.Request{Action: "stop"}, "unknown action"},
		{control.Request{Action: control.Pause, Why: strings.Repeat("x", 1001)}, "1000 bytes"},
		{control.Request{Action: control.Set}, "needs a limit"},
		{control.Request{Action: control.EndTurn, Trial: "", Cell: "b", Why: "a reason"}, "needs a trial"},
	} {
		g.refused(t, r.q, r.want)
	}
	g.do(t, control.Request{Action: control.Continue})
	close(g.release)
	<-g.over
	if a, b := g.outcomes(0), g.outcomes(1); a[record.Cancelled] != 1 || a[record.NotRun] != 1 || a[record.Passed] != 3 || b[record.Cancelled] != 1 || b[record.NotRun] != 4 {
		t.Errorf("outcomes: %v and %v", a, b)
	}
	for _, tr := range g.store.Index().Trials {
		if tr.Outcome() == record.Cancelled && tr.Task == s.Attempts[0].Task && !strings.Contains(tr.Attempts[0].Result.Error, "cancelled it: a slip") {
			t.Errorf("the result says %q", tr.Attempts[0].Result.Error)
		}
	}
}

func TestBudgetsGrowOnlyWithYes(t *testing.T) {
	t.Parallel()
	g := start(t, 4)
	g.until(t, "two begin", running(2))
	set := func(name string, most *float64, yes bool) control.Request {
		return control.Request{Action: control.Set, Set: map[string]*float64{name: most}, Yes: yes}
	}
	g.refused(t, set(control.CostUSD, new(6.0), false), "--yes")
	g.refused(t, set(control.CostUSD, nil, false), "--yes")
	g.do(t, set(control.CostUSD, new(4.0), false))
	g.do(t, set(control.CostUSD, new(9.0), true))
	g.do(t, set(control.Tokens, new(100.0), false))
	g.refused(t, set(control.Tokens, new(0.5), false), "whole number")
	g.refused(t, set(control.Tokens, new(-1.0), true), "above 0")
	g.refused(t, set(control.Requests, new(1e300), true), "above 0")
	g.refused(t, set(control.InFlight, nil, true), "must be a number")
	g.refused(t, set(control.InFlight, new(1e6), true), "at most")
	g.refused(t, set("time", new(1.0), true), "unknown limit")
	g.do(t, set(control.Tokens, nil, true))
	var l experiment.RunLimits
	l.CostUSD, l.Tokens = new(5.0), new(int64(7))
	said := control.Resume(g.store.Index().Notes, &l)
	if *l.CostUSD != 9 || l.Tokens != nil || l.InFlight != nil || len(said) != 2 || !strings.HasPrefix(said[0], "cost_usd is 9, as ") {
		t.Errorf("a resumed run has %v USD and %v tokens: %q", *l.CostUSD, l.Tokens, said)
	}
	if said = control.Resume(g.store.Index().Notes, &l); len(said) != 0 {
		t.Errorf("what does not differ is not told: %q", said)
	}
}

// The path of a run may be longer than that of a socket can be.
func TestARunInADeepFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("a-deep-folder/", 30))
	must(t, os.MkdirAll(dir, 0o755))
	g := startIn(t, dir, 2)
	var d net.Dialer
	if c, err := d.DialContext(t.Context(), "unix", filepath.Join(g.dir, "control.sock")); err == nil || !strings.Contains(err.Error(), "invalid argument") {
		t.Errorf("a socket in %s: %v, %v", g.dir, c, err)
	}
	g.until(t, "two begin", running(2))
}

func TestFindRefusesWhatIsNotTheRunsOwn(t *testing.T) {
	t.Parallel()
	if _, err := control.Find(t.TempDir()); !errors.Is(err, control.ErrNoProcess) {
		t.Errorf("without a process: %v", err)
	}
	g := start(t, 2)
	pointer := filepath.Join(g.dir, control.PointerFile)
	b, err := os.ReadFile(pointer)
	must(t, err)
	info, err := os.Lstat(g.client.Socket())
	must(t, err)
	folder, err := os.Lstat(filepath.Dir(g.client.Socket()))
	if err != nil || info.Mode().Perm() != 0o600 || folder.Mode().Perm() != 0o700 {
		t.Errorf("socket %v in %v, %v", info.Mode(), folder.Mode(), err)
	}
	copied := t.TempDir() // a copy of the run points to the socket of the run
	must(t, os.WriteFile(filepath.Join(copied, control.PointerFile), b, 0o600))
	if _, err = control.Find(copied); err == nil || !strings.Contains(err.Error(), "not the socket of this run") {
		t.Errorf("a copy: %v", err)
	}
	for _, text := range []string{"", "{", `{"socket":"/run/docker.sock"}`, `{"socket":"../x"}`, strings.Repeat(" ", 1<<20)} {
		must(t, os.WriteFile(pointer, []byte(text), 0o600))
		if _, err = control.Find(g.dir); err == nil || errors.Is(err, control.ErrNoProcess) {
			t.Errorf("%.40q: %v", text, err)
		}
	}
	must(t, os.WriteFile(pointer, b, 0o600))
	must(t, os.Chmod(g.client.Socket(), 0o666))
	if _, err = control.Find(g.dir); err == nil || !strings.Contains(err.Error(), "open to others") {
		t.Errorf("a socket for everybody: %v", err)
	}
	must(t, os.Chmod(g.client.Socket(), 0o600))
	if _, err = control.Find(g.dir); err != nil {
		t.Error(err)
	}
}

// A process that was killed leaves its socket and its pointer.
func TestAStaleSocketIsReplaced(t *testing.T) {
	t.Parallel()
	g := start(t, 2)
	stale := g.client.Socket()
	pointer := filepath.Join(g.dir, control.PointerFile)
	b, err := os.ReadFile(pointer)
	must(t, err)
	must(t, g.server.Close())
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale})
	must(t, err)
	l.SetUnlinkOnClose(false)
	must(t, errors.Join(l.Close(), os.Chmod(stale, 0o600), os.WriteFile(pointer, b, 0o600)))
	c, err := control.Find(g.dir) // the process of the pointer lives: it is that of the test
	must(t, err)
	if _, err = c.Status(t.Context()); !errors.Is(err, control.ErrNoProcess) {
		t.Errorf("a stale socket: %v", err)
	}
	again, err := control.Serve(t.Context(), control.Options{Store: g.store, Control: &run.Control{}})
	must(t, err)
	if _, err = c.Status(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err = c.Do(t.Context(), control.Request{Action: control.Pause}); err == nil || !strings.Contains(err.Error(), run.ErrNotGoingOn.Error()) {
		t.Errorf("before the first attempt: %v", err)
	}
	c.Close()
	must(t, again.Close())
	if _, err = os.Lstat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
	must(t, os.WriteFile(pointer, nil, 0o600)) // for the end of the test
}
