package run_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/trial"
	"github.com/berth-eval/berth/internal/testlevel"
)

// cellsOf makes a plan with n[i] trials of cell i, one cell after another, and its
// store.
func cellsOf(t *testing.T, n ...int) (*plan.Plan, *store.Run) {
	t.Helper()
	p := trials(n...)
	return p, storeOf(t, p)
}

func trials(n ...int) *plan.Plan {
	p := &plan.Plan{Experiment: &experiment.Experiment{}}
	for cell, n := range n {
		slug := fmt.Sprintf("c%d", cell)
		for i := range n {
			id := fmt.Sprintf("%032d%032d", cell, i)
			p.Trials = append(p.Trials, plan.Trial{Trial: store.Trial{
				ID: id, Dir: store.TrialDir("task", slug, i+1, id[56:]) + slug, Task: "task", TaskDigest: "d", Cell: cell, Repetition: i + 1,
			}})
		}
	}
	return p
}

func storeOf(t *testing.T, p *plan.Plan) *store.Run {
	t.Helper()
	m := &store.Manifest{Header: store.Header{Experiment: "exp"}}
	for _, tr := range p.Trials {
		if tr.Cell == len(m.Cells) {
			slug := fmt.Sprintf("c%d", tr.Cell)
			m.Cells = append(m.Cells, store.Cell{Index: tr.Cell, Key: "agent=" + slug, Slug: slug})
		}
		m.Trials = append(m.Trials, tr.Trial)
	}
	r, err := store.Create(t.TempDir(), m, nil)
	testlevel.Must(t, err)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// byCell counts the trials with an outcome by cell.
func byCell(r *store.Run) map[int]int {
	n := map[int]int{}
	for _, t := range r.Index().Trials {
		if t.Accepted() != nil && t.Outcome().Final() {
			n[t.Cell]++
		}
	}
	return n
}

func TestARunStoppedHalfWayHasHalfOfEveryCell(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, r := cellsOf(t, 40, 8, 80)
		f := &fake{attempt: func(_ context.Context, j run.Job) record.Result {
			time.Sleep(time.Duration(1+j.Trial.Cell) * time.Second) // in a synctest bubble: the cells differ in speed
			return record.Result{Outcome: record.Passed}
		}}
		half := func(e run.Event) bool { return e.Kind == run.Ended && e.Left <= 64 }
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		_, err := run.Schedule(ctx, run.Spec{
			Plan: p, Store: r, Executor: f, Limits: experiment.RunLimits{Places: experiment.Places{InFlight: new(4)}},
			Watch: func(e run.Event) {
				if half(e) {
					stop()
				}
			},
		})
		testlevel.Must(t, err)
		for cell, want := range map[int]int{0: 20, 1: 4, 2: 40} {
			if got := byCell(r)[cell]; got < want-3 || got > want+5 {
				t.Errorf("cell %d has %d trials, want about %d; all: %v", cell, got, want, byCell(r))
			}
		}
	})
}

// TestCellsThatWereAddedCatchUp continues a run of which one cell is half done.
func TestCellsThatWereAddedCatchUp(t *testing.T) {
	t.Parallel()
	p, r := cellsOf(t, 10, 10)
	first := *p
	first.Trials = p.Trials[:5]
	schedule(t, run.Spec{Plan: &first, Store: r, Executor: &fake{attempt: always(record.Passed)}})
	f := &fake{attempt: always(record.Passed)}
	schedule(t, run.Spec{Plan: p, Store: r, Executor: f, Limits: experiment.RunLimits{Places: experiment.Places{InFlight: new(1)}}})
	for i, id := range f.began[:5] {
		if id != p.Trials[10+i].ID {
			t.Errorf("attempt %d was of %s, want one of the cell without results", i, id)
		}
	}
}

// parts is an executor whose attempts go through their parts as real ones do,
// and counts how many are in each at the same time.
type parts struct {
	build, work, verify func(*plan.Trial) time.Duration

	mu   sync.Mutex
	now  map[string]int
	most map[string]int
}

func (e *parts) count(d run.Demand, part string, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, key := range append([]string{part, part + " " + d.Environment, part + " " + d.Agent}, d.Models...) {
		e.now[key] += n
		e.most[key] = max(e.most[key], e.now[key])
	}
}

func (e *parts) in(t *plan.Trial, part string, d time.Duration) {
	e.count(demandOf(t), part, 1)
	time.Sleep(d) // in a synctest bubble
	e.count(demandOf(t), part, -1)
}

func (e *parts) Attempt(ctx context.Context, j run.Job) (record.Result, error) {
	r := record.Result{Version: 1, Trial: j.Trial.ID, Attempt: j.Attempt.Number(), Outcome: record.Passed, Phases: []record.Phase{}}
	e.in(j.Trial, "building", e.build(j.Trial))
	err := j.Places.Enter(ctx, trial.Working)
	if err == nil {
		e.in(j.Trial, "working", e.work(j.Trial))
	}
	if err == nil {
		err = j.Places.Enter(ctx, trial.Verifying)
	}
	if err == nil {
		e.in(j.Trial, "verifying", e.verify(j.Trial))
	} else {
		r.Outcome = record.Cancelled
	}
	return r, j.Attempt.Publish(r)
}

