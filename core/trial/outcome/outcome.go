package outcome

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

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
	LastTurn *record.LastTurn   // of an agent that did not yield
	Verdicts []verifier.Verdict // rounds reduced, then those after settle, in order
	Failure  *record.Error      // what kept it from its end
	// Rounds are the verdicts of rounds that an error kept from being reduced. They
	// are in the record, and count in no score.
	Rounds []verifier.Verdict
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
// it goes on, and if not, why. A stage without verifiers reached them. Where
// the verifiers gave no score of that name, their decisions count instead; an
// error means that there are none either.
func (s *Stage) Enough(least map[string]float64) (enough bool, why string, err error) {
	if len(s.Verdicts) == 0 {
		if s.Verified {
			return true, "", nil
		}
		return false, "it was not verified", nil
	}
	scores := s.Scores()
	for _, name := range slices.Sorted(maps.Keys(least)) {
		got, ok := scores[name]
		if ok && got >= least[name] {
			continue
		}
		if ok {
			return false, fmt.Sprintf("score %q is %g, the next stage wants %g", name, got, least[name]), nil
		}
		if !s.decided() {
			return false, "", s.missing(name)
		}
		if pass, _ := stageRule(s.Verdicts); !pass {
			return false, fmt.Sprintf("its verifiers gave no score %q, which the next stage wants, and did not pass it", name), nil
		}
	}
	return true, "", nil
}

// missing is the error of a rule that names a score which the stage does not
// have, where no decision can stand in for it.
func (s *Stage) missing(name string) error {
	names := slices.Sorted(maps.Keys(s.Scores()))
	if len(names) == 0 {
		return fmt.Errorf("the rule names score %q, but the verifiers of stage %s gave no score and decided neither pass nor fail: "+
			"let the verifier return %q, or a decision", name, s.Name, name)
	}
	return fmt.Errorf("the rule names score %q, but stage %s has only %s, and no verifier decided pass or fail: "+
		"name a score that is there (success of the dataset, or the task's own rule), or let the verifier return %q or a decision",
		name, s.Name, quoted(names), name)
}

// decided says whether its verifiers decided anything.
func (s *Stage) decided() bool {
	_, says := stageRule(s.Verdicts)
	return says
}

// maxNames is how many names of scores an error lists.
const maxNames = 20

