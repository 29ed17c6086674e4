package numbers

import (
	"fmt"
	"math"
	"strconv"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// Raw says which scores are not fractions: they have a value below 0 or above 1 in
// a measured trial, also in one that is not selected, so that a score is of one
// kind in all tables. Such scores are printed as they are, and not in percent.
type Raw struct {
	rewards map[string]bool // by the name of a verifier's score
	decides map[string]bool // by dataset: the score that decides
}

// Raw finds the raw scores of all trials.
func (j *Joined) Raw() *Raw { return rawOf(j.Runs) }

func rawOf(runs []Run) *Raw {
	r := &Raw{rewards: map[string]bool{}, decides: map[string]bool{}}
	for i := range runs {
		for _, t := range runs[i].Index.Trials {
			if !t.Measured() {
				continue
			}
			b := t.Accepted().Result
			for name, v := range b.Rewards {
				if v < 0 || v > 1 {
					r.rewards[name] = true
				}
			}
			if b.Score != nil && (*b.Score < 0 || *b.Score > 1) {
				r.decides[t.Dataset] = true
			}
		}
	}
	return r
}

// Reward reports whether the verifiers' score of that name is raw.
func (r *Raw) Reward(name string) bool { return r.rewards[name] }

// Any reports whether a score that decides is raw.
func (r *Raw) Any() bool { return len(r.decides) > 0 }

// Decides reports whether the score that decides is raw in the dataset of a trial.
func (r *Raw) Decides(t *store.TrialState) bool { return r.decides[t.Dataset] }

// Undecided reports whether a trial has a raw score and nothing that says which
// value of it is the full reward.
func (r *Raw) Undecided(t *store.TrialState) bool {
	return r.Decides(t) && t.Outcome() == record.Scored
}

// Value prints a rate: a fraction in percent, or a raw score as it is.
func Value(x float64, raw bool) string {
	switch {
	case math.IsNaN(x):
		return "–"
	case raw:
		return strconv.FormatFloat(x, 'g', 4, 64)
	case math.Abs(x) < 0.0005:
		x = 0
	}
	return fmt.Sprintf("%.1f", 100*x)
}

// Share prints a rate as Value does; one that is not known as a dash.
func Share(x *float64, raw bool) string {
	if x == nil {
		return None
	}
	return Value(*x, raw)
}

// Difference prints a difference, of rates in points of a percent.
func Difference(x float64, raw bool) string {
	s := Value(x, raw)
	if s == "0.0" || x <= 0 {
		return s
	}
	return "+" + s
}

// Between prints an interval: its bounds as show does, and a dash if there is none.
func Between(in *output.Interval, raw bool, show func(float64, bool) string) string {
	if in == nil {
		return None
	}
	return show(in.Low, raw) + " to " + show(in.High, raw)
}
