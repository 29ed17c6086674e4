package harborjob

import (
	"maps"
	"slices"
	"strconv"
)

// count adds a trial to the numbers of the job, as Harbor counts it.
func (e *exporter) count(t *trialResult) {
	s := &e.totals.Stats
	s.Completed++
	key := t.AgentInfo.Name
	if t.AgentInfo.Model != nil {
		key += "__" + t.AgentInfo.Model.Name
	}
	dataset := "adhoc"
	if t.Source != nil {
		dataset = *t.Source
	}
	key += "__" + dataset
	ev := s.Evals[key]
	if ev == nil {
		ev = &evalStats{Metrics: []map[string]float64{}, Rewards: map[string]map[string][]string{}, Exceptions: map[string][]string{}}
		s.Evals[key] = ev
	}
	var got map[string]float64
	if t.Verifier != nil {
		ev.Trials++
		got = map[string]float64{}
		for name, v := range t.Verifier.Rewards {
			got[name] = *v
			if ev.Rewards[name] == nil {
				ev.Rewards[name] = map[string][]string{}
			}
			value := strconv.FormatFloat(*v, 'f', -1, 64)
			ev.Rewards[name][value] = append(ev.Rewards[name][value], t.Trial)
		}
	}
	ev.all = append(ev.all, got)
	if t.Exception != nil {
		ev.Exceptions[t.Exception.Type] = append(ev.Exceptions[t.Exception.Type], t.Trial)
		ev.Errors++
		s.Errored++
		if t.Exception.Type == "CancelledError" {
			s.Cancelled++
		}
	}
	if a := t.Agent; a != nil && a.Input != nil {
		s.Input, s.Cached, s.Output = s.Input+*a.Input, s.Cached+*a.Cached, s.Output+*a.Output
		if a.Cost != nil {
			sum := *a.Cost
			if s.Cost != nil {
				sum += *s.Cost
			}
			s.Cost = &sum
		}
	}
}

// finish computes the means, in which a trial without rewards counts as 0.
func (s *jobStats) finish(total int) {
	s.Pending = total - s.Completed
	for _, e := range s.Evals {
		keys := map[string]bool{}
		for _, got := range e.all {
			for name := range got {
				keys[name] = true
			}
		}
		means := map[string]float64{}
		for _, name := range slices.Sorted(maps.Keys(keys)) {
			sum := 0.0
			for _, got := range e.all {
				sum += got[name]
			}
			as := name
			if len(keys) == 1 {
				as = "mean"
			}
			means[as] = sum / float64(len(e.all))
		}
		if len(keys) == 0 {
			means["mean"] = 0
		}
		e.Metrics = append(e.Metrics, means)
	}
}
