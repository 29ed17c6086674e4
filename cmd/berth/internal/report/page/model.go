// Package page writes the report of one or several runs as one HTML file, which
// needs no network.
//
// Everything that a run folder contains is foreign: it is put into the page as text
// only. The numbers are those of packages numbers and stats.
package page

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/stats"
	"github.com/berth-eval/berth/core/store"
)

// Options say how the numbers are computed.
type Options struct {
	Seed  uint64 // of random permutations
	Berth string // version of this program
	Rules numbers.Rules
	Force bool // also what the rules refuse, with marks
	// Selected says which trials count; nil: all. Choice names what it is made from,
	// such as "--select".
	Selected func(*numbers.Trial) (bool, error)
	Choice   string
}

// Level of all intervals, and how many permutations are drawn.
const (
	level        = 0.95
	permutations = 10_000
)

// cell has the numbers of one cell.
type cell struct {
	Name, Key         string
	Planned, Measured int
	Exposed           int
	Attempts          int
	Timeouts          int
	Tasks, Reps       int
	Rate, Low, High   float64 // fractions; NaN: not known
	SE, SD, PassAt1   float64
	K                 int
	PassAtK, AllK     float64
	Always, Sometimes int
	Never             int
	Full              int // trials with the full reward
	Cost              *float64
	Unpriced          bool
	Tokens, Requests  int64
	AgentTime         time.Duration // of measured trials
	Outcomes          map[record.Outcome]int
	Ends              map[record.AgentEnd]int
	Integrity         map[record.Integrity]int
	Choices           map[string]string
	Reasons           []string // not to print its numbers

	sample *stats.Sample
	trials []stats.Attempt
	times  []float64 // of the agent, in seconds, of passed trials
}

// model is everything that the page says.
type model struct {
	Title    string
	Berth    string
	Runs     []runFacts
	Notes    []string
	Cells    []*cell
	Ranked   []*cell // by success rate
	Marked   int     // how many cells have numbers that the rules refuse
	Rules    numbers.Rules
	Outcomes []record.Outcome   // that occur
	Ends     []record.AgentEnd  // that occur
	Grades   []record.Integrity // that occur
	Groups   []group
	Pairs    []output.ComparedPair
	MorePair int // pairs that are not listed
	Findings []finding
	Reasons  []finding // of integrity
	Seed     uint64
	Policy   string

	joined *numbers.Joined
	tasks  []string
}

// runFacts say what a run was.
type runFacts struct {
	Name, ID, Experiment, Berth, Created, Imported string
	Planned                                        int
	Files                                          [][2]string // of the experiment, with their digests
	Used                                           [][2]string // plugins, bundles and images, with their digests
	Variables                                      [][2]string
}

// group has the numbers of a part of the tasks, for each cell.
type group struct {
	Kind, Name string
	Tasks      int
	Rates      []float64 // by cell; NaN: no measured trial
}

// finding counts what was found.
type finding struct {
	Code, Severity, Text string
	Trials               int
}

// newModel computes the numbers of the runs.
func newModel(runs []numbers.Run, o *Options) (*model, error) {
	j, err := numbers.Join(runs)
	if err != nil {
		return nil, err
	}
	refused := o.Rules.Refused(j)
	if all := slices.Concat(refused...); len(all) > 0 && !o.Force {
		return nil, numbers.Refusal(all)
	}
	m := &model{Berth: o.Berth, Notes: slices.Clone(j.Notes), Seed: o.Seed, Rules: o.Rules, joined: j}
	if err = m.choose(o); err != nil {
		return nil, err
	}
	for i := range j.Cells {
		m.Cells = append(m.Cells, &cell{
			Name: j.Cells[i].Name, Key: j.Cells[i].Key, Reasons: refused[i], Outcomes: map[record.Outcome]int{}, Ends: map[record.AgentEnd]int{}, Integrity: map[record.Integrity]int{},
		})
	}
	for i := range j.Trials {
		m.Cells[j.Trials[i].Cell].add(&j.Trials[i], o.Rules.Weigh)
	}
	for _, c := range m.Cells {
		if err = c.measure(o); err != nil {
			return nil, fmt.Errorf("cell %s: %w", c.Name, err)
		}
	}
	m.Ranked = slices.Clone(m.Cells)
	slices.SortStableFunc(m.Ranked, func(a, b *cell) int { return cmp.Compare(b.Rate, a.Rate) })
	for _, c := range m.Cells {
		if len(c.Reasons) > 0 {
			m.Marked++
		}
	}
	m.occurring()
	m.order()
	for i := range runs {
		m.Runs = append(m.Runs, factsOf(&runs[i]))
	}
	m.Title = m.Runs[0].Experiment
	m.Groups = m.groups()
	if m.Pairs, err = m.pairs(); err != nil {
		return nil, err
	}
	m.found()
	return m, nil
}

