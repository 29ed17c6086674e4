package numbers

import (
	"fmt"

	"github.com/berth-eval/berth/cmd/berth/internal/stats"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/record"
)

// Tally counts the trials of a cell, or of a row of a table, and computes their numbers.
type Tally struct {
	output.ComparedCell

	Sample *stats.Sample // of the measured trials; nil: there is none

	trials []stats.Attempt
	reward string // the verifiers' score that the numbers are about; empty: the one that decides
	other  bool   // that score is not the one that decides
	ife    int    // measured trials whose agent did not follow its instructions
	open   bool   // nothing says which trials have the full reward
}

// Tallies counts the trials of each cell and computes its numbers. counted is told of
// each trial, with the attempt that counts if it was measured.
func (j *Joined) Tallies(raw *Raw, rules Rules, counted func(t *Trial, a stats.Attempt, measured bool)) ([]*Tally, error) {
	cells := make([]*Tally, len(j.Cells))
	for i := range j.Cells {
		cells[i] = &Tally{ComparedCell: output.ComparedCell{Name: j.Cells[i].Name, Cell: j.Cells[i].Key}}
	}
	for i := range j.Trials {
		t, c := &j.Trials[i], cells[j.Trials[i].Cell]
		c.Raw = c.Raw || raw.Decides(t.TrialState)
		c.open = c.open || raw.Undecided(t.TrialState)
	}
	for i := range j.Trials {
		t := &j.Trials[i]
		a, measured := cells[t.Cell].add(t, rules.Weigh)
		counted(t, a, measured)
	}
	for _, c := range cells {
		if err := c.compute(&ratesOf{weigh: rules.Weigh, full: !c.open, cell: true}); err != nil {
			return nil, fmt.Errorf("cell %s: %w", c.Name, err)
		}
	}
	return cells, nil
}

// add counts a trial. weigh is that of Rules. It returns the attempt that counts, if
// the trial was measured.
func (c *Tally) add(t *Trial, weigh string) (a stats.Attempt, measured bool) {
	c.Planned++
	if a, measured = Attempt(t.TrialState, t.TaskName); !measured {
		return a, false
	}
	c.Measured++
	r := t.Accepted().Result
	if r.Integrity == record.Exposed {
		c.Exposed++
	}
	if r.Outcome == record.Passed && r.Integrity == record.Checked {
		c.PassedChecked++
	}
	if r.Labels[summary.LabelIFE] != "" {
		c.ife++
	}
	if c.reward != "" {
		a.Score = r.Rewards[c.reward]
		a.Full = a.Score >= 1
		c.other = c.other || r.Score == nil || *r.Score != a.Score
	}
	if weigh == WeighCategory {
		a.Group = t.Category
	}
	a.Full = a.Full && !c.open
	c.trials = append(c.trials, a)
	return a, true
}

// compute computes the numbers of the trials that were added. Without a measured
// one there are none.
func (c *Tally) compute(of *ratesOf) (err error) {
	if len(c.trials) == 0 {
		return nil
	}
	s, err := stats.New(c.trials)
	if err != nil {
		return err
	}
	c.Sample = s
	if !c.other {
		c.Instead = summary.Instead(c.ife, c.Measured)
	}
	return rates(&c.Rates, s, of)
}
