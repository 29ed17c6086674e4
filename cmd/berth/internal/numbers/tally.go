package numbers

import (
	"fmt"

	"github.com/berth-eval/berth/cmd/berth/internal/stats"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// Tally counts the trials of a cell, or of a row of a table, and computes their numbers.
type Tally struct {
	output.ComparedCell

	Sample *stats.Sample // of the measured trials; nil before ComputeAll, and if there is none

	trials []stats.Attempt
	reward string // the verifiers' score that the numbers are about; empty: the one that decides
	other  bool   // that score is not the one that decides
	ife    int    // measured trials whose agent did not follow its instructions
	open   bool   // nothing says which trials have the full reward
}

// Is says which kind of score the cell has, according to one of its trials. Call it
// for all of them before Add.
func (c *Tally) Is(t *store.TrialState, raw *Raw) {
	c.Raw = c.Raw || raw.Decides(t)
	c.open = c.open || raw.Undecided(t)
}

// Add counts a trial, whose task is known by a name that is unique in the table.
// weigh is that of Rules. It returns the attempt that counts, if the trial was
// measured.
func (c *Tally) Add(t *store.TrialState, task, weigh string) (a stats.Attempt, measured bool) {
	c.Planned++
	if a, measured = Attempt(t, task); !measured {
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

// ComputeAll computes the numbers of several cells.
func ComputeAll(cells []*Tally, rules Rules) error {
	for _, c := range cells {
		if err := c.compute(&ratesOf{weigh: rules.Weigh, full: !c.open, cell: true}); err != nil {
			return fmt.Errorf("cell %s: %w", c.Name, err)
		}
	}
	return nil
}
