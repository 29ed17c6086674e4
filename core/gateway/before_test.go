package gateway

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// The spending of a run before it is resumed is what its attempts recorded. For
// attempts that were killed, it is the sum of their exchanges, each request
// once.
func TestWhatWasSpentBefore(t *testing.T) {
	t.Parallel()
	ended, killed, idle := strings.Repeat("a", 64), strings.Repeat("b", 64), strings.Repeat("c", 64)
	run, err := store.Create(t.TempDir(), &store.Manifest{
		Header: store.Header{Experiment: "x", Created: time.Now()}, Cells: []store.Cell{{}},
		Trials: []store.Trial{{ID: ended, Dir: "x", Task: "x", Repetition: 1}, {ID: killed, Dir: "y", Task: "y", Repetition: 1}, {ID: idle, Dir: "z", Task: "z", Repetition: 1}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	cost := 0.5
	for range 2 { // a retry is spent, too
		at, beginErr := run.Begin(ended)
		if beginErr != nil {
			t.Fatal(beginErr)
		}
		if err = at.Publish(record.Result{Version: 1, Outcome: record.RateLimited, Usage: []record.Usage{{Requests: 2, InputTokens: 30, OutputTokens: 4, CostUSD: &cost}}}); err != nil {
			t.Fatal(err)
		}
	}
	at, err := run.Begin(killed)
	if err != nil {
		t.Fatal(err)
	}
	b := start(t, scripted(t, "replies:\n  - {text: x, usage: {input: 60, output: 40}}\n"))
	b.spec.Dir, b.spec.Append = at.Dir(), func(file string, v any) {
		if lost := at.Append(file, v); lost != nil {
			t.Error(lost)
		}
	}
	b.entries[b.e.Token].up.price = priced(1000, 1000, 1000, 1000)
	for range 3 {
		b.ask(t.Context(), t, requests[0].path, requests[0].body)
	}
	if err = b.Revoke(t.Context()); err != nil { // all is written down
		t.Fatal(err)
	}
	_, index, err := store.Read(run.Dir) // as a resume finds it
	if err != nil {
		t.Fatal(err)
	}
	got := index.Spent()
	a, k := got[ended], got[killed]
	if a.Requests != 4 || a.Tokens != 68 || *a.CostUSD != 1 || k.Requests != 3 || k.Tokens != 300 || *k.CostUSD < 0.29 || *k.CostUSD > 0.31 || len(got) != 2 {
		t.Errorf("got %+v", got)
	}
	if err = run.Close(); err != nil {
		t.Fatal(err)
	}
}