func quoted(names []string) string {
	list := make([]string, 0, min(len(names), maxNames))
	for _, n := range names[:min(len(names), maxNames)] {
		list = append(list, strconv.Quote(n))
	}
	if n := len(names) - len(list); n > 0 {
		list = append(list, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(list, ", ")
}

// Scores reduces the scores of all stages by the task's rule, name by name. A
// stage without a score counts as 0, also one that was never run, so that
// giving up early cannot raise a mean. Left out are a stage without verifiers
// and, of the score that decides, a stage that its verifiers decided without
// it. Nil when nothing was scored.
func Scores(success task.Success, stages []Stage, verifiers func(stage string) int) map[string]float64 {
	names := map[string]bool{}
	for i := range stages {
		for n := range stages[i].Scores() {
			names[n] = true
		}
	}
	if len(names) == 0 {
		return nil
	}
	out := map[string]float64{}
	for n := range names {
		var values []float64
		for i := range stages {
			s := &stages[i]
			v, ok := s.Scores()[n]
			if verifiers(s.Name) > 0 && (ok || n != success.Score || !s.decided()) {
				values = append(values, v)
			}
		}
		out[n], _ = Reduce(success.Reduce, task.ReduceMean, values)
	}
	return out
}

// Facts are all that the outcome of an attempt depends on.
type Facts struct {
	Success  task.Success
	Named    bool    // the experiment names the score, not the task or its format
	Stages   []Stage // of the task, in order, also those that were never run
	Scores   map[string]float64
	Stopped  *record.Error // cancelled or preempted; nil when neither
	Violated bool          // a finding says so
}

// Outcome is the outcome of an attempt and, where an error decided it, which.
//
// In this order: an attempt that was stopped from outside is that. A failure of
// ours in any stage is the attempt's: an attempt with a hole is not a score. A
// violated record has no score; it is agent_error where an error of the agent's
// ended a stage, else integrity_violation. Then the task's rule, which is an error of the
// verifier's where it names a score that is missing; an attempt that passes it
// is passed even if the agent's own end was bad. One that does not pass is
// agent_error where the agent's plugin or the sandbox under it broke.
func Outcome(f Facts) (record.Outcome, *record.Error) {
	if f.Stopped != nil {
		return f.Stopped.Outcome, f.Stopped
	}
	var agents *record.Error
	for i := range f.Stages {
		fail := f.Stages[i].Failure
		switch {
		case fail == nil:
		case fail.Outcome != record.AgentError:
			return fail.Outcome, fail
		case agents == nil:
			agents = fail
		}
	}
	switch {
	case f.Violated && agents != nil:
		return record.AgentError, agents
	case f.Violated:
		return record.IntegrityViolation, nil
	}
	o, err := rule(f)
	if agents == nil {
		return o, err
	}
	if o == record.Passed && verifiedAll(f.Stages) {
		return o, agents
	}
	return record.AgentError, agents
}

func verifiedAll(ss []Stage) bool {
	return !slices.ContainsFunc(ss, func(s Stage) bool { return !s.Verified })
}

// rule applies the task's rule. A score that it names decides in the stages
// that have it; in the others the verifiers' decisions do, and each of them
// must pass. Nothing decides where the verifiers gave other scores alone and the
// name is the format's; a name of the experiment's own is wrong then. A stage that
// was not verified counts as a score of 0, or is not passed where no stage has
// the score.
func rule(f Facts) (record.Outcome, *record.Error) {
	name := f.Success.Score
	if name == "" {
		return decisions(f.Stages), nil
	}
	var scored, others []Stage
	for _, s := range f.Stages {
		_, has := s.Scores()[name]
		switch {
		case has:
			scored = append(scored, s)
		case !s.Verified || len(s.Verdicts) > 0:
			others = append(others, s)
		}
	}
	if len(scored) == 0 && !f.Named && otherScores(f.Stages) {
		return record.Scored, nil
	}
	for i := range others {
		s := &others[i]
		if s.Verified && !s.decided() {
			return record.VerifierError, &record.Error{
				Boundary: record.ByVerifier, Phase: record.PhaseVerify, Stage: s.Name, Message: s.missing(name).Error(),
			}
		}
	}
	if len(scored) == 0 && len(others) == 0 {
		return record.VerifierError, &record.Error{
			Boundary: record.ByVerifier, Phase: record.PhaseVerify, Message: fmt.Sprintf("the rule names score %q, but no stage has a verifier", name),
		}
	}
	if len(scored) == 0 {
		return decisions(f.Stages), nil
	}
	others = slices.DeleteFunc(others, func(s Stage) bool { return !s.Verified }) // they are 0 in the score
	switch {
	case len(others) > 0 && decisions(others) != record.Passed:
		return record.Failed, nil
	case f.Success.AtLeast == nil:
		return record.Scored, nil
	case f.Scores[name] >= *f.Success.AtLeast:
		return record.Passed, nil
	default:
		return record.Failed, nil
	}
}

// otherScores says whether every stage that has verifiers was verified and has
// scores, and no verifier decided anything.
func otherScores(stages []Stage) bool {
	some := false
	for i := range stages {
		s := &stages[i]
		if s.Verified && len(s.Verdicts) == 0 {
			continue
		}
		if !s.Verified || len(s.Scores()) == 0 || s.decided() {
			return false
		}
		some = true
	}
	return some
}

// Undecided is a note about an attempt that is scored because its verifiers
// gave other scores than the one that the rule names; empty for any other one.
func Undecided(f Facts, o record.Outcome) string {
	if _, has := f.Scores[f.Success.Score]; has || f.Success.Score == "" || o != record.Scored {
		return ""
	}
	names := slices.Sorted(maps.Keys(f.Scores))
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("the rule names score %q, which no verifier gave, so that nothing decides. The scores are %s: "+
		"write success { key = %q  at_least = … } in the dataset block to say which one counts", f.Success.Score, quoted(names), names[0])
}

// decisions is what the verifiers' own decisions make of stages: every stage
// that has verifiers must pass, and with scores alone nothing is decided.
func decisions(stages []Stage) record.Outcome {
	passes, decided := 0, false
	for i := range stages {
		s := &stages[i]
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
	case s.Verified && len(s.Verdicts) == 0: // it has no verifiers
		return record.Scored
	}
	o, _ := rule(Facts{Success: success, Stages: []Stage{*s}, Scores: s.Scores()})
	return o
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
