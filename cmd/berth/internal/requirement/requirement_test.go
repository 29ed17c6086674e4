package requirement_test

import (
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/requirement"
	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// state is a trial of cell c with an attempt of this outcome.
func state(c int, task string, outcome record.Outcome) *store.TrialState {
	score := 0.5
	return &store.TrialState{
		Trial:    &store.Trial{ID: task, Task: task, Cell: c},
		Attempts: []store.AttemptState{{Number: 1, Result: &store.Brief{Outcome: outcome, Integrity: record.Checked, Score: &score}}},
	}
}

func cells(n int) *store.Manifest {
	m := &store.Manifest{}
	for i := range n {
		name := string(rune('a' + i))
		m.Cells = append(m.Cells, store.Cell{Index: i, Key: "agent=" + name, Agent: name, Choices: map[string]string{"agent": name}})
	}
	return m
}

func TestRequirements(t *testing.T) {
	t.Parallel()
	m := cells(2)
	exposed := state(0, "t1", record.Passed)
	exposed.Attempts[0].Result.Integrity = record.Exposed
	exposed.Expect = map[string]string{"a": "passed", "b": "failed"}
	s := summary.Of(m, &store.Index{Trials: []*store.TrialState{
		exposed, state(0, "t2", record.Passed), state(1, "t1", record.Failed), state(1, "t2", record.RateLimited),
	}})
	for rule, want := range map[string]string{
		"agent=a: passed = planned":        "",
		"agent=a: pass_rate >= 1":          "",
		"passed = planned":                 "cell agent=b has passed 0",
		"agent=b: passed == 0":             "",
		"agent=b:pass_rate_of_measured<=0": "",
		"agent=b: unmeasured < 1":          "has unmeasured 1",
		"agent=b: failed > 1":              "has failed 1",
		"agent=a: exposed = 0":             "cell agent=a has exposed 1",
		"agent=a: passed_checked = passed": "cell agent=a has passed_checked 1",
		"agent=a: unexpected = 0":          "cell agent=a has unexpected 1 (t1: exposed, expected passed)",
		"agent=b: unexpected = 0":          "",
		"agent=c: passed = 0":              "no cell is like that",
		"mean_score >= 0.4":                "",
		"agent=a, model=x: passed = 0":     "no cell is like that",
	} {
		r, err := requirement.Parse(rule)
		if err == nil && (r.Possible(m) == nil) == (want == "no cell is like that") {
			t.Errorf("%s: possible: %v", rule, r.Possible(m))
		}
		if err != nil {
			t.Errorf("%s: %v", rule, err)
			continue
		}
		failed := strings.Join(r.Check(s, m), "\n")
		if want == "" && failed != "" || !strings.Contains(failed, want) {
			t.Errorf("%s: %q, want %q", rule, failed, want)
		}
	}
	for _, rule := range []string{"", "passed", "passed >= ", "glory > 1", "passed > lots", "agent: passed > 1", "passed ~ 1"} {
		if _, err := requirement.Parse(rule); err == nil || !strings.Contains(err.Error(), "(example: ") {
			t.Errorf("%q: %v", rule, err)
		}
	}
}

// A rule that can name nothing says which word of it is unknown.
func TestRequirementsThatNameNothing(t *testing.T) {
	t.Parallel()
	m := cells(2)
	for rule, want := range map[string]string{
		"pass_rat >= 1":              `unknown metric "pass_rat": did you mean "pass_rate"?`,
		"passed = plannd":            `"plannd" is not a number or a metric: did you mean "planned"?`,
		"agent=a, agent=b: passed=0": "no cell is like that: berth plan lists the cells",
	} {
		r, err := requirement.Parse(rule)
		if err == nil {
			err = r.Possible(m)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", rule, err, want)
		}
	}
}
