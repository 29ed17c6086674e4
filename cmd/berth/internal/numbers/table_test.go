package numbers_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/task"
)

// swept is a run of cells along an axis of durations, with 3 tasks × 2. Repetition
// 1 of a task passes if the task's number is below the cell's, repetition 2 never.
func swept() numbers.Run {
	m := &store.Manifest{Header: store.Header{Run: "swept"}}
	x := &store.Index{}
	for c, budget := range []string{"40m", "5m", "1h"} {
		m.Cells = append(m.Cells, store.Cell{Index: c, Key: "time=" + budget, Slug: budget, Agent: "a", Model: "gpt", Environment: "local", Choices: map[string]string{"time": budget}})
	}
	for c := range m.Cells {
		for n := range 3 {
			for rep := 1; rep <= 2; rep++ {
				category := "easy"
				if n == 2 {
					category = "hard"
				}
				m.Trials = append(m.Trials, store.Trial{
					ID: fmt.Sprint(c, n, rep), Task: fmt.Sprint("task", n), TaskDigest: "sha256:0", Dataset: "d", Cell: c, Repetition: rep, Labels: task.Labels{Category: category, Tags: []string{"all", category}},
				})
			}
		}
	}
	for i := range m.Trials {
		t := &m.Trials[i]
		n := int(t.Task[len(t.Task)-1] - '0')
		score, cost, outcome := 0.0, float64(t.Cell+1), record.Failed
		if n < []int{2, 1, 3}[t.Cell] && t.Repetition == 1 {
			score, outcome = 1, record.Passed
		}
		b := &store.Brief{
			Outcome: outcome, Integrity: record.Checked, AgentEnd: record.Yielded, Mode: []string{"live", "live", "image"}[t.Cell], Score: &score, Rewards: map[string]float64{"reward": score, "style": 0.5},
			Spend: store.Spend{CostUSD: &cost, Tokens: 100, Requests: 1}, AgentTime: time.Duration(n+1) * time.Second, Steps: 4,
		}
		if n == 2 && t.Repetition == 2 {
			b.AgentEnd = record.Timeout
		}
		x.Trials = append(x.Trials, &store.TrialState{Trial: t, Attempts: []store.AttemptState{{Number: 1, Result: b}}})
	}
	return numbers.Run{Dir: "/runs/swept", Manifest: m, Index: x}
}

func rules() numbers.Rules { return numbers.Rules{MaxInfrastructure: 0.02} }

