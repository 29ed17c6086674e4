package cluster_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/run/cluster"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/internal/testlevel"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp(testlevel.Tmp(), "bcl")
	if err == nil {
		err = os.Setenv(node.EnvDir, dir)
	}
	if err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// bed is a run with its coordinator, and what both said.
type bed struct {
	t     *testing.T
	plan  *plan.Plan
	store *store.Run
	seen  string // where pilots see the folder of the run; empty: where it is

	mu   sync.Mutex
	said []string
}

// planOf returns a plan of n trials of one cell.
func planOf(n int) *plan.Plan {
	c := &experiment.Cell{Slug: "a"}
	c.Choices = map[string]string{"agent": "a"}
	p := &plan.Plan{Experiment: &experiment.Experiment{Cells: []*experiment.Cell{c}}, Tasks: make([]plan.Task, 1)}
	for i := range n {
		id := fmt.Sprintf("%064d", i)
		p.Trials = append(p.Trials, plan.Trial{Trial: store.Trial{
			ID: id, Dir: store.TrialDir("task", "a", i+1, id[56:]), Task: "task", TaskDigest: "d", Repetition: i + 1,
		}})
	}
	return p
}

// newBed makes a run of n trials.
func newBed(t *testing.T, n int) *bed {
	t.Helper()
	b := &bed{t: t, plan: planOf(n)}
	m := &store.Manifest{
		Header: store.Header{Experiment: "exp"},
		Cells:  []store.Cell{{Key: "agent=a", Slug: "a", Agent: "a", Choices: map[string]string{"agent": "a"}}},
	}
	for i := range b.plan.Trials {
		m.Trials = append(m.Trials, b.plan.Trials[i].Trial)
	}
	var err error
	b.store, err = store.Create(t.TempDir(), m, nil)
	must(t, err)
	t.Cleanup(func() { _ = b.store.Close() }) // some tests close it themselves
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("said: %q", b.said)
		}
	})
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	testlevel.Must(t, err)
}

func (b *bed) say(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said = append(b.said, text)
}

// heard reports whether something was said.
func (b *bed) heard(part string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.said, func(s string) bool { return strings.Contains(s, part) })
}

// until polls until ok.
func (b *bed) until(what string, ok func() bool) {
	b.t.Helper()
	testlevel.Eventually(b.t, what, ok)
}

// quick are settings with which a pilot is lost soon.
var quick = cluster.Settings{Beat: 50 * time.Millisecond, LostAfter: 400 * time.Millisecond, Idle: time.Minute}

// calm are settings with which no pilot is lost on a busy machine.
var calm = cluster.Settings{Beat: 200 * time.Millisecond, LostAfter: time.Minute, Idle: time.Minute}

// carried is a run that is carried out in the background.
type carried struct {
	report run.Report
	err    error
	done   chan struct{}
	stop   context.CancelFunc
}

// carry carries out the run, with retries of preempted attempts.
func (b *bed) carry(s cluster.Settings, inFlight int) *carried {
	return b.carryWith(s, inFlight, nil)
}

// carryWith carries out the run with a fleet.
func (b *bed) carryWith(s cluster.Settings, inFlight int, fleet *cluster.Fleet) *carried {
	ctx, stop := context.WithCancel(b.t.Context())
	c := &carried{done: make(chan struct{}), stop: stop}
	b.plan.Experiment.Retry = experiment.Retry{Max: 3, On: []record.Outcome{record.Preempted}}
	go func() {
		defer close(c.done)
		c.report, c.err = cluster.Execute(ctx, run.Spec{Plan: b.plan, Store: b.store, Limits: experiment.RunLimits{Places: experiment.Places{InFlight: &inFlight}}}, s, fleet, func(e run.Event) {
			if e.Kind == run.Notice {
				b.say(e.Text)
			}
		})
	}()
	b.t.Cleanup(func() { stop(); <-c.done })
	return c
}

func (c *carried) wait(t *testing.T) run.Report {
	t.Helper()
	<-c.done
	must(t, c.err)
	return c.report
}

// fake makes attempts as the test says.
type fake func(ctx context.Context, j run.Job) (record.Result, error)

func (f fake) Attempt(ctx context.Context, j run.Job) (record.Result, error) { return f(ctx, j) }

// passes makes an attempt that passes, and says which pilot made it.
func passes(pilot string) fake {
	return func(_ context.Context, j run.Job) (record.Result, error) {
		if err := j.Attempt.Append(record.StepsFile, map[string]string{"by": pilot}); err != nil {
			return record.Result{}, err
		}
		r := resultOf(j, record.Passed, pilot)
		return r, j.Attempt.Publish(r)
	}
}

func resultOf(j run.Job, o record.Outcome, pilot string) record.Result {
	return record.Result{
		Version: 1, Trial: j.Trial.ID, Attempt: j.Attempt.Number(), Outcome: o, Integrity: record.Checked, Worker: &record.Worker{Pilot: pilot}, Start: time.Now(), End: time.Now(),
	}
}

// flown is a pilot that works in the background.
type flown struct {
	*cluster.Pilot
	stop context.CancelFunc
	done chan error
}

// pilot starts a pilot.
func (b *bed) pilot(name string, inFlight int, x run.Executor) *flown {
	b.t.Helper()
	b.until("a coordinator", func() bool {
		m, _ := filepath.Glob(filepath.Join(b.store.Dir, cluster.Dir, "coordinators", "*.jsonl")) //nolint:errcheck // the pattern is good
		return len(m) > 0
	})
	var p *cluster.Pilot
	b.until("pilot "+name+" begins", func() bool {
		var err error
		p, err = cluster.NewPilot(cluster.PilotOptions{
			Dir: cmp.Or(b.seen, b.store.Dir), Plan: b.plan, Say: b.say,
			Identity: cluster.Identity{Worker: record.Worker{Pilot: name, Node: "node-of-" + name}, InFlight: inFlight},
		})
		return err == nil // the coordinator may be about to write its first line
	})
	ctx, stop := context.WithCancel(b.t.Context())
	f := &flown{Pilot: p, stop: stop, done: make(chan error, 1)}
	n := run.NewNode(x, run.Spec{Plan: b.plan, Limits: experiment.RunLimits{Places: experiment.Places{InFlight: &inFlight}}}, filepath.Join(b.t.TempDir(), "scratch"))
	over := make(chan struct{})
	go func() {
		defer close(over)
		f.done <- p.Work(ctx, n)
	}()
	b.t.Cleanup(func() { stop(); <-over })
	return f
}

// attempts counts the attempts of the run by outcome, as a reader finds them.
func (b *bed) attempts() (outcomes map[record.Outcome]int, x *store.Index) {
	b.t.Helper()
	_, x, err := store.Read(b.store.Dir)
	must(b.t, err)
	outcomes = map[record.Outcome]int{}
	for _, tr := range x.Trials {
		for _, a := range tr.Attempts {
			if a.Result == nil {
				outcomes[record.NotRun]++
			} else {
				outcomes[a.Result.Outcome]++
			}
		}
	}
	return outcomes, x
}
