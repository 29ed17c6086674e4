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
	thrown := map[string]bool{}
	valid := t.Verifier != nil
	for _, e := range t.exceptions() {
		thrown[e.Type] = true
		valid = valid && causes[e.Type].outcome == ""
	}
	if valid {
		ev.Trials++
		got := map[string]float64{}
		for name, v := range t.Verifier.Rewards {
			got[name] = *v
			if ev.Rewards[name] == nil {
				ev.Rewards[name] = map[string][]string{}
			}
			value := strconv.FormatFloat(*v, 'f', -1, 64)
			ev.Rewards[name][value] = append(ev.Rewards[name][value], t.Trial)
		}
		ev.all = append(ev.all, got)
	}
	for _, typ := range slices.Sorted(maps.Keys(thrown)) {
		ev.Exceptions[typ] = append(ev.Exceptions[typ], t.Trial)
	}
	if len(thrown) > 0 {
		ev.Errors++
		s.Errored++
	}
	if thrown["CancelledError"] {
		s.Cancelled++
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

// finish computes the means of the trials whose rewards are valid.
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
		if len(keys) > 0 {
			e.Metrics = append(e.Metrics, means)
		}
	}
}
