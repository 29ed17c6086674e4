// Package summary counts the results of a run. Everything that it says follows from
// the files of the run.
package summary

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// Summary is summary.json: the counted results of a run.
type Summary struct {
	Version    int       `json:"version"` // version of the format of this file: 1
	Run        string    `json:"run"`
	Experiment string    `json:"experiment"`
	Created    time.Time `json:"created"`
	Updated    time.Time `json:"updated"`
	// Complete says that every trial has a final outcome.
	Complete bool `json:"complete"`
	// Planned is the number of trials, the sum over Outcomes.
	Planned  int                    `json:"planned"`
	Outcomes map[record.Outcome]int `json:"outcomes"`
	// Errors counts the trials with an outcome that is an error and that their tasks do
	// not expect.
	Errors   int `json:"-"`
	Attempts int `json:"attempts"` // published
	Lost     int `json:"lost"`     // attempts whose process was killed before they were published
	// Policy says which trials count as measured.
	Policy string `json:"policy"`
	Cells  []Row  `json:"cells"`
	// Tasks has a row for each task in each cell, so that agents are not mixed
	// with each other, with the oracle, or with an agent that does nothing.
	Tasks []Row `json:"tasks"`
	// Marks are the reasons to read the numbers with care.
	Marks []string `json:"marks,omitempty"`
	// Usage covers all attempts, including those that were killed or not
	// accepted, but not those that verified others again: see Regrades.
	CostUSD  *float64 `json:"cost_usd"` // null: not known, or no model was used
	Unpriced bool     `json:"unpriced,omitempty"`
	Tokens   int64    `json:"tokens"`
	// Estimated is how many requests have a usage that the provider did not
	// report.
	Estimated int64 `json:"estimated_requests,omitempty"`
	// Fallback is how many requests a fallback served in place of the model.
	Fallback int64 `json:"fallback_requests,omitempty"`
	// Regrades is what verifying attempts again used. Absent: nothing.
	Regrades *store.Spend `json:"regrades,omitempty"`
}

// Row is one line of a table of a summary.
type Row struct {
	Name    string `json:"name"`              // the key of a cell, or a task
	Dataset string `json:"dataset,omitempty"` // of a task whose name occurs in several datasets
	Cell    string `json:"cell,omitempty"`    // of a task: the key of the cell; empty if there is only one cell
	Agent   string `json:"agent"`             // of the cell
	Model   string `json:"model,omitempty"`
	Planned int    `json:"planned"`
	// Measured counts the trials that say something about the agent: see
	// Policy.
	Measured int `json:"measured"`
	Passed   int `json:"passed"`
	// PassedChecked counts those that passed and whose result is checked.
	PassedChecked int                    `json:"passed_checked"`
	Outcomes      map[record.Outcome]int `json:"outcomes"`
	// OfPlanned and OfMeasured are Passed divided by the two denominators, from
	// 0 to 1; null when the denominator is 0. OfPlanned is the headline,
	// because it leaves out no trial.
	OfPlanned  *float64 `json:"pass_rate_of_planned"`
	OfMeasured *float64 `json:"pass_rate_of_measured"`
	// Score is the mean over the measured trials; a trial that ended in an
	// error before it had a score counts as 0. Null when no trial has a score,
	// unless all ended in such errors and others of the run have scores.
	Score *float64 `json:"mean_score"`
	// Scores are the means of the scores by name, over the trials that have no
	// deciding score; a trial that ended in an error before it had a score counts as
	// 0 in those of its task that have no values below 0 or above 1.
	Scores map[string]float64 `json:"mean_scores,omitempty"`
	// Labels count the measured trials by the labels that verifiers gave: by name,
	// then by text. Texts of a name that are not among its 50 most frequent ones are
	// counted together, as "(others)".
	Labels map[string]map[string]int `json:"labels,omitempty"`
	// Instead is what tables print in place of scores: LabelIFE, if more than 90 % of
	// the measured trials have that label.
	Instead string `json:"in_place_of_score,omitempty"`
	Oracle  bool   `json:"oracle,omitempty"`
	// Exposed counts the measured trials whose result may have been influenced
	// by processes that the agent left running, or by its changes.
	Exposed int `json:"exposed"`
	// Budget counts the measured trials whose agent was stopped by the budget
	// of its attempt.
	Budget int `json:"ended_by_budget"`
	// Unexpected has the trials whose result is not the one that their task expects,
	// each with both results.
	Unexpected []string `json:"unexpected,omitempty"`

	others  map[string][]float64
	scores  int
	sum     float64
	without int // measured trials that ended in an error without a score
}

