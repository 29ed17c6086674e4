package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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

// sound checks what must hold for every run at any time, beside what an audit finds,
// and returns the run: the outcomes add up to the planned trials, and every trial
// counts once.
func (p *place) sound(dir string) *output.ShowRun {
	t := p.test
	t.Helper()
	s := p.show(dir)
	outcomes, ids := map[record.Outcome]int{}, map[string]bool{}
	for i := range s.Trials {
		tr := &s.Trials[i]
		outcomes[tr.Outcome]++
		ids[tr.ID] = true
	}
	if len(ids) != s.Summary.Planned || len(s.Trials) != len(ids) || s.Run.Trials != len(ids) || !sameCounts(outcomes, s.Summary.Outcomes) {
		t.Errorf("%s: planned %d, %d trials with %d ids, manifest says %d, outcomes %v, the summary says %v",
			dir, s.Summary.Planned, len(s.Trials), len(ids), s.Run.Trials, outcomes, s.Summary.Outcomes)
	}
	return s
}

// sameCounts compares counts, where 0 is the same as none.
func sameCounts(a, b map[record.Outcome]int) bool {
	for _, o := range record.Outcomes {
		if a[o] != b[o] {
			return false
		}
	}
	return true
}

// settled is sound for a run that berth ended itself. It also checks that
// summary.json agrees.
func (p *place) settled(dir string) *output.ShowRun {
	t := p.test
	t.Helper()
	s := p.sound(dir)
	var kept summary.Summary
	e2etest.Must(t, json.Unmarshal([]byte(e2etest.Read(t, dir, "summary.json")), &kept))
	if kept.Planned != s.Summary.Planned || kept.Attempts != s.Summary.Attempts || kept.Complete != s.Summary.Complete || !sameCounts(kept.Outcomes, s.Summary.Outcomes) {
		t.Errorf("%s: summary.json %+v, show %+v", dir, kept, *s.Summary)
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