// demandOf gives odd cells to the environment "docker", and all to one agent.
func demandOf(t *plan.Trial) run.Demand {
	d := run.Demand{Environment: "local", Agent: "pi", Models: []string{"large"}}
	if t.Cell%2 == 1 {
		d.Environment, d.Agent = "docker", "terminus"
	}
	return d
}

func seconds(n float64) func(*plan.Trial) time.Duration {
	return func(*plan.Trial) time.Duration { return time.Duration(n * float64(time.Second)) }
}

func newParts() *parts {
	return &parts{
		build: seconds(1), work: seconds(2), verify: seconds(1),
		now: map[string]int{}, most: map[string]int{},
	}
}

func TestEveryLimitHoldsAndIsReached(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		limits experiment.RunLimits
		want   map[string]int
	}{
		{"building", experiment.RunLimits{Places: experiment.Places{InFlight: new(8), Building: new(3)}}, map[string]int{"building": 3}},
		{"verifying", experiment.RunLimits{Places: experiment.Places{InFlight: new(8), Verifying: new(2)}}, map[string]int{"verifying": 2, "building": 8}},
		{
			"an environment",
			experiment.RunLimits{Places: experiment.Places{InFlight: new(8)}, Environment: map[string]experiment.Places{"docker": {InFlight: new(2), Building: new(1)}}},
			map[string]int{"building docker": 1, "working docker": 2, "building local": 7},
		},
		{
			"an agent",
			experiment.RunLimits{Places: experiment.Places{InFlight: new(8)}, Agent: map[string]experiment.Places{"pi": {InFlight: new(1)}}},
			map[string]int{"working pi": 1},
		},
		{
			"a model",
			experiment.RunLimits{Places: experiment.Places{InFlight: new(8)}, Model: map[string]experiment.Places{"large": {InFlight: new(5)}}},
			map[string]int{"large": 5},
		},
		{
			"all of them",
			experiment.RunLimits{
				Places:      experiment.Places{InFlight: new(6), Building: new(2), Verifying: new(3)},
				Environment: map[string]experiment.Places{"docker": {Verifying: new(1)}},
			},
			map[string]int{"building": 2, "verifying docker": 1},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, r := cellsOf(t, 20, 20)
				e := newParts()
				report := schedule(t, run.Spec{Plan: p, Store: r, Executor: e, Limits: tt.limits, Demand: demandOf})
				if report.Ran != 40 || report.Stopped != "" {
					t.Errorf("report %+v", report)
				}
				for part, want := range tt.want {
					if got := e.most[part]; got != want {
						t.Errorf("%s: at most %d at the same time, want %d; all: %v", part, got, want, e.most)
					}
				}
			})
		})
	}
}

// tells is a watcher that collects why attempts wait.
func tells(told *[]string) func(run.Event) {
	return func(e run.Event) {
		if e.Kind == run.Held {
			*told = append(*told, e.Text)
		}
	}
}

func TestATaskThatAsksForMemoryWaitsForIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, r := cellsOf(t, 20, 2, 3, 4)
		asks := []int64{3 << 10, 8 << 10, 32 << 10, 0} // MiB
		var told []string
		var mu sync.Mutex
		var now, most int64
		alone, running := true, 0
		f := &fake{attempt: func(_ context.Context, j run.Job) record.Result {
			ask := asks[j.Trial.Cell]
			mu.Lock()
			now += ask
			if ask > 0 {
				running++
			}
			if ask <= 10<<10 {
				most = max(most, now)
			} else {
				alone = alone && running == 1
			}
			mu.Unlock()
			time.Sleep(time.Minute) // in a synctest bubble
			mu.Lock()
			now -= ask
			if ask > 0 {
				running--
			}
			mu.Unlock()
			return record.Result{Outcome: record.Passed}
		}}
		o := run.Spec{
			Plan: p, Store: r, Executor: f, FreeMiB: 10 << 10, Limits: experiment.RunLimits{Places: experiment.Places{InFlight: new(8)}},
			Demand: func(t *plan.Trial) run.Demand { return run.Demand{MemoryMiB: asks[t.Cell]} },
			Watch:  tells(&told),
		}
		report := schedule(t, o)
		if len(told) != 1 || !strings.Contains(told[0], "asks for 8192 MiB of memory, and 7168 of 10240 MiB are left") {
			t.Errorf("the wait for memory is to be told once, with the numbers; told %q", told)
		}
		if most > 10<<10 || most < 9<<10 {
			t.Errorf("attempts asked for %d MiB at the same time, of %d", most, 10<<10)
		}
		if !alone {
			t.Error("a task that asks for more than there is did not run alone")
		}
		if report.Ran != 29 {
			t.Errorf("ran %d of 29: a trial waited for ever", report.Ran)
		}
		large := slices.Index(f.began, p.Trials[20].ID)
		if large > 8 {
			t.Errorf("the first task that asks for 8 GiB was attempt %d: small ones passed it", large)
		}
	})
}
