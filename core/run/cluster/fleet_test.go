package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-eval/berth/core/run/cluster"
)

// site counts what a scheduler is asked, and answers as the test says. It starts
// nothing: jobs of the real Slurm are tested in internal/e2e/slurm.
type site struct {
	submits, asks []time.Time
	sizes         []int
	submit        func(n int) error
	waits         map[string]string // jobs that have not ended
	cancels       []bool            // whether only jobs that wait
}

func (s *site) Submit(_ context.Context, n int) (jobs []string, err error) {
	s.submits, s.sizes = append(s.submits, time.Now()), append(s.sizes, n)
	if s.submit != nil {
		if err = s.submit(n); err != nil {
			return nil, err
		}
	}
	for i := range n {
		jobs = append(jobs, fmt.Sprintf("%d_%d", len(s.submits), i))
	}
	return jobs, nil
}

func (s *site) State(context.Context) (states []cluster.JobState, err error) {
	s.asks = append(s.asks, time.Now())
	for job, why := range s.waits {
		states = append(states, cluster.JobState{Job: job, Waits: why})
	}
	return states, nil
}

func (s *site) Cancel(_ context.Context, waiting bool) error {
	s.cancels = append(s.cancels, waiting)
	return nil
}

// bounded checks the rates that a site bears.
func (s *site) bounded(t *testing.T) {
	t.Helper()
	for i := range s.submits {
		if i >= 10 && s.submits[i].Sub(s.submits[i-10]) < time.Minute { // the promise: ten a minute at most
			t.Errorf("eleven submissions within %s", s.submits[i].Sub(s.submits[i-10]))
		}
	}
	for i := range s.asks {
		if i > 1 && s.asks[i].Sub(s.asks[i-1]) < 30*time.Second { // the promise; the first one is at the start
			t.Errorf("two questions for the state within %s", s.asks[i].Sub(s.asks[i-1]))
		}
	}
}

func TestASchedulerIsAskedLittle(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		site    *site
		todo    int
		begin   bool // the pilots begin
		submits int
		asks    [2]int // at least and at most, in ten minutes
		stops   bool
	}{
		{"all pilots work: nothing to ask", &site{}, 100, true, 1, [2]int{1, 1}, false},
		{"pilots of an earlier coordinator wait", &site{waits: map[string]string{"1_0": "no node is free", "1_1": "no node is free", "1_2": "no node is free", "1_3": "no node is free"}}, 100, false, 0, [2]int{15, 21}, false},
		{"jobs end before their pilots begin", &site{}, 100, false, 3, [2]int{3, 8}, true},
		{"a limit is reached", &site{submit: func(int) error { return cluster.ErrLater }}, 100, false, 22, [2]int{1, 1}, false},
		{"less work than pilots", &site{}, 3, true, 1, [2]int{1, 1}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				stopped := cluster.Keep(ctx, cluster.Fleet{Scheduler: tt.site, Workers: 4, InFlight: 2}, tt.todo, tt.begin, func(string) {})
				if (stopped != nil) != tt.stops {
					t.Errorf("stopped: %v", stopped)
				}
				if n := len(tt.site.submits); n > tt.submits+1 || tt.submits < 10 && n != tt.submits {
					t.Errorf("%d submissions, want %d", n, tt.submits)
				}
				if n := len(tt.site.asks); n < tt.asks[0] || n > tt.asks[1] {
					t.Errorf("asked %d times, want %v", n, tt.asks)
				}
				if want := min(4, (tt.todo+1)/2); tt.submits > 0 && tt.site.sizes[0] != want {
					t.Errorf("%d pilots, want %d", tt.site.sizes[0], want)
				}
				tt.site.bounded(t)
			})
		})
	}
}

// The user is told once what jobs wait for, whatever the order of the answers is.
func TestWhatJobsWaitForIsSaidOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
		defer cancel()
		var said []string
		s := &site{waits: map[string]string{"1_0": "no node is free", "1_1": "a limit of the partition", "1_2": "priority"}}
		_ = cluster.Keep(ctx, cluster.Fleet{Scheduler: s, Workers: 3, InFlight: 1}, 3, false, func(text string) { said = append(said, text) })
		if len(s.asks) < 15 || len(said) != 1 {
			t.Errorf("asked %d times, and said %q", len(s.asks), said)
		}
	})
}

// A scheduler refuses an array that is above a limit as a whole. As many pilots as it
// takes are found, and the rest is tried again now and then.
func TestALimitThatAllowsSomePilots(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 5} {
		synctest.Test(t, func(t *testing.T) {
			s := &site{waits: map[string]string{}}
			s.submit = func(n int) error {
				if len(s.waits)+n > limit {
					return cluster.ErrLater
				}
				for i := range n {
					s.waits[fmt.Sprintf("%d_%d", len(s.submits), i)] = ""
				}
				return nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			stopped := cluster.Keep(ctx, cluster.Fleet{Scheduler: s, Workers: 8, InFlight: 1}, 100, false, func(string) {})
			if stopped != nil || len(s.waits) != limit || len(s.submits) > 35 {
				t.Errorf("limit %d: %d pilots after %d submissions %v: %v", limit, len(s.waits), len(s.submits), s.sizes, stopped)
			}
			s.bounded(t)
		})
	}
}

// A job whose pilot is lost may hold its node after the run: it is cancelled then. The
// jobs of other pilots end by themselves.
func TestAtTheEndOnlyJobsWithoutAPilotAreCancelled(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		lost    bool
		cancels []bool
	}{{"all pilots end", false, nil}, {"a pilot is lost", true, []bool{false}}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, 1)
			s := &site{waits: map[string]string{"1_0": ""}}
			c := b.carryWith(quick, 1, &cluster.Fleet{Scheduler: s, Workers: 1, InFlight: 1})
			g := b.ghostOf("ghost", "1_0")
			if tt.lost {
				g.claim(0, false)
				b.until("the pilot is lost", func() bool { return b.heard("pilot ghost is lost") })
			} else {
				must(t, g.journal.Add(cluster.Line{Kind: cluster.Claimed, Attempt: "of-another-run-1"}, cluster.Line{Kind: cluster.PilotEnded}))
				b.until("the pilot has ended", func() bool { return b.heard("pilot ghost ended") })
			}
			p := b.pilot("other", 1, passes("other"))
			c.wait(t)
			must(t, <-p.done)
			if !slices.Equal(s.cancels, tt.cancels) {
				t.Errorf("cancelled %v, want %v", s.cancels, tt.cancels)
			}
		})
	}
}

// What the scheduler refuses at once is said before anything runs.
func TestARefusedSubmissionStopsTheRunAtOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t, 3)
	words := errors.New("Invalid partition name specified")
	s := &site{submit: func(int) error { return words }}
	c := b.carryWith(calm, 3, &cluster.Fleet{Scheduler: s, Workers: 2, InFlight: 1})
	<-c.done
	if !errors.Is(c.err, words) || c.report.Ran != 0 || len(s.submits) != 1 {
		t.Errorf("%+v, %v, %d submissions", c.report, c.err, len(s.submits))
	}
	c.err = nil
}

// Pilots that begin and take nothing, because their machine cannot make attempts, are
// not submitted for ever. The run says why.
func TestPilotsThatTakeNothingStopTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &site{}
		stopped := cluster.KeepRefusing(t.Context(), cluster.Fleet{Scheduler: s, Workers: 2, InFlight: 1}, 10, "no such folder")
		if stopped == nil || !strings.Contains(stopped.Error(), "none took an attempt: no such folder") || len(s.submits) != 3 {
			t.Errorf("%d submissions: %v", len(s.submits), stopped)
		}
	})
}
