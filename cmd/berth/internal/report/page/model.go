// Package page writes the report of one or several runs as one HTML file, which
// needs no network.
//
// Everything that a run folder contains is foreign: it is put into the page as text
// only. The numbers are those of packages numbers and stats.
package page

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/internal/selection"
	"github.com/berth-eval/berth/cmd/berth/internal/stats"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// Options say how the numbers are computed.
type Options struct {
	Berth  string // version of this program
	Rules  numbers.Rules
	Force  bool   // also what the rules refuse, with marks
	Select string // expression of the trials that count, as in numbers.Wanted
	// Base is the address of the run in the viewer, for links to its attempts; empty:
	// the report has no links.
	Base string
}

// cell has the numbers of one cell.
type cell struct {
	*numbers.Tally

	Attempts  int
	Timeouts  int
	Full      int // trials with the full reward
	Spend     store.Spend
	AgentTime time.Duration // of measured trials
	Outcomes  map[record.Outcome]int
	Ends      map[record.AgentEnd]int
	Integrity map[record.Integrity]int
	Choices   map[string]string
	Reasons   []string // not to print its numbers
}

// Report is everything that the page says.
type Report struct {
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
	Groups   []*group
	Pairs    []output.ComparedPair
	MorePair int // pairs that are not listed
	Base     string
	Data     string // of the script, compressed
	Findings []finding
	Reasons  []finding // of integrity
	Raw      bool      // scores have values below 0 or above 1: their means are printed as they are

	joined *numbers.Joined
	tasks  []string
	charts map[string][]rowOf
}

// runFacts say what a run was.
type runFacts struct {
	Name, ID, Experiment, Berth, Created, Imported string
	Planned                                        int
	Files                                          [][2]string // of the experiment, with their digests
	Used                                           [][2]string // plugins, bundles and images, with their digests
	Variables                                      [][2]string
}

// finding counts what was found.
type finding struct {
	Code, Severity, Text string
	Trials               int
}

// New computes the numbers of the runs and everything else that the report has.
func New(runs []numbers.Run, o *Options) (*Report, error) {
	j, err := numbers.Join(runs)
	if err != nil {
		return nil, err
	}
	refused := o.Rules.Refused(j)
	if all := slices.Concat(refused...); len(all) > 0 && !o.Force {
		return nil, numbers.Refusal(all)
	}
	if j, err = j.Choose(o.Select); err != nil {
		return nil, err
	}
	if o.Select != "" && len(j.Trials) == 0 {
		return nil, fmt.Errorf("%s chooses no trial, so that there is nothing to report", selection.Flag)
	}
	raw := j.Raw() // of all trials, also those that are not selected
	m := &Report{
		Title: j.Runs[0].Manifest.Header.Experiment, Base: o.Base, Berth: o.Berth, Notes: slices.Clone(j.Notes), Rules: o.Rules, Raw: raw.Any(), joined: j,
	}
	for i := range j.Cells {
		m.Cells = append(m.Cells, &cell{
			Reasons: refused[i], Outcomes: map[record.Outcome]int{}, Ends: map[record.AgentEnd]int{}, Integrity: map[record.Integrity]int{},
		})
	}
	tallies, err := j.Tallies(raw, o.Rules, func(t *numbers.Trial, a stats.Attempt, measured bool) { m.Cells[t.Cell].add(t, a, measured) })
	if err != nil {
		return nil, err
	}
	for i, t := range tallies {
		m.Cells[i].Tally = t
	}
	m.Ranked = slices.Clone(m.Cells)
	slices.SortStableFunc(m.Ranked, func(a, b *cell) int { return cmp.Compare(b.rate(), a.rate()) })
	for _, c := range m.Cells {
		if len(c.Reasons) > 0 {
			m.Marked++
		}
	}
	for i := range m.joined.Runs {
		m.Runs = append(m.Runs, factsOf(&m.joined.Runs[i]))
	}
	m.Outcomes = occurring(m.Cells, func(c *cell) map[record.Outcome]int { return c.Outcomes })
	slices.SortFunc(m.Outcomes, func(a, b record.Outcome) int {
		return slices.Index(record.Outcomes, a) - slices.Index(record.Outcomes, b)
	})
	m.Ends = occurring(m.Cells, func(c *cell) map[record.AgentEnd]int { return c.Ends })
	m.Grades = occurring(m.Cells, func(c *cell) map[record.Integrity]int { return c.Integrity })
	m.order()
	if m.Groups, err = m.groups(); err != nil {
		return nil, err
	}
	if m.Pairs, err = m.pairs(); err != nil {
		return nil, err
	}
	m.found()
	return m, m.pack()
}

// add counts a trial, with the attempt that counts if it was measured.
func (c *cell) add(t *numbers.Trial, a stats.Attempt, measured bool) {
	c.Choices = t.Of().Choices
	c.Outcomes[t.Outcome()]++
	c.Attempts += len(t.Attempts)
	work, _ := t.Spend()
	c.Spend.Add(work)
	if acc := t.Accepted(); acc != nil {
		c.Integrity[acc.Result.Integrity]++
		if acc.Result.AgentEnd != "" {
			c.Ends[acc.Result.AgentEnd]++
		}
	}
	if !measured {
		return
	}
	r := t.Accepted().Result
	if r.AgentEnd == record.Timeout {
		c.Timeouts++
	}
	c.AgentTime += r.AgentTime
	if a.Full {
		c.Full++
	}
}

// occurring lists what occurs in the cells.
func occurring[K cmp.Ordered](cells []*cell, of func(*cell) map[K]int) []K {
	seen := map[K]int{}
	for _, c := range cells {
		maps.Copy(seen, of(c))
	}
	return slices.Sorted(maps.Keys(seen))
}

// order sorts the tasks of the heat map by their mean score, best first.
func (m *Report) order() {
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

// maxPairs is how many pairs are listed; all of them count for the correction.
const maxPairs = 200

// pairs compares all pairs of cells that have results on common tasks.
func (m *Report) pairs() ([]output.ComparedPair, error) {
	var all []output.ComparedPair
	for i, a := range m.Cells {
		for _, b := range m.Cells[i+1:] {
			if a.Sample == nil || b.Sample == nil {
				continue
			}
			pair, err := numbers.Pair(a.Name, b.Name, a.Sample, b.Sample)
			if errors.Is(err, stats.ErrNoCommonTask) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("cells %s and %s: %w", a.Name, b.Name, err)
			}
			pair.Raw = m.Raw
			all = append(all, *pair)
		}
	}
	numbers.Correct(all)
	slices.SortStableFunc(all, func(a, b output.ComparedPair) int { return cmp.Compare(a.P, b.P) })
	m.MorePair = max(0, len(all)-maxPairs)
	return all[:len(all)-m.MorePair], nil
}
