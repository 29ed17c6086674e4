package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// run returns the only run folder of the place.
func (p *place) run() string {
	p.test.Helper()
	dirs := e2etest.Found(p.test, 1, p.dir, "runs", "*")
	return dirs[0]
}

// show returns the output of `berth show RUN --json`.
func (p *place) show(dir string) *output.ShowRun {
	p.test.Helper()
	r := p.berth("show", dir, "--json").want(p.test, 0)
	var s output.ShowRun
	if err := json.Unmarshal([]byte(r.stdout), &s); err != nil {
		p.test.Fatalf("show %s: %v\n%s", dir, err, r.stdout)
	}
	return &s
}

// sound checks what must hold for every run at any time, and returns the run:
// the outcomes add up to the planned trials; every trial counts once; every
// phase has a start, an end and who caused it; the files agree with the index.
func (p *place) sound(dir string) *output.ShowRun {
	t := p.test
	t.Helper()
	s := p.show(dir)
	sum, outcomes := 0, map[record.Outcome]int{}
	for o, n := range s.Summary.Outcomes {
		if !slices.Contains(record.Outcomes, o) {
			t.Errorf("%s: no such outcome: %q", dir, o)
		}
		sum += n
	}
	if sum != s.Summary.Planned || len(s.Trials) != sum || s.Run.Trials != sum {
		t.Errorf("%s: planned %d, %d trials, manifest says %d, sum over outcomes %d: %v",
			dir, s.Summary.Planned, len(s.Trials), s.Run.Trials, sum, s.Summary.Outcomes)
	}
	ids := map[string]bool{}
	for i := range s.Trials {
		tr := &s.Trials[i]
		if ids[tr.ID] {
			t.Errorf("trial %s is there twice", tr.ID)
		}
		ids[tr.ID] = true
		outcomes[tr.Outcome]++
		p.soundTrial(tr)
	}
	for o, n := range s.Summary.Outcomes {
		if outcomes[o] != n {
			t.Errorf("%s: %d trials are %s, the summary says %d", dir, outcomes[o], o, n)
		}
	}
	return s
}

func (p *place) soundTrial(tr *output.ShowTrial) {
	t := p.test
	t.Helper()
	var accepted *output.ShowAttempt
	for i := range tr.Attempts {
		a := &tr.Attempts[i]
		if a.Attempt == tr.Accepted {
			accepted = a
		}
		if a.State != output.Published {
			soundPhases(t, a, a.Phases[:max(0, len(a.Phases)-1)]) // its process was killed in the last one
			continue
		}
		soundPhases(t, a, a.Phases)
		unmade := a.Outcome == record.Cancelled || a.Outcome == record.Preempted || a.Outcome == record.NotRun
		if len(a.Phases) < 2 && !unmade || len(a.Phases) == 0 || a.Start.IsZero() || a.End.Before(a.Start) {
			t.Errorf("%s: %s, from %v to %v, %d phases", a.Dir, a.Outcome, a.Start, a.End, len(a.Phases))
		}
		var r record.Result
		b, err := os.ReadFile(filepath.Join(a.Dir, record.ResultFile))
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		if err != nil || r.Trial != tr.ID || r.Attempt != a.Attempt || r.Outcome != a.Outcome {
			t.Errorf("%s: trial %s attempt %d is %s; result.json says trial %s attempt %d is %s (%v)",
				a.Dir, tr.ID, a.Attempt, a.Outcome, r.Trial, r.Attempt, r.Outcome, err)
		}
	}
	switch {
	case accepted == nil && tr.Outcome != record.NotRun && tr.Outcome != record.TaskInvalid:
		t.Errorf("trial %s is %s without an accepted attempt", tr.ID, tr.Outcome)
	case accepted != nil && accepted.Outcome != tr.Outcome:
		t.Errorf("trial %s is %s, its accepted attempt %s", tr.ID, tr.Outcome, accepted.Outcome)
	}
}

func soundPhases(t *testing.T, a *output.ShowAttempt, phases []record.Phase) {
	t.Helper()
	for i := range phases {
		if ph := &phases[i]; ph.Start.IsZero() || ph.End.IsZero() || ph.End.Before(ph.Start) || ph.Who == "" || ph.Name == "" {
			t.Errorf("%s: phase %+v", a.Dir, *ph)
		}
	}
}

// settled is sound for a run that berth ended itself. It also checks that
// summary.json agrees.
func (p *place) settled(dir string) *output.ShowRun {
	t := p.test
	t.Helper()
	s := p.sound(dir)
	var kept summary.Summary
	b, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	if err == nil {
		err = json.Unmarshal(b, &kept)
	}
	if err != nil || kept.Planned != s.Summary.Planned || kept.Attempts != s.Summary.Attempts || kept.Complete != s.Summary.Complete {
		t.Errorf("%s: summary.json %+v (%v), show %+v", dir, kept, err, *s.Summary)
	}
	for _, o := range record.Outcomes {
		if kept.Outcomes[o] != s.Summary.Outcomes[o] {
			t.Errorf("%s: %s: %d in summary.json, %d shown", dir, o, kept.Outcomes[o], s.Summary.Outcomes[o])
		}
	}
	return s
}

// published returns the attempts of a run folder that have a result, by folder.
// It reads the files and no journal.
func published(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "trials", "*", "attempt-*", record.ResultFile))
	e2etest.Must(t, err)
	all := map[string][]byte{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		e2etest.Must(t, err)
		all[f] = b
	}
	return all
}

// still checks that the results that were there before are unchanged.
func still(t *testing.T, before, after map[string][]byte) {
	t.Helper()
	for f, b := range before {
		if !bytes.Equal(after[f], b) {
			t.Errorf("%s was published and is %d bytes, was %d", f, len(after[f]), len(b))
		}
	}
}

// line is the part of a journal line that these tests read.
type line struct {
	Entry struct {
		Kind    string `json:"kind"`
		Trial   string `json:"trial"`
		Attempt int    `json:"attempt"`
	} `json:"entry"`
}

// journal returns the complete lines of all journals of a run.
func journal(t *testing.T, dir string) (lines []line) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "journal", "*.jsonl"))
	e2etest.Must(t, err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		e2etest.Must(t, err)
		for text := range bytes.Lines(b) {
			var l line
			if json.Unmarshal(text, &l) == nil {
				lines = append(lines, l)
			}
		}
	}
	return lines
}

// count returns the number of journal lines of a kind.
func count(t *testing.T, dir, kind string) (n int) {
	t.Helper()
	for _, l := range journal(t, dir) {
		if l.Entry.Kind == kind {
			n++
		}
	}
	return n
}
