package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/internal/testlevel"
)

// The process of an attempt was killed after some of its requests, in the
// middle of writing a line.
func TestWhatAKilledAttemptHasSpentIsKnown(t *testing.T) {
	t.Parallel()
	r := create(t, 1)
	a, err := r.Begin(r.Manifest.Trials[0].ID)
	testlevel.Must(t, err)
	usage := map[string]int{"input": 60, "output": 40}
	file := filepath.Join(a.Dir(), filepath.FromSlash(record.ExchangesFile))
	err = os.Mkdir(filepath.Dir(file), 0o755)
	for _, line := range []map[string]any{
		{"request": "1", "usage": usage, "cost_usd": 0.25},
		{"request": "1", "usage": usage, "cost_usd": 0.25, "retry": true}, // counts as one request, but costs again
		{"request": "2", "status": 503},
		{"request": "2", "usage": usage, "retry": true},
	} {
		err = errors.Join(err, a.Append(record.ExchangesFile, line))
	}
	testlevel.Must(t, errors.Join(err, a.Abandon()))
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(`{"request":"3","usage":{"inp`)
		err = errors.Join(err, f.Close())
	}
	testlevel.Must(t, err)
	_, x, err := store.Read(r.Dir)
	testlevel.Must(t, err)
	got := x.Trials[0].Attempts[0].Spend()
	if got.Requests != 2 || got.Tokens != 300 || got.CostUSD == nil || *got.CostUSD != 0.5 || !got.Unpriced {
		t.Errorf("spend %+v", got)
	}
}

// What verifying again used is apart from what the work used, also of an attempt whose
// process was killed.
func TestWhatRegradesUsedIsApart(t *testing.T) {
	t.Parallel()
	brief := func(origin int, tokens int64) *store.Brief {
		return &store.Brief{Outcome: record.Failed, AgentEnd: record.Yielded, Origin: origin, Spend: store.Spend{Tokens: tokens}}
	}
	s := store.TrialState{Trial: &store.Trial{}, Attempts: []store.AttemptState{
		{Number: 1, Lost: store.Spend{Tokens: 100}}, {Number: 2, Result: brief(0, 20)}, {Number: 3, Result: brief(2, 3)}, {Number: 4, Result: brief(9, 4000)},
	}}
	work, again := s.Spend()
	if work.Tokens != 4120 || again.Tokens != 3 { // the origin of the last one is not there
		t.Errorf("%d tokens for the work, %d for verifying it again", work.Tokens, again.Tokens)
	}
	if w := s.Work(&s.Attempts[2]); w.Number != 2 {
		t.Errorf("the work of attempt 3 is that of %d", w.Number)
	}
}
