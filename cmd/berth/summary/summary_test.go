package summary_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// state makes a trial of cell c with attempts of these outcomes.
func state(c int, task string, outcomes ...record.Outcome) *store.TrialState {
	t := &store.TrialState{Trial: &store.Trial{ID: task, Task: task, Cell: c}}
	for i, o := range outcomes {
		score := 0.5
		t.Attempts = append(t.Attempts, store.AttemptState{Number: i + 1, Result: &store.Brief{
			Outcome: o, Integrity: record.Checked, Score: &score, Digests: map[string]string{"agent a": "sha256:0123456789abcdef"},
		}})
	}
	return t
}

func cells(n int) *store.Manifest {
	m := &store.Manifest{}
	for i := range n {
		name := string(rune('a' + i))
		m.Cells = append(m.Cells, store.Cell{Index: i, Key: "agent=" + name, Agent: name, Choices: map[string]string{"agent": name}})
	}
	return m
}

func TestASummaryHasBothDenominators(t *testing.T) {
	t.Parallel()
	x := &store.Index{Trials: []*store.TrialState{
		state(0, "t1", record.Passed), state(0, "t2", record.Failed), state(0, "t3", record.EnvironmentError), state(0, "t4"),
		state(1, "t1", record.EnvironmentError, record.Passed), state(1, "t2", record.Cancelled), state(1, "t3", record.AgentError),
		{Trial: &store.Trial{Task: "t5", Cell: 1, Invalid: "x"}},
	}}
	s := summary.Of(cells(2), x)
	sum := 0
	for _, n := range s.Outcomes {
		sum += n
	}
	if s.Planned != 8 || sum != 8 || s.Complete || s.Attempts != 7 {
		t.Errorf("summary: %+v", s)
	}
	a, b := s.Cells[0], s.Cells[1]
	if a.Planned != 4 || a.Measured != 2 || *a.OfMeasured != 0.5 || *a.OfPlanned != 0.25 {
		t.Errorf("first cell: %+v", a)
	}
	if b.Planned != 4 || b.Measured != 2 || *b.OfMeasured != 0.5 || *b.OfPlanned != 0.25 || *b.Score != 0.5 {
		t.Errorf("second cell: %+v", b)
	}
	if !slices.ContainsFunc(s.Marks, func(m string) bool { return strings.Contains(m, "not the agent's") }) {
		t.Errorf("a headline with 1 of 8 infrastructure outcomes is not marked: %q", s.Marks)
	}
}

// A row whose only trials ended in errors of verification has the score that they
// have in the row of their cell. Without any score in the run there is none.
func TestARowOfErrorsHasTheScoreOfItsCell(t *testing.T) {
	t.Parallel()
	failed := worked(0, "t2", record.VerifierError)
	s := summary.Of(cells(1), &store.Index{Trials: []*store.TrialState{state(0, "t1", record.Passed), failed, state(0, "t3")}})
	if s.Cells[0].Score == nil || *s.Cells[0].Score != 0.25 {
		t.Errorf("cell: %v", s.Cells[0].Score)
	}
	if one := s.Tasks[1].Score; one == nil || *one != 0 {
		t.Errorf("task of the error: %v", one)
	}
	if s = summary.Of(cells(1), &store.Index{Trials: []*store.TrialState{failed}}); s.Tasks[0].Score != nil {
		t.Errorf("a run without scores: %v", *s.Tasks[0].Score)
	}
}

func TestNothingToDivideByIsNoRate(t *testing.T) {
	t.Parallel()
	s := summary.Of(cells(1), &store.Index{Trials: []*store.TrialState{state(0, "t", record.RateLimited)}})
	if c := s.Cells[0]; c.OfMeasured != nil || c.OfPlanned == nil || *c.OfPlanned != 0 || !s.Complete {
		t.Errorf("cell: %+v", c)
	}
}

func TestTrialsThatTheirBudgetEndedAreCounted(t *testing.T) {
	t.Parallel()
	ended, other, unmeasured := state(0, "t1", record.Failed), state(0, "t2", record.Failed), state(0, "t3", record.ModelError)
	ended.Attempts[0].Result.AgentEnd = record.Budget
	unmeasured.Attempts[0].Result.AgentEnd = record.Budget
	s := summary.Of(cells(1), &store.Index{Trials: []*store.TrialState{ended, other, unmeasured}})
	if s.Cells[0].Budget != 1 || s.Tasks[0].Budget != 1 || s.Tasks[1].Budget != 0 {
		t.Errorf("cells %+v, tasks %+v", s.Cells, s.Tasks)
	}
}