func joined(t *testing.T, run numbers.Run) *numbers.Joined {
	t.Helper()
	j, err := numbers.Join([]numbers.Run{run})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func tableOf(t *testing.T, run numbers.Run, by ...string) *output.Table {
	t.Helper()
	table, err := numbers.Table(joined(t, run), &numbers.Wanted{By: by, Rules: rules()})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func near(x *float64, want float64) bool { return x != nil && math.Abs(*x-want) < 1e-9 }

func TestARowHasTheNumbersOfItsTrials(t *testing.T) {
	t.Parallel()
	table := tableOf(t, swept(), "time")
	var order []string
	for _, r := range table.Rows {
		order = append(order, r.Values[0])
	}
	if !slices.Equal(order, []string{"5m", "40m", "1h"}) {
		t.Errorf("rows in the order %q", order)
	}
	r := table.Rows[1] // 40m: two of three tasks pass in one of two repetitions
	if !near(r.Mean, 2.0/6) || !near(r.PassAt1, 2.0/6) || r.K != 2 || !near(r.PassAtK, 2.0/3) || !near(r.AllK, 0) || !near(r.BestOfK, 2.0/3) {
		t.Errorf("rates %+v", r)
	}
	// The repetitions' means are 2/3 and 0.
	if !near(r.SD, 1.0/3) || !near(r.SE, 1.0/3) || r.Interval.Method != "cluster" {
		t.Errorf("spread %v %v %v", *r.SE, *r.SD, r.Interval)
	}
	if r.Timeouts != 1 || len(r.Sometimes) != 2 || len(r.Never) != 1 || len(r.Always) != 0 {
		t.Errorf("counts %+v", r)
	}
	if !near(r.CostUSD.Mean, 1) || !near(r.CostUSD.PerSuccess, 3) || !near(r.CostPerRun, 3) || !near(r.AgentTime.Median, 2) || !near(r.Steps.Mean, 4) || !near(r.Tokens.PerSuccess, 300) {
		t.Errorf("used %+v", r)
	}
	// 5m costs 2 and is worse than 40m, which costs 1.
	if *table.Rows[0].Pareto || !*table.Rows[1].Pareto || !*table.Rows[2].Pareto {
		t.Errorf("fronts %v %v %v", *table.Rows[0].Pareto, *table.Rows[1].Pareto, *table.Rows[2].Pareto)
	}
}

func TestTrialsAreGroupedByWhatTheyHave(t *testing.T) {
	t.Parallel()
	j := joined(t, swept())
	for by, want := range map[string]string{
		"category":                   "40m easy 0.5, 40m hard 0, 5m easy 0.25, 5m hard 0, 1h easy 0.5, 1h hard 0.5",
		"agent":                      "a 0.333",
		"tag,agent":                  "all a 0.333, easy a 0.417, hard a 0.167",
		"agent_end":                  "40m timeout 0, 40m yielded 0.4, 5m timeout 0, 5m yielded 0.2, 1h timeout 0, 1h yielded 0.6",
		"reward,agent":               "reward a 0.333, style a 0.5",
		"difficulty,integrity,agent": "– checked a 0.333",
		"cell":                       "40m 0.333, 5m 0.167, 1h 0.5",
		"dataset,run,agent":          "d swept a 0.333",
		"task,agent":                 "task0 a 0.5, task1 a 0.333, task2 a 0.167",
		"mode,agent":                 "image a 0.5, live a 0.25",
		"difficulty,agent":           "– a 0.333",
		"outcome,agent":              "failed a 0, passed a 1",
		"model,environment":          "gpt local 0.333",
	} {
		table, wrong := numbers.Table(j, &numbers.Wanted{By: strings.Split(by, ","), Rules: rules()})
		if wrong != nil {
			t.Errorf("%s: %v", by, wrong)
			continue
		}
		var got []string
		for _, r := range table.Rows {
			got = append(got, fmt.Sprintf("%s %.3g", strings.Join(r.Values, " "), *r.Mean))
		}
		slices.Sort(got)
		wanted := strings.Split(want, ", ")
		slices.Sort(wanted)
		if !slices.Equal(got, wanted) {
			t.Errorf("%s: %q, want %q", by, got, wanted)
		}
	}
	if _, err := numbers.Table(j, &numbers.Wanted{By: []string{"tme"}, Rules: rules()}); err == nil || !strings.Contains(err.Error(), `did you mean "time"?`) {
		t.Errorf("a mistake: %v", err)
	}
	if _, err := numbers.Table(j, &numbers.Wanted{By: []string{"time"}, K: 3, Rules: rules()}); err == nil || !strings.Contains(err.Error(), "k is 3, and no task has more than 2 measured trials") {
		t.Errorf("k: %v", err)
	}
	weighed := rules()
	weighed.Weigh = numbers.WeighCategory
	table, err := numbers.Table(j, &numbers.Wanted{By: []string{"time"}, Rules: weighed})
	if err != nil || !near(table.Rows[1].Mean, 0.25) || table.Weigh != "category" { // (2/4 + 0)/2
		t.Errorf("weighed: %v, %+v", err, table)
	}
}

// A score that counts or measures something has no full reward, in no row.
func TestScoresOutsideOneAreNotRates(t *testing.T) {
	t.Parallel()
	run := swept()
	for _, tr := range run.Index.Trials {
		b := tr.Attempts[0].Result
		b.Rewards = map[string]float64{"reward": *b.Score, "cases": float64(tr.Cell)} // only those of cell 2 are above 1
	}
	table := tableOf(t, run, "reward", "time")
	if len(table.Rows) != 6 {
		t.Fatalf("%+v", table)
	}
	means := map[string]float64{"40m": 0, "5m": 1, "1h": 2}
	for i := range table.Rows {
		r := &table.Rows[i]
		name, limit := r.Values[0], r.Values[1]
		if name == "reward" && (r.Raw || r.PassAt1 == nil || r.K != 2 || len(r.Never) == 3 && limit == "1h") {
			t.Errorf("%s: %+v", r.Values, r)
		}
		if name == "cases" && (!r.Raw || !near(r.Mean, means[limit]) || r.PassAt1 != nil || r.K != 2 || r.PassAtK != nil || !near(r.BestOfK, means[limit]) ||
			len(r.Always)+len(r.Sometimes)+len(r.Never) > 0 || r.CostUSD.PerSuccess != nil) {
			t.Errorf("%s: %+v", r.Values, r)
		}
	}
}

// A speedup decides: its means are not shares. What passes has the full reward if
// the experiment says from which speedup on that is.
func TestADecidingScoreOutsideOneIsNoRate(t *testing.T) {
	t.Parallel()
	for what, says := range map[string]bool{"passed from 1.5 on": true, "scored": false} {
		run := swept()
		for _, tr := range run.Index.Trials {
			b := tr.Attempts[0].Result
			if *b.Score *= float64(1 + tr.Cell); !says { // only those of cells 1 and 2 are above 1
				b.Outcome = record.Scored
			}
		}
		table := tableOf(t, run, "time")
		r := table.Rows[1] // 40m: two of three tasks have the score 1 in one of two repetitions
		if !r.Raw || !near(r.Mean, 1.0/3) || says && (!near(r.PassAt1, 1.0/3) || !near(r.PassAtK, 2.0/3) || len(r.Sometimes) != 2) ||
			!says && (r.PassAt1 != nil || r.PassAtK != nil || !near(r.BestOfK, 2.0/3) || len(r.Sometimes) > 0 || r.CostUSD.PerSuccess != nil) {
			t.Errorf("%s: %+v", what, r)
		}
		if notes := strings.Join(table.Notes, "\n"); !strings.Contains(notes, "3 rows are about a score with values below 0 or above 1") || strings.Contains(notes, "at_least") == says {
			t.Errorf("%s: %q", what, table.Notes)
		}
		c, err := numbers.Compare([]numbers.Run{run}, &numbers.Options{Rules: rules(), Cells: []string{"40m", "1h"}})
		if err != nil {
			t.Fatal(err)
		}
		// 1h: three tasks have the score 3 in one of two repetitions.
		if p := c.Pairs[0]; !p.Raw || !strings.HasPrefix(p.Sentence, "1h has a mean score that is 1.167 higher than that of 40m (95 %: ") || !c.Cells[0].Raw || (c.Cells[0].PassAt1 != nil) != says {
			t.Errorf("%s: %+v %+v", what, p, c.Cells[0])
		}
	}
}

// The front of success and cost is one of rows about the same score.
func TestScoresAreNotComparedWithEachOther(t *testing.T) {
	t.Parallel()
	table := tableOf(t, swept(), "reward", "time")
	var front []string
	for _, r := range table.Rows {
		if *r.Pareto {
			front = append(front, strings.Join(r.Values, " "))
		}
	}
	// style is 0.5 everywhere, so that the cheapest cell is enough.
	if want := []string{"reward 40m", "reward 1h", "style 40m"}; !slices.Equal(front, want) {
		t.Errorf("on the front are %q, want %q", front, want)
	}
}

// Numbers over a part of the trials look like others: a note tells them apart.
func TestNumbersOfAChoiceSaySo(t *testing.T) {
	t.Parallel()
	j := joined(t, swept())
	for what, tt := range map[string]struct {
		wanted numbers.Wanted
		note   string
	}{
		"a choice": {numbers.Wanted{
			By: []string{"time"}, Select: "score > 0",
		}, "the numbers are those of the 6 of 18 trials that --select chooses"},
		"results": {numbers.Wanted{By: []string{"time", "outcome"}}, "trials with the same outcome"},
		"all":     {numbers.Wanted{By: []string{"time"}}, ""},
	} {
		tt.wanted.Rules = rules()
		table, err := numbers.Table(j, &tt.wanted)
		if err != nil {
			t.Fatal(err)
		}
		if notes := strings.Join(table.Notes, "\n"); !strings.Contains(notes, tt.note) || tt.note == "" && notes != "" {
			t.Errorf("%s: notes %q", what, notes)
		}
	}
}

func TestNumbersAreRefusedUntilForced(t *testing.T) {
	t.Parallel()
	for what, tt := range map[string]struct {
		spoil func(*store.TrialState)
		rules numbers.Rules
		want  string
	}{
		"infrastructure": {func(s *store.TrialState) {
			s.Attempts[0].Result = &store.Brief{Outcome: record.EnvironmentError}
		}, rules(), "1 of 6 planned trials (16.7 %) ended because of infrastructure errors, more than 2 %. Run them again: berth resume /runs/swept --again environment_error"},
		"no result": {func(s *store.TrialState) { s.Attempts = nil }, rules(), "1 of 6 planned trials have no result. Finish them: berth resume /runs/swept"},
		"exposed": {
			func(s *store.TrialState) { s.Attempts[0].Result.Integrity = record.Exposed },
			numbers.Rules{MaxInfrastructure: 0.02, RefuseExposed: true},
			"1 of 6 results are exposed, and the experiment says that none may be",
		},
	} {
		run := swept()
		tt.spoil(run.Index.Trials[0])
		j := joined(t, run)
		w := numbers.Wanted{By: []string{"time"}, Rules: tt.rules}
		if _, err := numbers.Table(j, &w); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "--force") {
			t.Errorf("%s: %v", what, err)
		}
		w.Force = true
		table, err := numbers.Table(j, &w)
		if err != nil || len(table.Marks) != 1 || !strings.Contains(table.Marks[0], tt.want) {
			t.Errorf("%s, forced: %v, %+v", what, err, table)
		}
		o := numbers.Options{Rules: tt.rules}
		if _, err = numbers.Compare([]numbers.Run{run}, &o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s, compared: %v", what, err)
		}
		run.Manifest.Header.Imported = "harbor" // it cannot be resumed
		if _, err = numbers.Compare([]numbers.Run{run}, &o); err == nil || strings.Contains(err.Error(), "resume") {
			t.Errorf("%s, imported: %v", what, err)
		}
		o.Cells = []string{"5m", "1h"} // the spoilt cell is left out
		if _, err = numbers.Compare([]numbers.Run{run}, &o); err != nil {
			t.Errorf("%s, the other cells: %v", what, err)
		}
	}
	run := swept()
	for _, s := range run.Index.Trials[:6] {
		s.Attempts = nil
	}
	o := numbers.Options{Rules: rules(), Force: true}
	if _, err := numbers.Compare([]numbers.Run{run}, &o); err == nil || !strings.Contains(err.Error(), "cell 40m has no measured trial") {
		t.Errorf("an empty cell: %v", err)
	}
}

// An agent that breaks off must not have a better score than one that works on.
func TestATrialThatEndedInAnErrorHasTheScoresOfItsTask(t *testing.T) {
	t.Parallel()
	run := swept()
	for i, s := range run.Index.Trials[:6] {
		b := s.Attempts[0].Result
		b.Rewards = map[string]float64{"style": 1, "speed": 9}
		if i == 5 { // repetition 2 of task2
			b.Outcome, b.Score, b.Rewards = record.AgentError, nil, nil
		}
	}
	table := tableOf(t, run, "reward", "time")
	got := map[string]string{}
	for _, r := range table.Rows {
		got[strings.Join(r.Values, " ")] = fmt.Sprintf("%.4g of %d", *r.Mean, r.Measured)
	}
	if got["style 40m"] != "0.8333 of 6" || got["speed 40m"] != "9 of 5" || got["– 40m"] != "" {
		t.Errorf("%v", got)
	}
}

// Without a score that decides there is no success rate: 0 % would be a wrong one.
func TestScoresOfWhichNoneDecidesAreRefused(t *testing.T) {
	t.Parallel()
	run := swept()
	for _, s := range run.Index.Trials {
		b := s.Attempts[0].Result
		b.Outcome, b.Score, b.Scores = record.Scored, nil, b.Rewards
	}
	j := joined(t, run)
	const want = "6 of 6 results have scores of which none decides"
	if _, err := numbers.Compare([]numbers.Run{run}, &numbers.Options{Rules: rules()}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("compared: %v", err)
	}
	if _, err := numbers.Table(j, &numbers.Wanted{By: []string{"time"}, Rules: rules()}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("by cell: %v", err)
	}
	if table, err := numbers.Table(j, &numbers.Wanted{By: []string{"reward", "time"}, Rules: rules()}); err != nil || len(table.Rows) != 6 {
		t.Errorf("by score: %v, %+v", err, table)
	}
}
