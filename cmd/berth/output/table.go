package output

import "github.com/berth-eval/berth/core/record"

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
	Values   []string               `json:"values"` // in the order of Table.By
	Cells    []string               `json:"cells"`  // that the trials are from
	Planned  int                    `json:"planned"`
	Measured int                    `json:"measured"`
	Outcomes map[record.Outcome]int `json:"outcomes"` // of the planned trials
	// Timeouts, Budget and Exposed count measured trials: whose agent ran out of
	// time, was stopped by its budget, or may have influenced the result.
	Timeouts int `json:"timeouts"`
	Budget   int `json:"ended_by_budget"`
	Exposed  int `json:"exposed"`

	Tasks       int `json:"tasks"`
	Repetitions int `json:"repetitions"` // the most that a task has
	// Raw says that the row is about a score of verifiers with values outside 0 to
	// 1. Its success rate is the mean of that score. If nothing says which value is
	// the full reward, what needs one is absent, null or empty: pass@1, pass@k, all-k,
	// and solved tasks.
	Raw bool `json:"raw_score,omitempty"`
	// Mean is the success rate; null, like the other rates, if nothing was
	// measured.
	Mean *float64 `json:"success_rate"`
	// Instead is what is printed in place of the success rate: "ife", if more than
	// 90 % of the trials have that label.
	Instead string   `json:"in_place_of_rate,omitempty"`
	PassAt1 *float64 `json:"pass_at_1"`
	// K is what the three after it are for: what was asked for, or the number of
	// repetitions that every task has.
	K        int      `json:"k,omitempty"`
	PassAtK  *float64 `json:"pass_at_k,omitempty"`
	AllK     *float64 `json:"all_k,omitempty"`
	BestOfK  *float64 `json:"best_of_k,omitempty"`
	TasksOfK int      `json:"tasks_of_k,omitempty"` // that have k trials, over which the means are

	// SE is the standard error of the success rate over repetitions, and SD the
	// population standard deviation. Null if there is one repetition, or if the
	// row has trials of several cells.
	SE *float64 `json:"se_over_repetitions"`
	SD *float64 `json:"population_sd_over_repetitions"`
	// ClusterSE is the standard error with the tasks as clusters. It and the
	// interval take the tasks as a sample. Null if there is one task.
	ClusterSE *float64  `json:"cluster_robust_se"`
	Interval  *Interval `json:"interval"`

	// The names of tasks that all, some and none of their trials solve.
	Always    []string `json:"tasks_always_solved"`
	Sometimes []string `json:"tasks_sometimes_solved"`
	Never     []string `json:"tasks_never_solved"`

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
