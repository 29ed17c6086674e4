package run

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// Summary is summary.json: what came of a run, counted.
type Summary struct {
	Version    int       `json:"version"` // of this file's form: 1
	Run        string    `json:"run"`
	Experiment string    `json:"experiment"`
	Created    time.Time `json:"created"`
	Updated    time.Time `json:"updated"`
	// Complete says that every trial has a final outcome.
	Complete bool `json:"complete"`
	// Planned is the number of trials: the sum over Outcomes.
	Planned  int                    `json:"planned"`
	Outcomes map[record.Outcome]int `json:"outcomes"`
	Attempts int                    `json:"attempts"` // published
	Lost     int                    `json:"lost"`     // attempts whose process was killed before they were published
	// Policy says what counts as measured.
	Policy string `json:"policy"`
	Cells  []Row  `json:"cells"`
	Tasks  []Row  `json:"tasks"`
	// Marks are why the numbers must be read with care.
	Marks []string `json:"marks,omitempty"`
	// Usage is of all attempts, also of those that were not accepted, or killed.
	CostUSD  *float64 `json:"cost_usd"` // null: not known, or no model was used
	Unpriced bool     `json:"unpriced,omitempty"`
	Tokens   int64    `json:"tokens"`
}

// Row is one line of a table of a summary.
type Row struct {
	Name    string `json:"name"`  // the key of a cell, or a task
	Agent   string `json:"agent"` // of a cell
	Model   string `json:"model,omitempty"`
	Planned int    `json:"planned"`
	// Measured are the trials whose outcome says something about the agent.
	Measured int                    `json:"measured"`
	Passed   int                    `json:"passed"`
	Outcomes map[record.Outcome]int `json:"outcomes"`
	// OfMeasured and OfPlanned are Passed over both denominators, from 0 to 1;
	// null when there is nothing to divide by.
	OfMeasured *float64 `json:"pass_rate_of_measured"`
	OfPlanned  *float64 `json:"pass_rate_of_planned"`
	// Score is the mean over the measured trials that have one.
	Score  *float64 `json:"mean_score"`
	Oracle bool     `json:"oracle,omitempty"`
	// Exposed are the measured trials whose result could have been influenced
	// by what the agent left running or changed.
	Exposed int `json:"exposed"`

	scores int
	sum    float64
}

// Policy is which trials count as measured. It is decided here once, for all
// tables.
const Policy = "measured are passed, failed, scored and agent_error; everything else says nothing about the agent"

// infrastructureMark is the share of trials with an infrastructure outcome
// from which a table is marked.
const infrastructureMark = 0.05

// Summarize counts what came of a run.
func Summarize(m *store.Manifest, x *store.Index) *Summary {
	s := &Summary{
		Version: 1, Run: m.Header.Run, Experiment: m.Header.Experiment, Created: m.Header.Created, Updated: time.Now().UTC(),
		Outcomes: map[record.Outcome]int{}, Policy: Policy, Complete: true,
	}
	cells := make([]Row, len(m.Cells))
	for i := range m.Cells {
		c := &m.Cells[i]
		cells[i] = Row{Name: c.Key, Agent: c.Agent, Model: c.Model, Outcomes: map[record.Outcome]int{}}
	}
	tasks := map[string]*Row{}
	facts := map[string]int{}
	for _, t := range x.Trials {
		row := tasks[t.Task]
		if row == nil {
			row = &Row{Name: t.Task, Outcomes: map[record.Outcome]int{}}
			tasks[t.Task] = row
		}
		o := t.Outcome()
		s.Planned++
		s.Outcomes[o]++
		s.Complete = s.Complete && (o.Final() || t.Refused != "")
		accepted := t.Accepted()
		cells[t.Cell].count(o, accepted)
		row.count(o, accepted)
		count(facts, o, accepted)
		for i := range t.Attempts {
			s.use(&t.Attempts[i])
		}
	}
	for i := range cells {
		cells[i].finish()
	}
	for _, row := range tasks {
		row.finish()
		s.Tasks = append(s.Tasks, *row)
	}
	slices.SortFunc(s.Tasks, func(a, b Row) int { return cmp.Compare(a.Name, b.Name) })
	s.Cells = cells
	s.mark(x, facts)
	return s
}