// A cell with results that may be forged must be marked.
func TestExposedResultsAreCountedInTheirRows(t *testing.T) {
	t.Parallel()
	exposed, unmeasured := state(0, "t1", record.Passed), state(0, "t3", record.VerifierError)
	exposed.Attempts[0].Result.Integrity = record.Exposed
	unmeasured.Attempts[0].Result.Integrity = record.Exposed // it must not be counted
	m := cells(2)
	s := summary.Of(m, &store.Index{Trials: []*store.TrialState{exposed, state(0, "t2", record.Passed), unmeasured, state(1, "t1", record.Passed)}})
	if got := []int{s.Cells[0].Exposed, s.Cells[1].Exposed, s.Tasks[0].Exposed, s.Tasks[1].Exposed}; !slices.Equal(got, []int{1, 0, 1, 0}) {
		t.Errorf("exposed in two cells, and of the first task in both: %v", got)
	}
}

// What passed and is not checked counts beside the rest.
func TestPassesThatAreCheckedAreCounted(t *testing.T) {
	t.Parallel()
	exposed := state(0, "t1", record.Passed)
	exposed.Attempts[0].Result.Integrity = record.Exposed
	s := summary.Of(cells(1), &store.Index{Trials: []*store.TrialState{exposed, state(0, "t2", record.Passed), state(0, "t3", record.Failed), state(0, "t4", record.EnvironmentError)}})
	if r := s.Cells[0]; r.Passed != 2 || r.PassedChecked != 1 || *r.OfPlanned != 0.5 || *r.OfMeasured != 2.0/3 {
		t.Errorf("%+v", r)
	}
	if r := s.Tasks[0]; r.Passed != 1 || r.PassedChecked != 0 {
		t.Errorf("task %+v", r)
	}
}

// worked makes a trial whose agent worked, with an outcome that has no score.
func worked(c int, task string, o record.Outcome) *store.TrialState {
	t := state(c, task, o)
	t.Attempts[0].Result.AgentEnd, t.Attempts[0].Result.Score = record.Yielded, nil
	return t
}

// An agent that breaks its verification must not take the attempt out of the
// denominator.
func TestAnAttemptWithoutAResultIsMeasuredOnceTheAgentHasWorked(t *testing.T) {
	t.Parallel()
	for o, want := range map[record.Outcome][2]int{ // measured before and after the agent worked
		record.VerifierError: {0, 1}, record.ArtifactMissing: {0, 1}, record.IntegrityViolation: {0, 1},
		record.Failed: {1, 1}, record.AgentError: {1, 1},
		record.EnvironmentError: {0, 0}, record.ModelError: {0, 0}, record.RateLimited: {0, 0}, record.PluginCrashed: {0, 0},
		record.TaskInvalid: {0, 0}, record.Preempted: {0, 0}, record.Cancelled: {0, 0}, record.NotRun: {0, 0},
	} {
		before := summary.Of(cells(1), &store.Index{Trials: []*store.TrialState{state(0, "t", o)}}).Cells[0].Measured
		after := summary.Of(cells(1), &store.Index{Trials: []*store.TrialState{worked(0, "t", o)}}).Cells[0].Measured
		if got := [2]int{before, after}; got != want {
			t.Errorf("%s: measured %v, want %v", o, got, want)
		}
	}
	s := summary.Of(cells(1), &store.Index{Trials: []*store.TrialState{
		state(0, "t1", record.Passed), worked(0, "t2", record.VerifierError), worked(0, "t3", record.IntegrityViolation), worked(0, "t4", record.AgentError),
	}})
	c := s.Cells[0]
	if *c.OfMeasured != 0.25 || *c.OfPlanned != 0.25 || *c.Score != 0.125 || len(s.Marks) != 0 {
		t.Errorf("of measured %v, of planned %v, score %v, marks %q", *c.OfMeasured, *c.OfPlanned, *c.Score, s.Marks)
	}
}

