package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run/cluster"
)

// relayKey is the key of the model, which only the coordinator has.
const relayKey = canary + "-relay"

// relayed is a provider that requires the key. Its model solves a task in three
// requests, and looks for the key on the way.
type relayed struct {
	*httptest.Server

	served  atomic.Int64 // requests that were answered
	strange atomic.Int64 // requests without the key
	before  func(ctx context.Context) error
}

func newRelayed(t *testing.T, before func(ctx context.Context) error) *relayed {
	t.Helper()
	p := &relayed{before: before}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

// ServeHTTP implements http.Handler.
func (p *relayed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct{ Messages []struct{ Role string } }
	_ = json.NewDecoder(r.Body).Decode(&q) // without messages it is the first turn
	if r.Header.Get("Authorization") != "Bearer "+relayKey {
		p.strange.Add(1)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if p.before(r.Context()) != nil {
		return
	}
	p.served.Add(1)
	say := "Look everywhere.\n\n```bash\nenv; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; sleep 0.3; touch /app/done\n```"
	if len(q.Messages) > 4 {
		say = "```bash\necho TASK_IS_COMPLETE\n```"
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{ // the client may be gone
		"model": "m1", "choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": say}}},
		"usage": map[string]any{"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
	})
}

// experiment writes an experiment whose pilots reach the model through the
// coordinator.
func (p *relayed) experiment(at *place, limits, executor string) {
	at.test.Helper()
	at.task("relayed", "", solveTiny, testTiny)
	at.piloted("agent = agent.loop\n  model = model.m\n  "+limits, executor+fmt.Sprintf(`
}
agent "loop" {
  plugin = "minisweagent"
}
model "m" {
  provider = "openai-chat"
  name     = "m1"
  base_url = "%s/v1"
  api_key  = secret("E2E_RELAY_KEY")`, p.URL))
}

// keyed starts a coordinator that has the key.
func (p *place) keyed(n int, args ...string) *session {
	p.test.Helper()
	s := p.start([]string{"E2E_RELAY_KEY=" + relayKey}, append(args, "--no-live")...)
	p.follows(s, n)
	return s
}

// inMemory reports whether a text is in the memory of a process.
func inMemory(pid int, text string) (bool, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return false, err
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return false, err
	}
	defer mem.Close()
	read := int64(0)
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var flags string
		if _, err = fmt.Sscanf(line, "%x-%x %s", &from, &to, &flags); err != nil || flags[0] != 'r' || flags[1] != 'w' && flags[3] != 's' {
			continue // it cannot be written to, so it is a part of a program
		}
		overlap := make([]byte, 0, len(text))
		for piece := make([]byte, 1<<20); from < to; from += int64(len(piece)) {
			n, failed := mem.ReadAt(piece[:min(int64(len(piece)), to-from)], from)
			read += int64(n)
			if bytes.Contains(append(overlap, piece[:n]...), []byte(text)) {
				return true, nil
			}
			if failed != nil {
				break // reserved and never used, or a window of the kernel
			}
			overlap = append(overlap[:0], piece[max(0, n-len(text)+1):n]...)
		}
	}
	if read == 0 {
		return false, errors.New("no memory could be read")
	}
	return false, nil
}

// looksAtNodes looks for the key in all that pilots and what they started show of
// themselves, and returns how many processes it saw.
func looksAtNodes(t *testing.T, pilots []*session) (seen int) {
	t.Helper()
	for _, s := range pilots {
		for _, pid := range append(descendants(s.pid), s.pid) {
			e, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			if err != nil {
				continue // it has ended
			}
			seen++
			hasNone(t, fmt.Sprintf("the arguments of process %d", pid), cmdline(pid))
			hasNone(t, fmt.Sprintf("the environment of process %d, %q", pid, cmdline(pid)), string(e))
			if found, _ := inMemory(pid, relayKey); found { //nolint:errcheck // a process that has ended; the caller makes sure that it works
				t.Errorf("the key is in the memory of process %d, %q", pid, cmdline(pid))
			}
		}
	}
	return seen
}