// use adds what an attempt used, whether it was accepted or not, and also when
// its process was killed.
func (s *Summary) use(a *store.AttemptState) {
	if a.Result == nil {
		s.Lost++
	} else {
		s.Attempts++
	}
	sum := store.Spend{CostUSD: s.CostUSD, Unpriced: s.Unpriced, Tokens: s.Tokens}
	sum.Add(a.Spend())
	s.CostUSD, s.Unpriced, s.Tokens = sum.CostUSD, sum.Unpriced, sum.Tokens
}

func (r *Row) count(o record.Outcome, a *store.AttemptState) {
	r.Planned++
	r.Outcomes[o]++
	if o == record.Passed {
		r.Passed++
	}
	if !o.Measured() {
		return
	}
	r.Measured++
	if a == nil {
		return
	}
	r.Oracle = r.Oracle || a.Result.Oracle
	if a.Result.Integrity == record.Exposed {
		r.Exposed++
	}
	if a.Result.Score != nil {
		r.scores++
		r.sum += *a.Result.Score
	}
}

func (r *Row) finish() {
	rate := func(n int) *float64 {
		if n == 0 {
			return nil
		}
		v := float64(r.Passed) / float64(n)
		return &v
	}
	r.OfMeasured, r.OfPlanned = rate(r.Measured), rate(r.Planned)
	if r.scores > 0 {
		mean := r.sum / float64(r.scores)
		r.Score = &mean
	}
}

// count counts what marks are made of.
func count(facts map[string]int, o record.Outcome, a *store.AttemptState) {
	if o.Infrastructure() {
		facts["infrastructure"]++
	}
	if a == nil {
		return
	}
	if a.Result.Modified {
		facts["modified"]++
	}
	if o.Measured() {
		facts["integrity "+string(a.Result.Integrity)]++
	}
}

// mixed names the plugins and images that accepted attempts had in different
// versions.
func mixed(x *store.Index) []string {
	first, more := map[string]string{}, map[string]bool{}
	for _, t := range x.Trials {
		a := t.Accepted()
		if a == nil || !a.Result.Outcome.Final() {
			continue
		}
		for what, digest := range a.Result.Digests {
			if before, ok := first[what]; ok && before != digest {
				more[what] = true
			}
			first[what] = digest
		}
	}
	return slices.Sorted(maps.Keys(more))
}

// mark says why the numbers must be read with care.
func (s *Summary) mark(x *store.Index, facts map[string]int) {
	add := func(n int, one, many string) {
		if n > 0 {
			s.Marks = append(s.Marks, plural(n, one, many))
		}
	}
	if n := facts["infrastructure"]; float64(n) > infrastructureMark*float64(s.Planned) {
		add(n, "trial ended for a reason that is not the agent's: rates of measured and planned trials differ",
			"trials ended for reasons that are not the agent's: rates of measured and planned trials differ")
	}
	add(facts["integrity "+string(record.Exposed)], "result could have been influenced by what the agent left running or changed (exposed)",
		"results could have been influenced by what the agent left running or changed (exposed)")
	add(facts["modified"], "result is of a modified task: the experiment grants less than the task asks",
		"results are of modified tasks: the experiment grants less than the tasks ask")
	for _, what := range mixed(x) {
		s.Marks = append(s.Marks, "attempts were made with more than one version of "+what)
	}
	drift := map[string]bool{}
	for _, n := range x.Notes {
		if n.Accepted != "" {
			drift[n.Accepted] = true
		}
	}
	for _, d := range slices.Sorted(maps.Keys(drift)) {
		s.Marks = append(s.Marks, "drift accepted: "+d)
	}
	add(x.Torn+x.Damaged, "line of the journals could not be read", "lines of the journals could not be read")
	if !s.Complete {
		s.Marks = append(s.Marks, "the run is not complete")
	}
}
