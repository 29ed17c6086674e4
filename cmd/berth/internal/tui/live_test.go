package tui_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/tui"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/store"
)

func trial(task string, cell int) *plan.Trial {
	return &plan.Trial{Trial: store.Trial{ID: task, Task: task, Cell: cell, Repetition: 1}}
}

func ended(t *plan.Trial, r record.Result, to int) run.Event {
	r.Start = time.Unix(0, 0)
	r.End = r.Start.Add(12400 * time.Millisecond)
	return run.Event{Kind: run.Ended, Trial: t, Attempt: 1, Result: &r, To: to}
}

// Where no terminal looks on: a line per finished trial, and a summary line
// each 30 seconds.
func TestLinesAndSummaries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		w := tui.New(tui.Options{Err: &b, Cells: []string{"oracle", "nop"}, Tasks: []string{"one", "three"}})
		one, score := 1.0, 0.0
		first, second := trial("one", 0), trial("three", 1)
		w.Event(run.Event{Kind: run.Began, Trial: first, Attempt: 1, To: 3, Left: 2})
		w.Event(run.Event{Kind: run.Live, Trial: first, Live: record.Event{Type: record.EventPhaseStart, Phase: record.PhaseTurn}})
		w.Event(ended(first, record.Result{Outcome: record.Passed, AgentEnd: record.Timeout, Score: &one, Integrity: record.Exposed}, 3))
		w.Event(run.Event{Kind: run.Began, Trial: second, Attempt: 1, To: 3, Left: 1})
		time.Sleep(31 * time.Second) // in a synctest bubble
		w.Event(ended(second, record.Result{
			Outcome: record.EnvironmentError, Score: &score, Error: &record.Error{Boundary: record.ByEnvironment, Message: "no \x1b[31mimage"},
		}, 3))
		w.Event(run.Event{Kind: run.Began, Trial: first, Attempt: 2, To: 3})
		w.Event(run.Event{Kind: run.Stopping, Text: "the run has used its limit", To: 3})
		w.Event(run.Event{Kind: run.Stopping, Text: run.Interrupted, To: 3})
		w.Event(ended(first, record.Result{Outcome: record.Cancelled}, 3))
		w.Event(run.Event{Kind: run.Waiting, Trial: second, Attempt: 2, Wait: 5 * time.Second, To: 3})
		w.Event(run.Event{Kind: run.Stopping, Text: "interrupted", To: 3})
		w.Close()
		want := `one    oracle  1  passed             1.00     12.4 s  timeout, exposed
1 of 3 done, 1 passed; 1 running; about 1m00s left
three  nop     1  environment_error  0.00     12.4 s  environment: no �[31mimage
stopping: the run has used its limit; 1 attempt under way
stopping: interrupted; 1 attempt under way, Ctrl-C again to leave at once
one    oracle  1  cancelled                   12.4 s
three  nop     1 (attempt 2)  in 5.0 s
stopping: interrupted
`
		if got := b.String(); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		if strings.Contains(b.String(), "\x1b") {
			t.Error("something steers the terminal")
		}
	})
}

func TestEveryOutcomeHasAStyle(t *testing.T) {
	t.Parallel()
	for _, o := range record.Outcomes {
		if o.Infrastructure() && tui.StyleOf(o) == "" {
			t.Errorf("%s does not stand out", o)
		}
	}
}

// A line stays, so it names what it is about in full and has the cause of an
// error.
func TestLinesCutNoNameAndNoCause(t *testing.T) {
	t.Parallel()
	task := strings.Repeat("long-", 20) + "name"
	var b bytes.Buffer
	w := tui.New(tui.Options{Err: &b, Cells: []string{"oracle"}, Tasks: []string{task}})
	message := "image build failed: " + strings.Repeat("step ", 200) + "ended with 127: no such program"
	w.Event(ended(trial(task, 0), record.Result{Outcome: record.EnvironmentError, Error: &record.Error{Boundary: record.ByEnvironment, Message: message}}, 1))
	w.Close()
	if !strings.Contains(b.String(), task) || !strings.Contains(b.String(), "image build failed") || !strings.Contains(b.String(), "ended with 127: no such program\n") {
		t.Errorf("%s", &b)
	}
}