// choose leaves the trials that are selected.
func (m *model) choose(o *Options) error {
	if o.Selected == nil {
		return nil
	}
	var kept []numbers.Trial
	for i := range m.joined.Trials {
		yes, err := o.Selected(&m.joined.Trials[i])
		if err != nil {
			return err
		}
		if yes {
			kept = append(kept, m.joined.Trials[i])
		}
	}
	if len(kept) == 0 {
		return fmt.Errorf("%s chooses no trial, so that there is nothing to report", o.Choice)
	}
	m.Notes = append(m.Notes, numbers.Chosen(len(kept), len(m.joined.Trials), o.Choice))
	m.joined.Trials = kept
	return nil
}

// add counts a trial. weigh is that of numbers.Rules.
func (c *cell) add(t *numbers.Trial, weigh string) {
	c.Planned++
	c.Choices = t.Of().Choices
	o := t.Outcome()
	c.Outcomes[o]++
	for i := range t.Attempts {
		a := &t.Attempts[i]
		c.Attempts++
		spent := store.Spend{CostUSD: c.Cost, Unpriced: c.Unpriced, Tokens: c.Tokens, Requests: c.Requests}
		spent.Add(a.Spend())
		c.Cost, c.Unpriced, c.Tokens, c.Requests = spent.CostUSD, spent.Unpriced, spent.Tokens, spent.Requests
	}
	one, measured := numbers.Attempt(t.TrialState, t.TaskName)
	if acc := t.Accepted(); acc != nil {
		c.Integrity[acc.Result.Integrity]++
		if acc.Result.AgentEnd != "" {
			c.Ends[acc.Result.AgentEnd]++
		}
	}
	if !measured {
		return
	}
	c.Measured++
	r := t.Accepted().Result
	if r.Integrity == record.Exposed {
		c.Exposed++
	}
	if r.AgentEnd == record.Timeout {
		c.Timeouts++
	}
	c.AgentTime += r.AgentTime
	if one.Full {
		c.Full++
		if r.AgentTime > 0 {
			c.times = append(c.times, max(r.AgentTime.Seconds(), 0.001))
		}
	}
	if one.Group = ""; weigh == numbers.WeighCategory {
		one.Group = t.Category
	}
	c.trials = append(c.trials, one)
}

// measure computes the numbers of a cell. A cell without a measured trial has none.
func (c *cell) measure(o *Options) (err error) {
	nan := math.NaN()
	c.Rate, c.Low, c.High, c.SE, c.SD, c.PassAt1 = nan, nan, nan, nan, nan, nan
	if len(c.trials) == 0 {
		return nil
	}
	if c.sample, err = stats.New(c.trials); err != nil {
		return err
	}
	s := c.sample
	c.Tasks = s.Tasks()
	least, most := s.Repetitions()
	c.Reps = most
	c.Rate, c.PassAt1 = s.Mean(), s.PassAt1()
	in, over := s.Interval(level), s.OverRepetitions()
	c.SE, c.SD = over.SE, over.SD
	if o.Rules.Weigh == numbers.WeighCategory {
		g := s.GroupsEqually(level)
		c.Rate, in = g.Mean, g.Interval
		c.SE, c.SD = nan, nan // they are about the mean over trials
	}
	if !math.IsNaN(in.Low) {
		c.Low, c.High = in.Low, in.High
	}
	if least > 1 {
		some, err := s.PassAtK(least)
		if err != nil {
			return err
		}
		all, err := s.AllK(least)
		if err != nil {
			return err
		}
		c.K, c.PassAtK, c.AllK = least, some.Value, all.Value
	}
	by := s.Solved()
	c.Always, c.Sometimes, c.Never = len(by.Always), len(by.Sometimes), len(by.Never)
	return nil
}

