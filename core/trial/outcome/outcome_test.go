package outcome_test

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

func verdict(by string, d verifier.Decision, scores ...float64) verifier.Verdict {
	v := verifier.Verdict{Verifier: by, Decision: d}
	for i, s := range scores {
		if v.Scores == nil {
			v.Scores = map[string]verifier.Score{}
		}
		v.Scores[string(rune('a'+i))] = verifier.Score{Value: s}
	}
	return v
}

func done(name string, vs ...verifier.Verdict) outcome.Stage {
	return outcome.Stage{Name: name, Ran: true, Verified: true, AgentEnd: record.Yielded, Verdicts: vs}
}

func failed(o record.Outcome) *record.Error {
	return &record.Error{Outcome: o, Message: string(o)}
}

func one(string) int { return 1 }

func TestRoundsKeepOneVerdictAVerifier(t *testing.T) {
	t.Parallel()
	vs := []verifier.Verdict{
		verdict("x", verifier.Continue, 0.5), verdict("y", verifier.Scored, 1),
		verdict("x", verifier.Pass, 0.9), verdict("x", verifier.Continue, 0.4, 7),
	}
	for _, tt := range []struct {
		r, decide task.Reducer
		want      verifier.Decision
		score     float64
		second    bool // score b is there
	}{
		{"", "", verifier.Continue, 0.4, true},
		{task.ReduceLast, task.ReduceLast, verifier.Continue, 0.4, true},
		{task.ReduceMax, "", verifier.Continue, 0.9, true},
		{task.ReduceMin, "", verifier.Continue, 0.4, true},
		{task.ReduceMean, "", verifier.Continue, 0.6, true},
		{"", task.ReduceMax, verifier.Pass, 0.4, true},
		{task.ReduceMin, task.ReduceMax, verifier.Pass, 0.4, true},
		{task.ReduceMax, task.ReduceMin, verifier.Continue, 0.9, true},
	} {
		got := outcome.Rounds(&task.Interaction{Reduce: tt.r, Decide: tt.decide}, vs)
		if len(got) != 2 || got[0].Verifier != "x" || got[1].Verifier != "y" {
			t.Fatalf("Rounds(%q) = %+v; want one of x and one of y", tt.r, got)
		}
		_, second := got[0].Scores["b"]
		if d := got[0].Scores["a"].Value - tt.score; got[0].Decision != tt.want || d > 1e-9 || d < -1e-9 || second != tt.second {
			t.Errorf("Rounds(%q)[0] = %+v; want %s and %v", tt.r, got[0], tt.want, tt.score)
		}
	}
	if vs[3].Scores["a"].Value != 0.4 {
		t.Error("Rounds changed what it was given")
	}
}

// The decision that counts brings the rest of its verdict. One that decides nothing
// counts only where there is no other.
func TestWhichDecisionOfTheRoundsCounts(t *testing.T) {
	t.Parallel()
	round := func(n int, d verifier.Decision) verifier.Verdict {
		return verifier.Verdict{Verifier: "x", Round: n, Decision: d}
	}
	for _, tt := range []struct {
		vs              []verifier.Decision
		last, best, bad int // rounds
	}{
		{[]verifier.Decision{verifier.Pass, verifier.Fail, verifier.Continue}, 3, 1, 2},
		{[]verifier.Decision{verifier.Continue, verifier.Pass, verifier.Pass}, 3, 3, 1},
		{[]verifier.Decision{verifier.Fail, verifier.Scored}, 2, 1, 1},
		{[]verifier.Decision{verifier.Scored, verifier.Scored}, 2, 2, 2},
	} {
		var vs []verifier.Verdict
		for i, d := range tt.vs {
			vs = append(vs, round(i+1, d))
		}
		for r, want := range map[task.Reducer]int{"": tt.last, task.ReduceLast: tt.last, task.ReduceMax: tt.best, task.ReduceMin: tt.bad} {
			if got := outcome.Rounds(&task.Interaction{Decide: r}, vs)[0]; got.Round != want || got.Decision != tt.vs[want-1] {
				t.Errorf("%s of %v is that of round %d; want %d", r, tt.vs, got.Round, want)
			}
		}
	}
}

