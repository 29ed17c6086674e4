package harborjob

import (
	"maps"
	"math"
	"slices"

	"github.com/berth-eval/berth/core/record"
)

// rewards returns the rewards of a trial that are numbers. Those of a trial with
// several steps are in the trial as well, as Harbor reduced them.
func (t *trialResult) rewards() map[string]float64 {
	if t.Verifier == nil {
		return nil
	}
	got := map[string]float64{}
	for name, v := range t.Verifier.Rewards {
		if v != nil && !math.IsNaN(*v) && !math.IsInf(*v, 0) {
			got[name] = *v
		}
	}
	if len(got) == 0 {
		return nil
	}
	return got
}

// phases returns the phases of a trial whose times are known.
func (t *trialResult) phases() []record.Phase {
	all := []record.Phase{}
	add := func(name record.PhaseName, stage string, who record.Boundary, at *timing) {
		if at != nil && at.Started != nil && at.Finished != nil {
			all = append(all, record.Phase{Name: name, Stage: stage, Who: who, Start: at.Started.Time, End: at.Finished.Time})
		}
	}
	add(record.PhaseCreate, "", record.ByEnvironment, t.Environment)
	add(record.PhaseSetup, "", record.ByAgent, t.Setup)
	if len(t.Steps) == 0 {
		add(record.PhaseTurn, "", record.ByAgent, t.Execution)
		add(record.PhaseVerify, "", record.ByVerifier, t.Verified)
	}
	for i := range t.Steps {
		s := &t.Steps[i]
		add(record.PhaseTurn, s.Name, record.ByAgent, s.Execution)
		add(record.PhaseVerify, s.Name, record.ByVerifier, s.Verified)
	}
	return all
}

// stages returns the results of the steps of a trial.
func (t *trialResult) stages() (all []record.StageResult) {
	for i := range t.Steps {
		s := &t.Steps[i]
		alone := trialResult{Verifier: s.Verifier, Exception: s.Exception, Execution: s.Execution}
		one := record.StageResult{Name: s.Name, Rewards: alone.rewards()}
		one.Outcome, one.AgentEnd, _ = alone.outcome(one.Rewards)
		all = append(all, one)
	}
	return all
}

// began reports whether the agent began to work.
func (t *trialResult) began() bool {
	return t.Execution != nil && t.Execution.Started != nil ||
		slices.ContainsFunc(t.Steps, func(s stepResult) bool { return s.Execution != nil && s.Execution.Started != nil })
}

// usage returns the use of models that the agent reported. Harbor does not measure
// it.
func (t *trialResult) usage() (all []record.Usage) {
	of := []*agentResult{t.Agent}
	if t.Agent == nil {
		of = nil
		for i := range t.Steps {
			of = append(of, t.Steps[i].Agent)
		}
	}
	for _, a := range of {
		switch {
		case a == nil:
		case len(a.Models) > 0:
			for _, name := range slices.Sorted(maps.Keys(a.Models)) {
				m := a.Models[name]
				all = append(all, sum(name, m.Input, m.Cached, m.Output, m.Cost))
			}
		case a.Input != nil || a.Output != nil || a.Cost != nil:
			u := sum("unknown", number(a.Input), number(a.Cached), number(a.Output), a.Cost)
			if m := t.AgentInfo.Model; m != nil {
				u.Model = m.Name
			}
			all = append(all, u)
		}
	}
	return all
}

func number(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}