// occurring lists what occurs, in the order of tables.
func (m *model) occurring() {
	outcomes, ends, grades := map[record.Outcome]bool{}, map[record.AgentEnd]bool{}, map[record.Integrity]bool{}
	for _, c := range m.Cells {
		for o := range c.Outcomes {
			outcomes[o] = true
		}
		for e := range c.Ends {
			ends[e] = true
		}
		for g := range c.Integrity {
			grades[g] = true
		}
	}
	for _, o := range record.Outcomes {
		if outcomes[o] {
			m.Outcomes = append(m.Outcomes, o)
		}
	}
	m.Ends = slices.Sorted(maps.Keys(ends))
	m.Grades = slices.Sorted(maps.Keys(grades))
}

// order sorts the tasks of the heat map by their mean score, best first.
func (m *model) order() {
	sum, n := map[string]float64{}, map[string]int{}
	for i := range m.joined.Trials {
		t := &m.joined.Trials[i]
		n[t.TaskName] += 0
		if a, ok := numbers.Attempt(t.TrialState, t.TaskName); ok {
			sum[t.TaskName] += a.Score
			n[t.TaskName]++
		}
	}
	m.tasks = slices.Collect(maps.Keys(n))
	mean := func(t string) float64 { return sum[t] / float64(max(n[t], 1)) }
	slices.SortFunc(m.tasks, func(a, b string) int { return cmp.Or(cmp.Compare(mean(b), mean(a)), cmp.Compare(a, b)) })
}

// groups returns the numbers by dataset, category, difficulty and tag. A kind with
// one group says nothing.
func (m *model) groups() (all []group) {
	type key struct{ kind, name string }
	sums, counts := map[key][]float64{}, map[key][]float64{}
	tasks := map[key]map[string]bool{}
	for i := range m.joined.Trials {
		t := &m.joined.Trials[i]
		a, ok := numbers.Attempt(t.TrialState, t.TaskName)
		keys := []key{{"dataset", t.Dataset}}
		if t.Category != "" {
			keys = append(keys, key{"category", t.Category})
		}
		if t.Difficulty != "" {
			keys = append(keys, key{"difficulty", t.Difficulty})
		}
		for _, tag := range t.Tags {
			keys = append(keys, key{"tag", tag})
		}
		for _, k := range keys {
			if tasks[k] == nil {
				tasks[k], sums[k], counts[k] = map[string]bool{}, make([]float64, len(m.Cells)), make([]float64, len(m.Cells))
			}
			if tasks[k][t.TaskName] = true; ok {
				sums[k][t.Cell] += a.Score
				counts[k][t.Cell]++
			}
		}
	}
	kinds := map[string]int{}
	for k := range tasks {
		kinds[k.kind]++
	}
	for k := range tasks {
		if kinds[k.kind] < 2 {
			continue
		}
		g := group{Kind: k.kind, Name: k.name, Tasks: len(tasks[k])}
		for c := range m.Cells {
			g.Rates = append(g.Rates, sums[k][c]/counts[k][c])
		}
		all = append(all, g)
	}
	sort.Slice(all, func(i, j int) bool {
		return cmp.Or(cmp.Compare(all[i].Kind, all[j].Kind), cmp.Compare(all[i].Name, all[j].Name)) < 0
	})
	return all
}

// maxPairs is how many pairs are listed; all of them count for the correction.
const maxPairs = 1000

// pairs compares all pairs of cells that have results on common tasks.
func (m *model) pairs() ([]output.ComparedPair, error) {
	var all []output.ComparedPair
	var ps []float64
	for i, a := range m.Cells {
		for _, b := range m.Cells[i+1:] {
			if a.sample == nil || b.sample == nil || !common(a, b) {
				continue
			}
			pair, err := numbers.Pair(numbers.Side{Name: a.Name, Sample: a.sample}, numbers.Side{Name: b.Name, Sample: b.sample}, m.Seed)
			if err != nil {
				return nil, fmt.Errorf("cells %s and %s: %w", a.Name, b.Name, err)
			}
			all = append(all, *pair)
			ps = append(ps, pair.P)
		}
	}
	for i, p := range stats.Holm(ps) {
		all[i].Holm = p
		all[i].Sentence = numbers.Sentence(&all[i])
	}
	slices.SortStableFunc(all, func(a, b output.ComparedPair) int { return cmp.Compare(a.P, b.P) })
	m.MorePair = max(0, len(all)-maxPairs)
	return all[:len(all)-m.MorePair], nil
}

// common reports whether two cells have a task in common.
func common(a, b *cell) bool {
	have := map[string]bool{}
	for i := range a.trials {
		have[a.trials[i].Task] = true
	}
	return slices.ContainsFunc(b.trials, func(t stats.Attempt) bool { return have[t.Task] })
}