func TestTheUserAnswersOnlyWhenSomebodyWantsMore(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		vs   []verifier.Verdict
		want bool
	}{
		{"nobody judges", nil, true},
		{"continue", []verifier.Verdict{verdict("x", verifier.Continue)}, true},
		{"pass", []verifier.Verdict{verdict("x", verifier.Pass)}, false},
		{"scored", []verifier.Verdict{verdict("x", verifier.Scored)}, false},
		{"one has failed it", []verifier.Verdict{verdict("x", verifier.Continue), verdict("y", verifier.Fail)}, false},
		{"one is content", []verifier.Verdict{verdict("x", verifier.Pass), verdict("y", verifier.Continue)}, true},
	} {
		if got := outcome.GoOn(tt.vs); got != tt.want {
			t.Errorf("%s: GoOn = %v", tt.name, got)
		}
	}
}

type outcomeCase struct {
	name    string
	success task.Success
	stages  []outcome.Stage
	stopped *record.Error
	violate bool
	want    record.Outcome
	err     bool
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	for _, tt := range slices.Concat(outcomeCases(), missingCases()) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := outcome.Outcome(outcome.Facts{
				Success: tt.success, Stages: tt.stages, Stopped: tt.stopped, Violated: tt.violate,
				Scores: outcome.Scores(tt.success, tt.stages, one),
			})
			if got != tt.want || (err != nil) != tt.err {
				t.Errorf("got %s, %+v; want %s, error %v", got, err, tt.want, tt.err)
			}
		})
	}
}

func outcomeCases() []outcomeCase {
	pass, fail, scored := verifier.Pass, verifier.Fail, verifier.Scored
	rule := task.Success{Score: "a", AtLeast: new(float64(1))}
	lost := done("1")
	lost.Verified, lost.AgentEnd, lost.Failure = false, record.SandboxLost, failed(record.AgentError)
	crashedPassed := done("1", verdict("x", pass))
	crashedPassed.AgentEnd, crashedPassed.Failure = record.Crashed, failed(record.AgentError)
	crashedFailed := done("1", verdict("x", fail))
	crashedFailed.Failure = failed(record.AgentError)
	timeout := done("1", verdict("x", pass))
	timeout.AgentEnd = record.Timeout
	broken := outcome.Stage{Name: "2", Ran: true, Failure: failed(record.VerifierError)}
	return []outcomeCase{
		{name: "pass", stages: []outcome.Stage{done("1", verdict("x", pass))}, want: record.Passed},
		{name: "pass and scored", stages: []outcome.Stage{done("1", verdict("x", pass), verdict("y", scored))}, want: record.Passed},
		{name: "pass and fail", stages: []outcome.Stage{done("1", verdict("x", pass), verdict("y", fail))}, want: record.Failed},
		{name: "scored alone", stages: []outcome.Stage{done("1", verdict("x", scored, 3))}, want: record.Scored},
		{name: "continue at the end is not a pass", stages: []outcome.Stage{done("1", verdict("x", verifier.Continue))}, want: record.Failed},
		{name: "no verifier", stages: []outcome.Stage{done("1")}, want: record.Scored},
		{name: "reward 1", success: rule, stages: []outcome.Stage{done("1", verdict("x", scored, 1))}, want: record.Passed},
		{name: "reward 0.99", success: rule, stages: []outcome.Stage{done("1", verdict("x", scored, 0.99))}, want: record.Failed},
		{
			name: "a score without a threshold", success: task.Success{Score: "a"},
			stages: []outcome.Stage{done("1", verdict("x", scored, 5))}, want: record.Scored,
		},
		{
			name: "the rule wins over a decision", success: rule,
			stages: []outcome.Stage{done("1", verdict("x", fail, 1))}, want: record.Passed,
		},
		{
			name:   "two stages, one fails",
			stages: []outcome.Stage{done("1", verdict("x", pass)), done("2", verdict("x", fail))}, want: record.Failed,
		},
		{
			name:   "a stage that was never run is not passed",
			stages: []outcome.Stage{done("1", verdict("x", pass)), {Name: "2"}}, want: record.Failed,
		},
		{
			name: "the mean counts what was never run as 0", success: task.Success{Score: "a", AtLeast: new(float64(0.6))},
			stages: []outcome.Stage{done("1", verdict("x", scored, 1)), {Name: "2"}}, want: record.Failed,
		},
		{
			name: "last counts what was never run as 0", success: task.Success{Score: "a", Reduce: task.ReduceLast, AtLeast: new(float64(0.5))},
			stages: []outcome.Stage{done("1", verdict("x", scored, 1)), {Name: "2"}}, want: record.Failed,
		},
		{name: "sandbox lost", stages: []outcome.Stage{lost}, want: record.AgentError, err: true},
		{
			name: "sandbox lost under a rule that the mean would meet", success: task.Success{Score: "a", AtLeast: new(float64(0.5))},
			stages: []outcome.Stage{done("0", verdict("x", scored, 1)), lost}, want: record.AgentError, err: true,
		},
		{name: "a timeout whose work passes", stages: []outcome.Stage{timeout}, want: record.Passed},
		{name: "a crash whose work passes", stages: []outcome.Stage{crashedPassed}, want: record.Passed, err: true},
		{name: "a crash whose work fails", stages: []outcome.Stage{crashedFailed}, want: record.AgentError, err: true},
		{
			name: "a hole of ours is not a score", success: task.Success{Score: "a", AtLeast: new(float64(0.1))},
			stages: []outcome.Stage{done("1", verdict("x", scored, 1)), broken}, want: record.VerifierError, err: true,
		},
		{
			name: "our hole wins over the agent's", stages: []outcome.Stage{lost, broken}, want: record.VerifierError, err: true,
		},
		{name: "violated, and the agent failed", violate: true, stages: []outcome.Stage{lost}, want: record.AgentError, err: true},
		{name: "violated", violate: true, stages: []outcome.Stage{done("1", verdict("x", pass))}, want: record.IntegrityViolation},
		{
			name: "cancelled wins", stopped: failed(record.Cancelled), violate: true,
			stages: []outcome.Stage{broken}, want: record.Cancelled, err: true,
		},
	}
}