// 64 attempts on six pilots have a budget for ten requests. Ten reach the provider,
// nothing is made that the budget has no room for, and the key is nowhere but with
// the coordinator: in no environment, argument, memory or file of a pilot or of what
// it started, and in no file of the run.
func TestABudgetAndTheKeyStayWithTheCoordinator(t *testing.T) {
	t.Parallel()
	const budget = 10
	p := newPlace(t)
	go1, held := make(chan struct{}), atomic.Int64{}
	provider := newRelayed(t, func(ctx context.Context) error {
		if held.Add(1) > budget-2 { // the last ones wait until the nodes were looked at
			select {
			case <-go1:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	provider.experiment(p, fmt.Sprintf("repeat = 64\n  limits {\n    requests = %d\n    in_flight = 12\n  }", budget), "")
	c := p.keyed(1, "run", ".")
	dir := p.run()
	pilots := make([]*session, 6)
	for i := range pilots {
		pilots[i] = p.pilot(dir, 2)
	}
	poll(t, "all but two requests are answered", c, func() bool { return held.Load() == budget })
	if has, err := inMemory(c.pid, relayKey); err != nil || !has {
		t.Errorf("the key is not seen in the memory of the coordinator, which has it (%v): the test proves nothing", err)
	}
	if n := looksAtNodes(t, pilots); n < 2*len(pilots) {
		t.Errorf("only %d processes were looked at", n)
	}
	tickets, err := filepath.Glob(filepath.Join(dir, cluster.Dir, "relay", "*.json"))
	if err != nil || len(tickets) != len(pilots) {
		t.Errorf("%d pilots have %q, %v", len(pilots), tickets, err)
	}
	for _, f := range tickets {
		if fi, err := os.Stat(f); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f, fi, err)
		}
	}
	hasNone(t, "a file of the run, of a pilot or of a sandbox", whatIsThere(p.dir))
	close(go1)

	ended := c.wait().want(t, 3)
	for _, s := range pilots {
		r := s.wait().want(t, 0)
		hasNone(t, "what a pilot prints", r.stdout+r.stderr)
	}
	if provider.served.Load() != budget || held.Load() != budget || provider.strange.Load() != 0 {
		t.Errorf("%d requests were answered of %d, %d without the key", provider.served.Load(), held.Load(), provider.strange.Load())
	}
	if !strings.Contains(ended.stdout, "the budget of the run is used up: 10 of 10 requests") {
		t.Errorf("it says:\n%s", ended.stdout)
	}
	show := p.settled(dir)
	if o := show.Summary.Outcomes; show.Summary.Tokens != 110*budget || o[record.NotRun] < 64-budget || o[record.NotRun]+o[record.Passed] != 64 {
		t.Errorf("%d tokens, outcomes %v", show.Summary.Tokens, o)
	}
	if left, err := filepath.Glob(filepath.Join(dir, cluster.Dir, "relay", "*")); err != nil || len(left) > 0 {
		t.Errorf("tokens of pilots are left: %q, %v", left, err)
	}
	files := unpacked(t, p.dir)
	if !strings.Contains(files, "Look everywhere") {
		t.Error("what the agent did is nowhere: the test proves little")
	}
	hasNone(t, "a file", files)
	hasNone(t, "what the coordinator prints", ended.stdout+ended.stderr)
	p.vacated()
}

// The coordinator is killed while pilots wait for answers through it, and another one
// takes over, at another port and with another certificate. Requests wait for it, and
// every attempt goes on: none is made twice, and none fails.
func TestRequestsWaitForTheNextCoordinator(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	asked, answers := atomic.Int64{}, make(chan struct{})
	provider := newRelayed(t, func(ctx context.Context) error {
		if asked.Add(1) <= 4 { // those that the first coordinator sends are never answered
			<-ctx.Done()
			return ctx.Err()
		}
		select {
		case <-answers:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	provider.experiment(p, "repeat = 4\n  limits {\n    requests = 40\n  }", "lost_after = \"30s\"")
	c := p.keyed(1, "run", ".")
	dir := p.run()
	pilots := []*session{p.pilot(dir, 2), p.pilot(dir, 2)}
	poll(t, "four requests are under way", c, func() bool { return asked.Load() == 4 })
	c.signal(syscall.SIGKILL)
	c.wait()
	close(answers)
	p.keyed(2, "resume", dir).wait().want(t, 0)
	for _, s := range pilots {
		s.wait().want(t, 0)
	}
	results, none := attemptsOf(t, dir)
	for at, r := range results {
		if r.Outcome != record.Passed {
			t.Errorf("%s: %s, %+v", at, r.Outcome, r.Error)
		}
	}
	if len(results) != 4 || none != 0 || provider.served.Load() != 12 {
		t.Errorf("%d attempts with a result and %d without, %d requests were answered", len(results), none, provider.served.Load())
	}
	p.settled(dir)
	p.vacated()
}

// Models without a key are asked from the machines of pilots. The budget of the run
// holds nevertheless: what an attempt may spend at most is set aside while it runs, and
// what it did not spend is given back. Without a budget of their own, such attempts are
// refused before anything runs.
func TestPilotsThatAskDirectlySpendSlicesOfTheBudget(t *testing.T) {
	t.Parallel()
	p, provider := newPlace(t), newSolver(t)
	p.task("spends", "", solveTiny, testTiny)
	write := func(perTrial string) {
		p.piloted("agent = agent.loop\n  model = model.m\n  repeat = 6\n  limits {\n    requests = 10\n  }\n"+perTrial,
			fmt.Sprintf("}\nagent \"loop\" {\n  plugin = \"minisweagent\"\n}\nmodel \"m\" {\n  provider = \"openai-chat\"\n  name = \"m1\"\n  base_url = \"%s/v1\"\n", provider.URL))
	}
	write("")
	if r := p.berth("plan", ".").want(t, 2); !strings.Contains(r.stdout+r.stderr, "needs its own budget") {
		t.Errorf("it says:\n%s%s", r.stdout, r.stderr)
	}
	// Each attempt sends three requests. Two are under way at first, because slices of
	// four leave no room for a third. Then one more has room: 3 + 3 + 4 of 10.
	write("  per_trial {\n    requests = 4\n  }")
	c, dir := p.coordinated()
	pilots := []*session{p.pilot(dir, 2), p.pilot(dir, 2)}
	ended := c.wait().want(t, 3)
	for _, s := range pilots {
		s.wait().want(t, 0)
	}
	o := p.settled(dir).Summary.Outcomes
	if provider.served.Load() != 9 || o[record.Passed] != 3 || o[record.NotRun] != 3 {
		t.Errorf("%d requests were served of 10, outcomes %v", provider.served.Load(), o)
	}
	if !strings.Contains(ended.stdout, "limit used") {
		t.Errorf("it says:\n%s", ended.stdout)
	}
	if tickets, err := filepath.Glob(filepath.Join(dir, cluster.Dir, "relay", "*")); err != nil || len(tickets) > 0 {
		t.Errorf("tokens are left: %q, %v", tickets, err)
	}
	p.vacated()
}