// The passes of an oracle must not count as those of an agent.
func TestTheTableOfTasksDoesNotPoolCells(t *testing.T) {
	t.Parallel()
	s := summary.Of(cells(2), &store.Index{Trials: []*store.TrialState{
		state(0, "t2", record.Passed), state(0, "t1", record.Passed), state(1, "t1", record.Failed), state(1, "t2", record.Failed), state(1, "t2", record.Passed),
	}})
	var got []string
	for _, r := range s.Tasks {
		got = append(got, fmt.Sprintf("%s %s %s %d/%d", r.Name, r.Cell, r.Agent, r.Passed, r.Planned))
	}
	if want := []string{"t1 agent=a a 1/1", "t1 agent=b b 0/1", "t2 agent=a a 1/1", "t2 agent=b b 1/2"}; !slices.Equal(got, want) {
		t.Errorf("rows: %q, want %q", got, want)
	}
}

func TestTasksOfOneNameInTwoDatasetsHaveARowEach(t *testing.T) {
	t.Parallel()
	m := &store.Manifest{Cells: []store.Cell{{Key: "agent=a"}}, Trials: []store.Trial{
		{ID: "1", Task: "one", Dataset: "left"}, {ID: "2", Task: "one", Dataset: "right"}, {ID: "3", Task: "two", Dataset: "right"},
	}}
	x := &store.Index{}
	for i := range m.Trials {
		x.Trials = append(x.Trials, &store.TrialState{Trial: &m.Trials[i]})
	}
	var got []string
	for _, r := range summary.Of(m, x).Tasks {
		got = append(got, r.Name+" "+r.Dataset)
	}
	if want := []string{"one left", "one right", "two "}; !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
}

func TestScoresOfWhichNoneDecidesHaveMeans(t *testing.T) {
	t.Parallel()
	m := &store.Manifest{Cells: []store.Cell{{Key: "agent=a"}}, Trials: []store.Trial{{ID: "1", Task: "one"}, {ID: "2", Task: "one"}}}
	x := &store.Index{}
	for i, style := range []float64{0.5, 1} {
		b := store.BriefOf(&record.Result{Outcome: record.Scored, Scores: map[string]float64{"correctness": 1, "style": style}})
		x.Trials = append(x.Trials, &store.TrialState{Trial: &m.Trials[i], Attempts: []store.AttemptState{{Number: 1, Result: b}}})
	}
	s := summary.Of(m, x)
	if got := s.Cells[0].Scores; got["correctness"] != 1 || got["style"] != 0.75 || len(s.Marks) == 0 || !strings.Contains(s.Marks[0], "success { key =") {
		t.Errorf("means %v, marks %q", got, s.Marks)
	}
	m.Trials = append(m.Trials, store.Trial{ID: "3", Task: "one"}, store.Trial{ID: "4", Task: "another"})
	for i := range 2 { // they count as 0 in the scores of their task
		x.Trials = append(x.Trials, &store.TrialState{Trial: &m.Trials[2+i], Attempts: []store.AttemptState{{Number: 1, Result: &store.Brief{Outcome: record.AgentError}}}})
	}
	if got := summary.Of(m, x).Cells[0].Scores; got["style"] != 0.5 {
		t.Errorf("means with an error %v", got)
	}
	x.Trials[0].Attempts[0].Result.Scores["style"] = 7 // no share
	if got := summary.Of(m, x).Cells[0].Scores; got["style"] != 4 {
		t.Errorf("means of a raw score with an error %v", got)
	}
}

func TestACostThatIsNotKnownIsNotZero(t *testing.T) {
	t.Parallel()
	usd := 1.5
	known, unknown := state(0, "k", record.Passed), state(0, "u", record.Passed)
	known.Attempts[0].Result.CostUSD = &usd
	unknown.Attempts[0].Result.Unpriced = true
	s := summary.Of(cells(1), &store.Index{Trials: []*store.TrialState{unknown}})
	if s.CostUSD != nil || !s.Unpriced {
		t.Errorf("cost %v, unpriced %t", s.CostUSD, s.Unpriced)
	}
	s = summary.Of(cells(1), &store.Index{Trials: []*store.TrialState{known, unknown}})
	if s.CostUSD == nil || *s.CostUSD != 1.5 || !s.Unpriced {
		t.Errorf("cost %v, unpriced %t", s.CostUSD, s.Unpriced)
	}
}