// Policy says which trials count as measured. It is defined here once, for all
// tables.
const Policy = "measured are passed, failed, scored, agent_error, and, once the agent has worked, verifier_error, artifact_missing and " +
	"integrity_violation; everything else says nothing about the agent"

// infrastructureMark is the share of trials with an infrastructure outcome at
// which a table is marked.
const infrastructureMark = 0.05

// place identifies a row of the table of tasks.
type place struct {
	task, dataset string
	cell          int
}

// Of counts the results of a run.
func Of(m *store.Manifest, x *store.Index) *Summary {
	s := &Summary{
		Version: 1, Run: m.Header.Run, Experiment: m.Header.Experiment, Created: m.Header.Created, Updated: time.Now().UTC(),
		Outcomes: map[record.Outcome]int{}, Policy: Policy, Complete: true,
	}
	cells := make([]Row, len(m.Cells))
	for i := range m.Cells {
		c := &m.Cells[i]
		cells[i] = Row{Name: c.Key, Agent: c.Agent, Model: c.Model, Outcomes: map[record.Outcome]int{}}
	}
	tasks, several := map[place]*Row{}, SharedNames(m)
	facts, undecided := map[string]int{}, undecided(x)
	for _, t := range x.Trials {
		at := place{task: t.Task, cell: t.Cell}
		if several[t.Task] {
			at.dataset = t.Dataset
		}
		row := tasks[at]
		if row == nil {
			c := &cells[t.Cell]
			row = &Row{Name: t.Task, Dataset: at.dataset, Cell: c.Name, Agent: c.Agent, Model: c.Model, Outcomes: map[record.Outcome]int{}}
			tasks[at] = row
		}
		o := t.Outcome()
		s.Planned++
		s.Outcomes[o]++
		s.Complete = s.Complete && (o.Final() || t.Refused != "")
		accepted := t.Accepted()
		cells[t.Cell].count(t, accepted, undecided)
		row.count(t, accepted, undecided)
		got, want := expectation(&m.Cells[t.Cell], t)
		if !slices.Contains([]record.Outcome{record.Passed, record.Failed, record.Scored, record.NotRun}, o) && got != want {
			s.Errors++
		}
		if want != "" && got != want {
			text := fmt.Sprintf("%s: %s, expected %s", t.Task, got, want)
			cells[t.Cell].Unexpected = append(cells[t.Cell].Unexpected, text)
			row.Unexpected = append(row.Unexpected, text)
		}
		count(facts, t, accepted)
		s.use(t, x.UnderWay(t))
	}
	scores := slices.ContainsFunc(cells, func(r Row) bool { return r.scores > 0 })
	for i := range cells {
		cells[i].finish(scores)
	}
	for _, at := range slices.SortedFunc(maps.Keys(tasks), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.task, b.task), cmp.Compare(a.dataset, b.dataset), cmp.Compare(a.cell, b.cell))
	}) {
		tasks[at].finish(scores)
		s.Tasks = append(s.Tasks, *tasks[at])
	}
	s.Cells = cells
	s.mark(x, facts)
	return s
}

// expectation returns the result of a trial in the words of task.Expectations, or its
// outcome, and the one that its task expects in the cell; empty: none.
func expectation(c *store.Cell, t *store.TrialState) (got, want string) {
	for _, value := range c.Choices {
		want = cmp.Or(want, t.Expect[value])
	}
	got = string(t.Outcome())
	if t.Measured() {
		switch r := t.Accepted().Result; {
		case r.Outcome != record.Passed:
			got = "failed"
		case r.Integrity != record.Checked:
			got = "exposed"
		}
	}
	return got, want
}

