package numbers

import (
	"cmp"
	"fmt"

	"github.com/berth-eval/berth/cmd/berth/internal/stats"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
)

// ratesOf says what rates are of.
type ratesOf struct {
	weigh string // that of Rules
	k     int    // of pass@k, all-k and best of k; 0: what every task has
	full  bool   // it is known which trials have the full reward
	cell  bool   // the trials are of one cell
}

// rates computes the rates of a sample and how sure they are.
func rates(r *output.Rates, s *stats.Sample, of *ratesOf) error {
	least, most := s.Repetitions()
	r.Tasks, r.Repetitions = s.Tasks(), most
	rate, one := s.Mean(), s.PassAt1()
	r.Mean, r.ClusterSE, r.Interval = &rate, number(s.SE()), interval(s.Interval(level))
	if of.cell {
		over := s.OverRepetitions()
		r.SE, r.SD = number(over.SE), number(over.SD)
	}
	if of.weigh == WeighCategory {
		weighed := s.GroupsEqually(level)
		r.Mean, r.ClusterSE, r.Interval = &weighed.Mean, number(weighed.SE), interval(weighed.Interval)
		r.SE, r.SD = nil, nil // they are about the mean over trials
	}
	if of.full {
		r.PassAt1 = &one
		by := s.Solved()
		r.Always, r.Sometimes, r.Never = by.Always, by.Sometimes, by.Never
	}
	switch {
	case of.k == 0 && least == 1:
		return nil
	case of.k > most:
		return fmt.Errorf("k is %d, and no task has more than %d measured %s. Choose a smaller --k, or add repetitions", of.k, most, terminal.Count(most, "trial", "trials")[2:])
	}
	return ratesOfK(r, s, cmp.Or(of.k, least), of.full)
}

// ratesOfK computes what is about k trials of a task.
func ratesOfK(r *output.Rates, s *stats.Sample, k int, full bool) error {
	some, err := s.PassAtK(k)
	if err != nil {
		return err
	}
	all, err := s.AllK(k)
	if err != nil {
		return err
	}
	best, err := s.BestOf(k)
	r.K, r.BestOfK, r.TasksOfK = k, &best.Value, some.Tasks
	if full {
		r.PassAtK, r.AllK = &some.Value, &all.Value
	}
	return err
}
