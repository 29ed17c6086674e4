package decide

import (
	"fmt"
	"maps"
	"slices"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Stage is what is known of one stage. The zero value is a stage that was
// never run.
type Stage struct {
	Name     string
	Ran      bool // its first turn began
	Verified bool // all of its verifiers spoke, or it has none
	AgentEnd record.AgentEnd
	Verdicts []verifier.Verdict // rounds reduced, then those after settle, in order
	Failure  *Failure           // what kept it from its end
}

// Failure is an error with what it makes of the attempt.
type Failure struct {
	Outcome record.Outcome
	Error   record.Error
}

// Scores are the named scores of a stage. Of two verifiers that give the same
// name the later one wins: it has seen the earlier one's.
func (s *Stage) Scores() map[string]float64 {
	out := map[string]float64{}
	for _, v := range s.Verdicts {
		for name, score := range v.Scores {
			out[name] = score.Value
		}
	}
	return out
}

// Enough says whether the stage reached the scores that the task wants before
// it goes on, and if not, which it missed. A missing score is not enough. A
// stage without verifiers is.
func (s *Stage) Enough(least map[string]float64) (bool, string) {
	if len(s.Verdicts) == 0 && s.Verified {
		return true, ""
	}
	scores := s.Scores()
	for _, name := range slices.Sorted(maps.Keys(least)) {
		got, ok := scores[name]
		if !ok {
			return false, fmt.Sprintf("score %q is missing, the next stage wants %g", name, least[name])
		}
		if got < least[name] {
			return false, fmt.Sprintf("score %q is %g, the next stage wants %g", name, got, least[name])
		}
	}
	return true, ""
}

// Scores reduces the scores of all stages by the task's rule, name by name. A
// stage without a score counts as 0, also one that was never run, so that
// giving up early cannot raise a mean. A stage without verifiers is left out.
// Nil when nothing was scored.
func Scores(success task.Success, stages []Stage, verifiers func(stage string) int) map[string]float64 {
	names := map[string]bool{}
	per := make([]map[string]float64, 0, len(stages))
	for i := range stages {
		if verifiers(stages[i].Name) == 0 {
			continue
		}
		s := stages[i].Scores()
		per = append(per, s)
		for n := range s {
			names[n] = true
		}
	}
	if len(names) == 0 {
		return nil
	}
	out := map[string]float64{}
	for n := range names {
		values := make([]float64, len(per))
		for i := range per {
			values[i] = per[i][n]
		}
		out[n], _ = Reduce(success.Reduce, task.ReduceMean, values)
	}
	return out
}

// Facts are all that the outcome of an attempt depends on.
type Facts struct {
	Success  task.Success
	Stages   []Stage // of the task, in order, also those that were never run
	Scores   map[string]float64
	Stopped  *Failure // cancelled or preempted; nil when neither
	Violated bool     // a finding says so
}

// Outcome is the outcome of an attempt and, where an error decided it, which.
//
// In this order: an attempt that was stopped from outside is that. A failure of
// ours in any stage is the attempt's: an attempt with a hole is not a score. A
// violated record has no score. Then the task's rule; an attempt that passes it
// is passed even if the agent's own end was bad. One that does not pass is
// agent_error where the agent's plugin or the sandbox under it broke.
func Outcome(f Facts) (record.Outcome, *record.Error) {
	if f.Stopped != nil {
		return f.Stopped.Outcome, &f.Stopped.Error
	}
	var agents *Failure
	for i := range f.Stages {
		fail := f.Stages[i].Failure
		switch {
		case fail == nil:
		case fail.Outcome != record.AgentError:
			return fail.Outcome, &fail.Error
		case agents == nil:
			agents = fail
		}
	}
	if f.Violated {
		return record.IntegrityViolation, nil
	}
	o := rule(f)
	if agents == nil {
		return o, nil
	}
	if o == record.Passed && verifiedAll(f.Stages) {
		return o, &agents.Error
	}
	return record.AgentError, &agents.Error
}

func verifiedAll(ss []Stage) bool {
	return !slices.ContainsFunc(ss, func(s Stage) bool { return !s.Verified })
}

func rule(f Facts) record.Outcome {
	if f.Success.Score != "" {
		if f.Success.AtLeast == nil {
			return record.Scored
		}
		if v, ok := f.Scores[f.Success.Score]; ok && v >= *f.Success.AtLeast {
			return record.Passed
		}
		return record.Failed
	}
	passes, decided := 0, false
	for i := range f.Stages {
		s := &f.Stages[i]
		switch {
		case !s.Verified:
			return record.Failed // ended early: what was not reached is not passed
		case len(s.Verdicts) == 0:
			continue
		}
		pass, says := stageRule(s.Verdicts)
		decided = decided || says
		if says && !pass {
			return record.Failed
		}
		if pass {
			passes++
		}
	}
	switch {
	case passes > 0:
		return record.Passed
	case decided:
		return record.Failed
	default:
		return record.Scored
	}
}

// stageRule is the verifiers' own rule: no fail, and a pass. says is false when
// there are only scores.
func stageRule(vs []verifier.Verdict) (pass, says bool) {
	fail := false
	for _, v := range vs {
		switch v.Decision {
		case verifier.Pass:
			pass, says = true, true
		case verifier.Fail:
			fail, says = true, true
		case verifier.Continue: // nobody answered: it is no pass
			says = true
		default:
		}
	}
	return pass && !fail, says
}

// StageOutcome is the outcome of one stage by itself, for its own line in the
// record: by the success rule on its own score, or by its verdicts.
func StageOutcome(success task.Success, s *Stage) record.Outcome {
	switch {
	case s.Failure != nil:
		return s.Failure.Outcome
	case !s.Ran:
		return record.NotRun
	}
	one := Facts{Success: success, Stages: []Stage{*s}, Scores: s.Scores()}
	return rule(one)
}

// Integrity is how far the agent can have influenced the result, worst finding
// first, with the reasons. verified is false when no verifier ever spoke.
func Integrity(findings []record.Finding, verified bool) (record.Integrity, []string) {
	worst := record.Checked
	var reasons []string
	for _, f := range findings {
		switch f.Severity {
		case verifier.Violated:
			worst = record.Violated
		case verifier.Exposed:
			if worst != record.Violated {
				worst = record.Exposed
			}
		default:
			continue
		}
		reasons = append(reasons, f.Code+": "+f.Text)
	}
	if worst == record.Checked && !verified {
		return record.Unknown, []string{"the attempt was never verified"}
	}
	return worst, reasons
}