// missingCases are of rules that name a score which not every verdict has.
func missingCases() []outcomeCase {
	pass, fail, scored := verifier.Pass, verifier.Fail, verifier.Scored
	rule, other := task.Success{Score: "a", AtLeast: new(float64(1))}, task.Success{Score: "z", AtLeast: new(float64(1))}
	return []outcomeCase{
		{name: "reward missing", success: rule, stages: []outcome.Stage{done("1", verdict("x", scored))}, want: record.VerifierError, err: true},
		{name: "another reward", success: other, stages: []outcome.Stage{done("1", verdict("x", scored, 1))}, want: record.Scored},
		{name: "a missing score without a threshold", success: task.Success{Score: "z"}, stages: []outcome.Stage{done("1", verdict("x", scored, 1))}, want: record.Scored},
		{
			name: "another reward in one stage, none in the next", success: other,
			stages: []outcome.Stage{done("1", verdict("x", scored, 1)), done("2", verdict("x", scored))}, want: record.VerifierError, err: true,
		},
		{name: "a pass without the score", success: rule, stages: []outcome.Stage{done("1", verdict("x", pass))}, want: record.Passed},
		{name: "a fail without the score", success: rule, stages: []outcome.Stage{done("1", verdict("x", fail))}, want: record.Failed},
		{name: "a pass with another score", success: other, stages: []outcome.Stage{done("1", verdict("x", pass, 0))}, want: record.Passed},
		{name: "a fail with another score", success: other, stages: []outcome.Stage{done("1", verdict("x", fail, 1))}, want: record.Failed},
		{
			name: "one verifier gives the score, another one decides", success: rule,
			stages: []outcome.Stage{done("1", verdict("x", scored, 0), verdict("y", pass))}, want: record.Failed,
		},
		{
			name: "a stage with the score, and one that passes without", success: rule,
			stages: []outcome.Stage{done("1", verdict("x", scored, 1)), done("2", verdict("x", pass))}, want: record.Passed,
		},
		{
			name: "a stage with the score, and one that fails without", success: rule,
			stages: []outcome.Stage{done("1", verdict("x", scored, 1)), done("2", verdict("x", fail))}, want: record.Failed,
		},
		{
			name: "a pass without the score, and a stage that was never run", success: rule,
			stages: []outcome.Stage{done("1", verdict("x", pass)), {Name: "2"}}, want: record.Failed,
		},
		{name: "no verifier for a score that decides", success: rule, stages: []outcome.Stage{done("1")}, want: record.VerifierError, err: true},
	}
}