// SharedNames returns the names of tasks that several datasets have.
func SharedNames(m *store.Manifest) map[string]bool {
	first, shared := map[string]string{}, map[string]bool{}
	for i := range m.Trials {
		t := &m.Trials[i]
		if d, ok := first[t.Task]; ok && d != t.Dataset {
			shared[t.Task] = true
		}
		first[t.Task] = t.Dataset
	}
	return shared
}

// use adds the attempts of a trial, whether or not they were accepted, and also
// those whose process was killed.
func (s *Summary) use(t *store.TrialState, underWay bool) {
	for i := range t.Attempts {
		switch {
		case t.Attempts[i].Result != nil:
			s.Attempts++
		case i < len(t.Attempts)-1 || !underWay:
			s.Lost++
		}
	}
	work, again := t.Spend()
	sum := store.Spend{CostUSD: s.CostUSD, Unpriced: s.Unpriced, Tokens: s.Tokens, Estimated: s.Estimated, Fallback: s.Fallback}
	sum.Add(work)
	s.CostUSD, s.Unpriced, s.Tokens, s.Estimated, s.Fallback = sum.CostUSD, sum.Unpriced, sum.Tokens, sum.Estimated, sum.Fallback
	if again == (store.Spend{}) {
		return
	}
	if s.Regrades == nil {
		s.Regrades = &store.Spend{}
	}
	s.Regrades.Add(again)
}

// undecided returns the names of the scores of which none decides, by the place of
// their task without its cell, but for those with values below 0 or above 1.
func undecided(x *store.Index) map[place][]string {
	raw, of := map[string]bool{}, map[place]map[string]bool{}
	for _, t := range x.Trials {
		if !t.Measured() {
			continue
		}
		at := place{task: t.Task, dataset: t.Dataset}
		for name, v := range t.Accepted().Result.Scores {
			if of[at] == nil {
				of[at] = map[string]bool{}
			}
			of[at][name] = true
			raw[name] = raw[name] || v < 0 || v > 1
		}
	}
	names := map[place][]string{}
	for task, all := range of {
		maps.DeleteFunc(all, func(name string, _ bool) bool { return raw[name] })
		names[task] = slices.Collect(maps.Keys(all))
	}
	return names
}

func (r *Row) count(t *store.TrialState, a *store.AttemptState, undecided map[place][]string) {
	o := t.Outcome()
	r.Planned++
	r.Outcomes[o]++
	if o == record.Passed {
		r.Passed++
		if a.Result.Integrity == record.Checked {
			r.PassedChecked++
		}
	}
	if !t.Measured() {
		return
	}
	r.Measured++
	r.Oracle = r.Oracle || a.Result.Oracle
	if a.Result.Integrity == record.Exposed {
		r.Exposed++
	}
	if a.Result.AgentEnd == record.Budget {
		r.Budget++
	}
	if r.others == nil {
		r.others = map[string][]float64{}
	}
	for name, v := range a.Result.Scores {
		r.others[name] = append(r.others[name], v)
	}
	for name, text := range a.Result.Labels {
		if r.Labels == nil {
			r.Labels = map[string]map[string]int{}
		}
		if r.Labels[name] == nil {
			r.Labels[name] = map[string]int{}
		}
		r.Labels[name][text]++
	}
	switch {
	case a.Result.Score != nil:
		r.scores++
		r.sum += *a.Result.Score
	case o != record.Passed && o != record.Failed && o != record.Scored:
		r.without++
		for _, name := range undecided[place{task: t.Task, dataset: t.Dataset}] {
			r.others[name] = append(r.others[name], 0)
		}
	}
}

