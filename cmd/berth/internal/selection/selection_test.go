package selection_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/selection"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/task"
)

// run is a run of two cells and two tasks.
func run() (*store.Manifest, *store.Index) {
	m := &store.Manifest{
		Cells: []store.Cell{
			{Index: 0, Key: "agent=pi,effort=1", Agent: "pi", Model: "small", Environment: "local", Choices: map[string]string{"agent": "pi", "effort": "1"}},
			{Index: 1, Key: "agent=terminus,effort=10", Agent: "terminus", Model: "large", Environment: "local", Choices: map[string]string{"agent": "terminus", "effort": "10"}},
		},
		Trials: []store.Trial{
			{ID: "a", Task: "org/one", Dataset: "small", Cell: 0, Repetition: 1, Labels: task.Labels{Tags: []string{"git", "shell"}, Category: "ops", Difficulty: "easy"}},
			{ID: "b", Task: "org/one", Dataset: "small", Cell: 1, Repetition: 1, Labels: task.Labels{Tags: []string{"git", "shell"}, Category: "ops", Difficulty: "easy"}},
			{ID: "c", Task: "org/two", Dataset: "small", Cell: 0, Repetition: 1, Labels: task.Labels{Category: "maths", Difficulty: "hard"}},
			{ID: "d", Task: "org/two", Dataset: "small", Cell: 1, Repetition: 1, Labels: task.Labels{Category: "maths", Difficulty: "hard"}},
		},
	}
	x := &store.Index{}
	for i := range m.Trials {
		x.Trials = append(x.Trials, &store.TrialState{Trial: &m.Trials[i]})
	}
	x.Trials[0].Attempts = []store.AttemptState{
		{Number: 1, Result: &store.Brief{Outcome: record.EnvironmentError, Integrity: record.Unknown, Error: "environment: no space left"}},
		{Number: 2, Result: &store.Brief{
			Outcome: record.Passed, Integrity: record.Checked, AgentEnd: record.Yielded, Mode: "live", Score: new(1.0), Rewards: map[string]float64{"reward": 1, "style": 0.5}, Labels: map[string]string{"status": "pass"},
			AgentTime: 90 * time.Second, Steps: 12, Spend: store.Spend{CostUSD: new(0.25), Tokens: 1000, Requests: 3},
		}},
	}
	x.Trials[1].Attempts = []store.AttemptState{{Number: 1, Result: &store.Brief{
		Outcome: record.Failed, Integrity: record.Exposed, AgentEnd: record.Timeout, Score: new(0.0), Spend: store.Spend{Tokens: 50},
	}}}
	x.Trials[2].Attempts = []store.AttemptState{{Number: 1, Result: &store.Brief{Outcome: record.EnvironmentError, Integrity: record.Unknown}}}
	return m, x
}

func TestAnExpressionSelectsTrials(t *testing.T) {
	t.Parallel()
	m, x := run()
	for expression, want := range map[string]string{
		`outcome == "environment_error" && cell.agent == "pi"`:   "c",
		`cell["agent"] == "pi"`:                                  "ac",
		`outcome in ["failed", "not_run"]`:                       "bd",
		`"git" in tags and difficulty == "easy"`:                 "ab",
		`tags == []`:                                             "cd",
		`category != "ops"`:                                      "cd",
		`score >= 0.5`:                                           "a",
		`score < 0.5`:                                            "b", // a missing score is not small
		`rewards.style == 0.5`:                                   "a",
		`rewards.none == 0`:                                      "abcd",
		`labels.status == "pass"`:                                "a",
		`labels.none == ""`:                                      "abcd",
		`cost > 0.2`:                                             "a",
		`cost <= 0.2`:                                            "", // an unknown cost is not small
		`tokens > 10 && requests == 3`:                           "a",
		`agent_time > 60 and steps == 12 and agent == "pi"`:      "a",
		`attempts > 1 && attempt == 2 && accepted`:               "a",
		`attempt == 0`:                                           "d",
		`measured`:                                               "ab",
		`integrity == "exposed" || agent_end == "timeout"`:       "b",
		`mode == "live"`:                                         "a",
		`float(cell.effort) > 5`:                                 "bd",
		`task endsWith "two"`:                                    "cd",
		`task == "org/two" and model == "large"`:                 "d",
		`not measured and not oracle and environment == "local"`: "cd",
		`error contains "space" or trial == "d"`:                 "d", // the accepted attempt has no error
		`any(tags, # startsWith "g") and repetition == 1`:        "ab",
		"outcome == \"passed\"\n  || outcome == \"not_run\"":     "ad",
		`dataset == "small" and not modified and time >= 0`:      "abcd",
	} {
		e, err := selection.Compile(expression, m)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		trials, err := e.Trials(m, x)
		got := ""
		for _, tr := range trials {
			got += tr.ID
		}
		if err != nil || got != want {
			t.Errorf("%s: %q, want %q (%v)", expression, got, want, err)
		}
	}
}

// An attempt that was not accepted is selected by what it was.
func TestAnExpressionIsAboutTheAttemptThatIsGiven(t *testing.T) {
	t.Parallel()
	m, x := run()
	e, err := selection.Compile(`error contains "space" && !accepted`, m)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false} {
		got, err := e.Matches(&selection.Attempt{Manifest: m, Trial: x.Trials[0], State: &x.Trials[0].Attempts[i]})
		if err != nil || got != want {
			t.Errorf("attempt %d: %t, %v", i+1, got, err)
		}
	}
}

func TestAMistakeHasAPlaceAndASuggestion(t *testing.T) {
	t.Parallel()
	m, x := run()
	for expression, want := range map[string]string{
		"":                                  "the expression is empty",
		`outcom == "failed"`:                "there is no field \"outcom\": did you mean \"outcome\"? (1:1)\n | outcom == \"failed\"\n | ^",
		`cell.agnt == "pi"`:                 `the runs have no axis "agnt": did you mean "agent"?`,
		`score`:                             "the expression is a number, not true or false: compare it",
		`task`:                              "the expression is a text, not",
		`tags`:                              "the expression is a value, not",
		`score = 1`:                         "(1:7)",
		`score > "1"`:                       "(1:7)",
		`outcome == "failed" &&`:            "(1:",
		"measured\n&& outcom == \"failed\"": "did you mean \"outcome\"? (2:4)",
		`foo(outcome)`:                      "there is no field \"foo\"",
		`outcome.x == 1`:                    "(1:",
	} {
		_, err := selection.Compile(expression, m)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "--select") {
			t.Errorf("%.100s: %v, want %s", expression, err, want)
		}
	}
	e, err := selection.Compile(`tags[5] == "x" || float(cell.agent) > 1`, m)
	if err == nil {
		_, err = e.Trials(m, x)
	}
	if err == nil || !strings.Contains(err.Error(), "org/one") {
		t.Errorf("an expression that cannot be computed: %v", err)
	}
}
