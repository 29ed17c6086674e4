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