// Images are built again on another machine. The summary reports differences,
// which a plan cannot know.
func TestAttemptsOfDifferentVersionsAreMarked(t *testing.T) {
	t.Parallel()
	first, second := state(0, "t1", record.Passed), state(0, "t2", record.Passed)
	x := &store.Index{Trials: []*store.TrialState{first, second}}
	if s := summary.Of(cells(1), x); len(s.Marks) != 0 {
		t.Errorf("marks: %q", s.Marks)
	}
	second.Attempts[0].Result.Digests = map[string]string{"agent a": "sha256:other"}
	if s := summary.Of(cells(1), x); !slices.Contains(s.Marks, "attempts were made with more than one version of agent a") {
		t.Errorf("marks: %q", s.Marks)
	}
}

// A trial that never runs is planned, and a run without others is complete.
func TestInvalidAndRefusedTrialsArePlanned(t *testing.T) {
	t.Parallel()
	invalid, refused := state(0, "t1"), state(0, "t2")
	invalid.Invalid, refused.Refused = "no instruction", "asks for several containers"
	s := summary.Of(cells(1), &store.Index{Trials: []*store.TrialState{invalid, refused, state(0, "t3", record.Passed)}})
	if s.Planned != 3 || !s.Complete {
		t.Errorf("planned %d, complete %t", s.Planned, s.Complete)
	}
}

func TestLabelsAreCounted(t *testing.T) {
	t.Parallel()
	x := &store.Index{}
	add := func(o record.Outcome, text string) {
		s := state(0, fmt.Sprintf("t%d", len(x.Trials)), o)
		s.Attempts[0].Result.Labels = map[string]string{"status": text}
		x.Trials = append(x.Trials, s)
	}
	for range 3 {
		add(record.Passed, "pass")
	}
	add(record.Failed, "budget_exhausted")
	add(record.EnvironmentError, "fail") // not measured
	got := summary.Of(cells(1), x).Cells[0].Labels["status"]
	if len(got) != 2 || got["pass"] != 3 || got["budget_exhausted"] != 1 {
		t.Errorf("counted %v", got)
	}
	if texts := summary.ByCount(got); texts[0] != "pass" {
		t.Errorf("in the order %v", texts)
	}
	for i := range 100 {
		add(record.Failed, fmt.Sprint(i))
	}
	got = summary.Of(cells(1), x).Cells[0].Labels["status"]
	if len(got) != 51 || got["pass"] != 3 || got[summary.OtherLabels] != 52 {
		t.Errorf("%d texts, %d others", len(got), got[summary.OtherLabels])
	}
}

func TestALabelStandsInPlaceOfAScore(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		labelled, of int
		want         string
	}{{0, 0, ""}, {0, 10, ""}, {9, 10, ""}, {10, 10, "ife"}, {19, 20, "ife"}, {1, 1, "ife"}} {
		x := &store.Index{}
		for i := range tt.of {
			s := state(0, fmt.Sprintf("t%d", i), record.Scored)
			if i < tt.labelled {
				s.Attempts[0].Result.Labels = map[string]string{summary.LabelIFE: fmt.Sprint("for reason ", i)}
			}
			x.Trials = append(x.Trials, s)
		}
		if got := summary.Of(cells(1), x).Cells[0].Instead; got != tt.want {
			t.Errorf("%d of %d: %q, want %q", tt.labelled, tt.of, got, tt.want)
		}
	}
}

// Whoever runs a measured trial again chooses among results, so that numbers say it.
func TestMeasuredTrialsThatRanAgainAreTold(t *testing.T) {
	t.Parallel()
	again, regraded, retried := state(0, "a", record.VerifierError, record.Passed), state(0, "b", record.VerifierError, record.Passed), state(0, "c", record.EnvironmentError, record.Passed)
	for _, s := range []*store.TrialState{again, regraded, retried} {
		s.Attempts[0].Result.AgentEnd = record.Yielded
	}
	regraded.Attempts[1].Result.Origin = 1
	x := &store.Index{Trials: []*store.TrialState{again, regraded, retried}}
	if got := summary.Interventions(x); len(got) != 2 || !strings.HasPrefix(got[0], "1 trial was run again, although it was measured") || !strings.HasPrefix(got[1], "1 trial counts by a verdict of berth regrade") {
		t.Errorf("%q", got)
	}
}