// finish computes the rates and means of a row. scores says that other trials of
// the run have a score.
func (r *Row) finish(scores bool) {
	rate := func(n int) *float64 {
		if n == 0 {
			return nil
		}
		v := float64(r.Passed) / float64(n)
		return &v
	}
	r.OfMeasured, r.OfPlanned = rate(r.Measured), rate(r.Planned)
	for name, vs := range r.others {
		if r.Scores == nil {
			r.Scores = map[string]float64{}
		}
		for _, v := range vs {
			r.Scores[name] += v / float64(len(vs))
		}
	}
	ife := 0
	for _, n := range r.Labels[LabelIFE] {
		ife += n
	}
	r.Instead = Instead(ife, r.Measured)
	for _, counts := range r.Labels {
		fewLabels(counts)
	}
	if r.scores > 0 || scores && r.without > 0 && r.without == r.Measured {
		mean := r.sum / float64(r.scores+r.without)
		r.Score = &mean
	}
}

// LabelIFE is the label of an attempt whose agent did not follow its instructions
// (instruction following error), so that its score says nothing about the task.
const LabelIFE = "ife"

// Instead returns what a table prints in place of a score of which so many of the
// measured trials have the label LabelIFE; empty: the score itself.
func Instead(labelled, measured int) string {
	const share = 0.9
	if float64(labelled) > share*float64(measured) {
		return LabelIFE
	}
	return ""
}

// OtherLabels stands for the texts of a label that are not counted one by one.
const OtherLabels = "(others)"

// maxLabels is how many texts of a label are counted one by one.
const maxLabels = 50

// ByCount returns the texts of a label, the most frequent first.
func ByCount(counts map[string]int) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
}

func fewLabels(counts map[string]int) {
	texts := ByCount(counts)
	for _, text := range texts[min(len(texts), maxLabels):] {
		n := counts[text]
		delete(counts, text)
		counts[OtherLabels] += n
	}
}

// count counts the facts that marks are based on.
func count(facts map[string]int, t *store.TrialState, a *store.AttemptState) {
	if t.Outcome().Infrastructure() && !t.Measured() {
		facts["infrastructure"]++
	}
	if a == nil {
		return
	}
	if a.Result.Modified {
		facts["modified"]++
	}
	if len(a.Result.Scores) > 0 {
		facts["undecided"]++
	}
	if t.Measured() {
		facts["integrity "+string(a.Result.Integrity)]++
	}
}

// mixed names the plugins and images of which the accepted attempts used
// different versions.
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

// several counts the trials with more than one attempt that has ended.
func several(x *store.Index) (n int) {
	for _, t := range x.Trials {
		ended := 0
		for i := range t.Attempts {
			if t.Attempts[i].Result != nil {
				ended++
			}
		}
		if ended > 1 {
			n++
		}
	}
	return n
}

// mark adds the reasons to read the numbers with care.
func (s *Summary) mark(x *store.Index, facts map[string]int) {
	add := func(n int, one, many string) {
		if n > 0 {
			s.Marks = append(s.Marks, terminal.Count(n, one, many))
		}
	}
	if n := facts["infrastructure"]; float64(n) > infrastructureMark*float64(s.Planned) {
		add(n, "trial ended for a reason that is not the agent's: rates of measured and planned trials differ",
			"trials ended because of infrastructure errors: rates of measured and planned trials differ")
	}
	add(facts["integrity "+string(record.Exposed)], "result could have been influenced by what the agent left running or changed (exposed)",
		"results could have been influenced by what the agent left running or changed (exposed)")
	add(facts["undecided"], "result has scores of which none decides: say which one counts with success { key = …  at_least = … } in the dataset block",
		"results have scores of which none decides: say which one counts with success { key = …  at_least = … } in the dataset block")
	add(facts["modified"], "result is of a modified task: the experiment grants less than the task asks",
		"results are of modified tasks: the experiment grants less than the tasks ask")
	add(several(x), "trial has more than one attempt: the last one that settled it counts, and the cost is that of all attempts",
		"trials have more than one attempt: the last one that settled a trial counts, and the cost is that of all attempts")
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
	s.Marks = append(s.Marks, Interventions(x)...)
	add(x.Torn+x.Damaged, "line of the journals could not be read", "lines of the journals could not be read")
	if !s.Complete {
		s.Marks = append(s.Marks, "the run is not complete")
	}
}