func TestScoresOfAbortedStagesAreZero(t *testing.T) {
	t.Parallel()
	stages := []outcome.Stage{
		done("1", verdict("x", verifier.Scored, 1, 4)),
		done("none"),
		{Name: "3"},
		{Name: "4", Ran: true, Failure: failed(record.VerifierError)},
	}
	verifiers := func(name string) int {
		if name == "none" {
			return 0
		}
		return 1
	}
	for _, tt := range []struct {
		reduce task.Reducer
		want   map[string]float64
	}{
		{"", map[string]float64{"a": 1. / 3, "b": 4. / 3}},
		{task.ReduceLast, map[string]float64{"a": 0, "b": 0}},
		{task.ReduceMax, map[string]float64{"a": 1, "b": 4}},
		{task.ReduceMin, map[string]float64{"a": 0, "b": 0}},
	} {
		if got := outcome.Scores(task.Success{Reduce: tt.reduce}, stages, verifiers); !maps.Equal(got, tt.want) {
			t.Errorf("Scores(%q) = %v; want %v", tt.reduce, got, tt.want)
		}
	}
	if got := outcome.Scores(task.Success{}, []outcome.Stage{done("1")}, one); got != nil {
		t.Errorf("Scores of nothing = %v", got)
	}
}

func TestEnoughToGoOn(t *testing.T) {
	t.Parallel()
	least := map[string]float64{"a": 0.5}
	for _, tt := range []struct {
		name  string
		stage outcome.Stage
		least map[string]float64
		want  bool
		why   string
	}{
		{"nothing asked", done("1", verdict("x", verifier.Fail, 0)), nil, true, ""},
		{"reached", done("1", verdict("x", verifier.Fail, 0.5)), least, true, ""},
		{"not reached", done("1", verdict("x", verifier.Pass, 0.4)), least, false, `score "a" is 0.4`},
		{"a pass without the score", done("1", verdict("x", verifier.Pass)), least, true, ""},
		{"a fail without the score", done("1", verdict("x", verifier.Fail)), least, false, `did not pass it`},
		{"neither score nor decision", done("1", verdict("x", verifier.Scored)), least, false, `gave no score "a"`},
		{"another score", done("1", verdict("x", verifier.Scored, 1)), map[string]float64{"b": 0}, false, `gave no score "b" (only "a")`},
		{"no verification", done("1"), least, true, ""},
		{"never verified", outcome.Stage{Name: "1", Ran: true}, least, false, "not verified"},
	} {
		got, why := tt.stage.Enough(tt.least)
		if got != tt.want || (why == "") != got || !strings.Contains(why, tt.why) {
			t.Errorf("%s: Enough = %v, %q; want %v, %q", tt.name, got, why, tt.want, tt.why)
		}
	}
}

// A typing error in the name of the score must not look like an agent that
// failed everything.
func TestAMissingScoreIsNamedWithThoseThatAreThere(t *testing.T) {
	t.Parallel()
	stages := []outcome.Stage{done("main", verdict("x", verifier.Scored, 1, 2))}
	success := task.Success{Score: "acuracy", AtLeast: new(float64(1))}
	facts := outcome.Facts{Success: success, Named: true, Stages: stages, Scores: outcome.Scores(success, stages, one)}
	o, err := outcome.Outcome(facts)
	if o != record.VerifierError || err == nil || !strings.Contains(err.Message, `"acuracy"`) || !strings.Contains(err.Message, `"a"`) {
		t.Errorf("named by the experiment: %s, %+v; want verifier_error with the scores that are there", o, err)
	}
	facts.Named = false // the format names it
	o, err = outcome.Outcome(facts)
	note := outcome.Undecided(facts, o)
	if o != record.Scored || err != nil || !strings.Contains(note, `the rule names score "acuracy", which no verifier gave`) ||
		!strings.Contains(note, `The scores are "a", "b": write success { key = "a"`) {
		t.Errorf("%s, %+v, %q", o, err, note)
	}
	facts.Success.Score = "b"
	if o, _ = outcome.Outcome(facts); o != record.Passed || outcome.Undecided(facts, o) != "" {
		t.Errorf("with the right name: %s, %q", o, outcome.Undecided(facts, o))
	}
}

func TestAStageThatWasDecidedWithoutTheScoreIsLeftOutOfIt(t *testing.T) {
	t.Parallel()
	stages := []outcome.Stage{done("1", verdict("x", verifier.Scored, 0.8)), done("2", verdict("y", verifier.Pass))}
	if got := outcome.Scores(task.Success{Score: "a"}, stages, one); got["a"] != 0.8 {
		t.Errorf("scores: %v", got)
	}
}

