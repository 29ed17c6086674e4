package output

import (
	"github.com/berth-eval/berth/core/record"
)

// Comparison is what `berth compare` says. Rates, scores and differences are
// fractions.
type Comparison struct {
	Level float64        `json:"level"` // of all intervals
	Seed  uint64         `json:"seed"`  // of random permutations
	Cells []ComparedCell `json:"cells"`
	Pairs []ComparedPair `json:"pairs"` // all pairs of cells
	// Weigh, Policy and Accepted are as in a Table. The comparisons of pairs are
	// never weighed.
	Weigh    string `json:"weigh,omitempty"`
	Policy   string `json:"policy"`
	Accepted string `json:"accepted"`
	// Marks are the reasons for which the numbers would have been refused without
	// --force.
	Marks []string `json:"marks,omitempty"`
	Notes []string `json:"notes,omitempty"`
}

// Interval is a confidence interval.
type Interval struct {
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Method string  `json:"method"`
}

// Rates are the numbers of measured trials.
type Rates struct {
	Planned     int `json:"planned"`
	Measured    int `json:"measured"`
	Exposed     int `json:"exposed"` // of the measured ones: the agent may have influenced the result
	Tasks       int `json:"tasks"`
	Repetitions int `json:"repetitions"` // the most that a task has
	// Raw says that the score has values outside 0 to 1. The success rate is its mean.
	Raw bool `json:"raw_score,omitempty"`
	// Mean is the success rate; null, like the other rates, if nothing was measured.
	Mean *float64 `json:"success_rate"`
	// Instead is what is printed in place of the success rate: "ife", if more than
	// 90 % of the trials have that label.
	Instead string `json:"in_place_of_rate,omitempty"`
	// PassAt1 and what else needs a full reward is null or absent if the score is raw
	// and nothing says which value of it is the full reward.
	PassAt1 *float64 `json:"pass_at_1"`
	// K is what the three after it are for: what was asked for, or the number of
	// repetitions that every task has.
	K        int      `json:"k,omitempty"`
	PassAtK  *float64 `json:"pass_at_k,omitempty"`
	AllK     *float64 `json:"all_k,omitempty"`
	BestOfK  *float64 `json:"best_of_k,omitempty"`
	TasksOfK int      `json:"tasks_of_k,omitempty"` // that have k trials, over which the means are
	// SE is the standard error of the success rate over repetitions, and SD the
	// population standard deviation. Null if there is one repetition, or if there are
	// trials of several cells.
	SE *float64 `json:"se_over_repetitions"`
	SD *float64 `json:"population_sd_over_repetitions"`
	// ClusterSE is the standard error with the tasks as clusters. It and the
	// interval take the tasks as a sample. Null if there is one task.
	ClusterSE *float64  `json:"cluster_robust_se"`
	Interval  *Interval `json:"interval"`
	// The names of tasks that all, some and none of their trials solve.
	Always    []string `json:"tasks_always_solved,omitempty"`
	Sometimes []string `json:"tasks_sometimes_solved,omitempty"`
	Never     []string `json:"tasks_never_solved,omitempty"`
}

// ComparedCell has the numbers of one cell of a run.
type ComparedCell struct {
	Name string `json:"name"`
	Run  string `json:"run"`  // folder
	Cell string `json:"cell"` // key
	Rates
	// PassedChecked counts those that passed and whose result is checked.
	PassedChecked int `json:"passed_checked"`
}

// ComparedPair compares two cells on the tasks that both ran. Every task counts
// once, by the mean of its trials.
type ComparedPair struct {
	A           string     `json:"a"`
	B           string     `json:"b"`
	Tasks       int        `json:"tasks"`
	Left        [2]int     `json:"tasks_of_one_only"`
	Changed     int        `json:"tasks_that_changed"` // same name, other content: left out
	Repetitions [2]int     `json:"repetitions"`
	Raw         bool       `json:"raw_score,omitempty"` // the means, the difference and its interval are of scores outside 0 to 1
	Means       [2]float64 `json:"means"`
	Difference  float64    `json:"difference"`
	Interval    *Interval  `json:"interval"` // null if all tasks differ by the same
	P           float64    `json:"p"`
	Holm        float64    `json:"p_holm"` // corrected for all pairs
	Test        string     `json:"test"`
	// Permutations is how many the test tried; absent for McNemar's test.
	Permutations int      `json:"permutations,omitempty"`
	OnlyA        []string `json:"solved_by_a_only"`
	OnlyB        []string `json:"solved_by_b_only"`
	Sentence     string   `json:"sentence"`
}

// Table is what `berth show --by` says. Rates, scores and differences are
// fractions.
type Table struct {
	Runs  []string `json:"runs"` // folders
	By    []string `json:"by"`   // what the rows differ in
	Level float64  `json:"level"`
	// Weigh is "category" if the success rates are means of the categories' means,
	// and empty if every trial weighs the same.
	Weigh string `json:"weigh,omitempty"`
	// Policy says which trials count as measured, and Accepted which attempt
	// counts for a trial.
	Policy   string     `json:"policy"`
	Accepted string     `json:"accepted"`
	Rows     []TableRow `json:"rows"`
	// Marks are the reasons for which the table would have been refused without
	// --force.
	Marks []string `json:"marks,omitempty"`
	Notes []string `json:"notes,omitempty"`
}

// TableRow has the numbers of a group of trials, over those that were measured.
type TableRow struct {
	Values []string `json:"values"` // in the order of Table.By
	Cells  []string `json:"cells"`  // that the trials are from
	Rates
	Outcomes map[record.Outcome]int `json:"outcomes"` // of the planned trials
	// Timeouts and Budget count measured trials: whose agent ran out of time, or was
	// stopped by its budget.
	Timeouts int `json:"timeouts"`
	Budget   int `json:"ended_by_budget"`

	// Cost and tokens are of all attempts of a trial, steps and time of the
	// accepted one.
	Tokens    Measure `json:"tokens"`
	CostUSD   Measure `json:"cost_usd"`
	Steps     Measure `json:"steps"`
	AgentTime Measure `json:"agent_seconds"`
	// CostPerRun is what one repetition over all tasks costs, in USD. Null if the
	// cost of a task is not known.
	CostPerRun *float64 `json:"cost_usd_per_run"`
	// Pareto says that no other row has at least the same success rate at no more
	// mean cost. Absent if the cost is not known.
	Pareto *bool `json:"pareto,omitempty"`
}

// Measure is a number of each measured trial.
type Measure struct {
	N      int      `json:"n"` // trials of which it is known
	Mean   *float64 `json:"mean"`
	Median *float64 `json:"median"`
	// PerSuccess is the sum divided by the number of trials with the full reward;
	// null if there are none, or if it is not known for all trials.
	PerSuccess *float64 `json:"per_success"`
}
