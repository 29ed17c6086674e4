package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// expected is the expected result of a task of examples/faults.
type expected struct {
	task     string
	outcomes []record.Outcome // any of them
	// unmarked: a pass must be checked. Otherwise it must be exposed.
	unmarked bool
	finding  string // code of a finding that must be there
	err      string // in its error
}

// The tasks that go wrong on purpose have the results that their README
// promises. TestATestThatPrintsAGigabyte runs the one that prints too much.
func TestTasksThatGoWrongOnPurpose(t *testing.T) {
	t.Parallel()
	invalid := []record.Outcome{record.VerifierError}
	for mode, want := range map[string][]expected{
		"live": {
			// Never an unmarked pass: "a sample that cheats ends as exposed or without a reward".
			{task: "cheat", outcomes: []record.Outcome{record.Passed, record.Failed, record.VerifierError, record.IntegrityViolation}, finding: "planted"},
			{task: "honest", outcomes: []record.Outcome{record.Passed}, unmarked: true},
			{task: "server", outcomes: []record.Outcome{record.Passed}, finding: "left_running"},
			{task: "hang", outcomes: invalid, err: "the tests were stopped after"},
			{task: "forks", outcomes: invalid, err: "the tests were stopped after"},
			{task: "nan", outcomes: invalid, err: "NaN"},
		},
		"restarted": {
			{task: "cheat", outcomes: []record.Outcome{record.Failed}, finding: "planted"},
			{task: "honest", outcomes: []record.Outcome{record.Passed}, unmarked: true},
			{task: "server", outcomes: []record.Outcome{record.Failed}, finding: "processes_ended"},
			{task: "hang", outcomes: invalid, err: "the tests were stopped after"},
			{task: "forks", outcomes: invalid, err: "the tests were stopped after"},
			{task: "nan", outcomes: invalid, err: "NaN"},
		},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			onPurpose(t, mode, want)
		})
	}
}

func onPurpose(t *testing.T, mode string, want []expected) {
	t.Helper()
	p := newPlace(t)
	for _, w := range want {
		e2etest.Must(t, os.CopyFS(filepath.Join(p.dir, "tasks", w.task), os.DirFS(filepath.Join(tree(), "examples", "faults", "tasks", w.task))))
	}
	// The largest allowed number of processes try to start more, which slows
	// down this machine.
	body := fmt.Sprintf("verify = %q\n  matrix {\n    agent = [agent.oracle]\n  }\n  limits {\n    in_flight = 3\n  }", mode)
	p.write("berth.hcl", e2etest.Experiment("local", "pids = 256", body, ""))
	r := p.berth("run", ".").want(t, 1) // complete, with errors
	show := p.settled(p.run())
	if !show.Summary.Complete || len(show.Trials) != len(want) {
		t.Errorf("%d trials, complete %v:\n%s", len(show.Trials), show.Summary.Complete, r.stdout)
	}
	for _, w := range want {
		i := slices.IndexFunc(show.Trials, func(tr output.ShowTrial) bool { return tr.Task == "berth-faults/"+w.task })
		if i < 0 || len(show.Trials[i].Attempts) != 1 {
			t.Errorf("%s: no such trial, or not one attempt", w.task)
			continue
		}
		w.check(t, mode, e2etest.Result(t, show.Trials[i].Attempts[0].Dir))
	}
	p.clean()
}

func (w *expected) check(t *testing.T, mode string, r *record.Result) {
	t.Helper()
	if r.Mode != mode || !slices.Contains(w.outcomes, r.Outcome) {
		t.Errorf("%s in %s: %s in mode %s, want %v; error %+v", w.task, mode, r.Outcome, r.Mode, w.outcomes, r.Error)
	}
	if r.Outcome == record.Passed && w.unmarked != (r.Integrity == record.Checked) {
		t.Errorf("%s in %s: a pass that is %s: %q", w.task, mode, r.Integrity, r.Reasons)
	}
	if r.Outcome != record.Passed && r.Score != nil && *r.Score != 0 {
		t.Errorf("%s in %s: %s with score %v", w.task, mode, r.Outcome, *r.Score)
	}
	if w.err != "" && (r.Error == nil || !strings.Contains(r.Error.Message, w.err) || r.Error.Boundary != record.ByVerifier || r.Score != nil) {
		t.Errorf("%s in %s: error %+v, score %v; want %q of the verifier and no score", w.task, mode, r.Error, r.Score, w.err)
	}
	if w.finding != "" && !slices.ContainsFunc(r.Findings, func(f record.Finding) bool { return f.Code == w.finding }) {
		t.Errorf("%s in %s: no finding %s among %+v", w.task, mode, w.finding, r.Findings)
	}
}

// floodIsCut checks that the run does not keep a gigabyte of output of a test,
// and says that it was truncated.
func (p *place) floodIsCut(show *output.ShowRun) {
	t := p.test
	t.Helper()
	for i := range show.Trials {
		if show.Trials[i].Task != "berth-faults/flood" {
			continue
		}
		kept := filepath.Join(show.Trials[i].Attempts[0].Dir, "verifier", "test-stdout.txt")
		info, err := os.Stat(kept)
		if err != nil || info.Size() > 64<<20 || info.Size() == 0 {
			t.Errorf("%s: %v, %v", kept, info, err)
			continue
		}
		if text := read(kept); !strings.Contains(text, "cut") && !strings.Contains(text, "left out") && !strings.Contains(text, "dropped") {
			t.Errorf("%s (%d bytes) does not say that it was cut; it ends with %q", kept, len(text), text[max(0, len(text)-300):])
		}
	}
}