func TestIntegrityIsTheWorstFinding(t *testing.T) {
	t.Parallel()
	finding := func(s verifier.Severity) record.Finding {
		return record.Finding{Finding: verifier.Finding{Code: string(s), Severity: s, Text: "t"}}
	}
	for _, tt := range []struct {
		name     string
		findings []record.Finding
		verified bool
		want     record.Integrity
		reasons  int
	}{
		{"clean", nil, true, record.Checked, 0},
		{"a note", []record.Finding{finding(verifier.Note)}, true, record.Checked, 0},
		{"exposed", []record.Finding{finding(verifier.Exposed), finding(verifier.Note)}, true, record.Exposed, 1},
		{"violated", []record.Finding{finding(verifier.Violated), finding(verifier.Exposed)}, true, record.Violated, 2},
		{"never verified", nil, false, record.Unknown, 1},
		{"never verified, but seen", []record.Finding{finding(verifier.Violated)}, false, record.Violated, 1},
	} {
		got, reasons := outcome.Integrity(tt.findings, tt.verified)
		if got != tt.want || len(reasons) != tt.reasons {
			t.Errorf("%s: %s, %q; want %s and %d reasons", tt.name, got, reasons, tt.want, tt.reasons)
		}
	}
}

func TestAVerdictMustSaySomethingThatCanBe(t *testing.T) {
	t.Parallel()
	many := verdict("x", verifier.Pass)
	many.Scores = map[string]verifier.Score{}
	for i := range limits.Scores + 1 {
		many.Scores[strconv.Itoa(i)] = verifier.Score{}
	}
	ranged := func(value, least, most float64) verifier.Verdict {
		v := verdict("x", verifier.Pass)
		v.Scores = map[string]verifier.Score{"a": {Value: value, Min: &least, Max: &most}}
		return v
	}
	weighted := verdict("x", verifier.Pass)
	weighted.Checkpoints = []verifier.Checkpoint{{Name: "c", Weight: math.NaN()}}
	long := verdict("x", verifier.Pass)
	long.Checkpoints = []verifier.Checkpoint{{Note: strings.Repeat("x", limits.VerdictBytes+1)}}
	labelled := func(n int, name, text string) verifier.Verdict {
		v := verdict("x", verifier.Pass)
		v.Labels = map[string]string{}
		for i := range n {
			v.Labels[name+strings.Repeat("x", i)] = text
		}
		return v
	}
	for _, tt := range []struct {
		name string
		v    verifier.Verdict
		is   error
		ok   bool
	}{
		{"labels", labelled(verifier.MaxLabels, "status", "\x1b[2Jodd\n"), nil, true},
		{"too many labels", labelled(verifier.MaxLabels+1, "status", "pass"), nil, false},
		{"a label without a name", labelled(1, "", "pass"), nil, false},
		{"a long name", labelled(1, strings.Repeat("n", verifier.MaxLabelBytes+1), "pass"), nil, false},
		{"a long label", labelled(1, "status", strings.Repeat("n", verifier.MaxLabelBytes+1)), nil, false},
		{"pass", verdict("x", verifier.Pass, 1, -5, 1e100), nil, true},
		{"no decision", verdict("x", ""), nil, false},
		{"another decision", verdict("x", "maybe"), nil, false},
		{"not a number", verdict("x", verifier.Pass, math.NaN()), verifier.ErrBadReward, false},
		{"infinite", verdict("x", verifier.Pass, math.Inf(-1)), verifier.ErrBadReward, false},
		{"below its minimum", ranged(-0.1, 0, 1), verifier.ErrBadReward, false},
		{"above its maximum", ranged(1.1, 0, 1), verifier.ErrBadReward, false},
		{"at the ends of its range", ranged(1, 1, 1), nil, true},
		{"a range that is not a number", ranged(1, math.NaN(), 1), verifier.ErrBadReward, false},
		{"a weight that is not a number", weighted, verifier.ErrBadReward, false},
		{"too many scores", many, verifier.ErrBadReward, false},
		{"too long", long, nil, false},
	} {
		if err := outcome.Check(tt.v); (err == nil) != tt.ok || tt.is != nil && !errors.Is(err, tt.is) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
