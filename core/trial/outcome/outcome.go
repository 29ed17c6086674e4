// Package outcome decides the result of an attempt: the attribution of errors,
// scores reduced over rounds and stages, the outcome, and the integrity. The
// attribution closest to the origin of an error counts. The decisions are pure
// functions of recorded facts, so that they can be repeated on a stored
// attempt.
//
// It must not run anything, read a file or a clock, or know a verifier or a
// format by name.
package outcome

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Stage holds the facts about one stage. The zero value is a stage that never
// ran.
type Stage struct {
	Name     string
	Ran      bool // its first turn began
	Verified bool // all of its verifiers gave verdicts, or it has none
	AgentEnd record.AgentEnd
	LastTurn *record.LastTurn   // of an agent that did not yield
	Session  string             // the agent's session, of a task with several stages
	UserEnd  string             // why the simulated user ended the conversation; empty: it did not
	Verdicts []verifier.Verdict // reduced verdicts of rounds, then those after settle, in order
	Failure  *record.Error      // why it did not reach its end
	// Rounds are the verdicts of rounds that could not be reduced because of an
	// error. They are in the record, and count in no score.
	Rounds []verifier.Verdict

	VerifierImage *environment.ImageFacts // of the second sandbox; nil: there was none
}

// Scores returns the named scores of a stage. If two verifiers give the same
// name, the later one counts, because it has seen the earlier score.
func (s *Stage) Scores() map[string]float64 {
	out := map[string]float64{}
	for _, v := range s.Verdicts {
		for name, score := range v.Scores {
			out[name] = score.Value
		}
	}
	return out
}

// LabelUserEnd is the label that says why the simulated user ended the conversation.
const LabelUserEnd = "user_end"

// Labels returns the labels of all stages. Of the same name, the last one counts.
func Labels(stages []Stage) map[string]string {
	out := map[string]string{}
	for i := range stages {
		if end := stages[i].UserEnd; end != "" {
			out[LabelUserEnd] = end
		}
		for _, v := range stages[i].Verdicts {
			maps.Copy(out, v.Labels)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// Enough reports whether the stage reached the scores that the task requires to
// continue, and if not, why. A stage without verifiers did. If the verifiers
// gave no score with that name, their decisions count instead; without a
// decision it was not reached.
func (s *Stage) Enough(least map[string]float64) (enough bool, why string) {
	if len(s.Verdicts) == 0 {
		if s.Verified {
			return true, ""
		}
		return false, "it was not verified"
	}
	scores := s.Scores()
	for _, name := range slices.Sorted(maps.Keys(least)) {
		got, ok := scores[name]
		if ok && got >= least[name] {
			continue
		}
		if ok {
			return false, fmt.Sprintf("score %q is %g, the next stage wants %g", name, got, least[name])
		}
		if pass, _ := stageRule(s.Verdicts); pass {
			continue
		}
		only := ""
		if names := slices.Sorted(maps.Keys(scores)); len(names) > 0 {
			only = " (only " + quoted(names) + ")"
		}
		return false, fmt.Sprintf("its verifiers gave no score %q%s, which the next stage wants, and did not pass it", name, only)
	}
	return true, ""
}

// missing returns the error of a rule that names a score that the stage does
// not have, when no decision can replace it.
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

// decided reports whether its verifiers decided anything.
func (s *Stage) decided() bool {
	_, says := stageRule(s.Verdicts)
	return says
}

func quoted(names []string) string {
	list := make([]string, 0, len(names))
	for _, n := range names {
		list = append(list, strconv.Quote(n))
	}
	return strings.Join(list, ", ")
}

// Scores reduces the scores of all stages by the task's rule, name by name. A
// stage without a score counts as 0, even if it never ran, so that giving up
// early cannot raise a mean. It leaves out stages without verifiers and, for
// the deciding score, stages that the verifiers decided without it. Nil when
// there are no scores.
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

// Facts are all facts that determine the outcome of an attempt.
type Facts struct {
	Success  task.Success
	Named    bool    // the experiment names the score, not the task or its format
	Stages   []Stage // of the task, in order, including those that never ran
	Scores   map[string]float64
	Stopped  *record.Error // cancelled or preempted; nil when neither
	Violated bool          // according to a finding
}

// Outcome returns the outcome of an attempt and the error that decided it, if
// any.
//
// The rules apply in this order. An attempt that was stopped from outside has
// that outcome. A failure of ours in any stage decides the attempt, because an
// incomplete attempt has no score. An attempt with a violated record has no
// score either; it is agent_error if an error of the agent ended a stage, else
// integrity_violation. Then the task's rule applies; if it names a score that
// is missing, this is an error of the verifier. An attempt that passes the rule
// is passed even if the agent ended badly. One that does not pass is
// agent_error if the agent's plugin, or the sandbox under it, broke.
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
// that have it; in the others the verifiers' decisions decide, and each must
// pass. If the verifiers gave only other scores, nothing decides when the
// format chose the name; when the experiment chose it, this is an error. A
// stage that was not verified counts as a score of 0, or as not passed if no
// stage has the score.
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
	others = slices.DeleteFunc(others, func(s Stage) bool { return !s.Verified }) // they count as 0 in the score
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

// otherScores reports whether every stage with verifiers was verified and has
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

// Undecided returns a note about an attempt that is scored because its
// verifiers gave other scores than the one that the rule names; empty for any
// other attempt.
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

// decisions returns the outcome of the verifiers' own decisions: every stage
// with verifiers must pass, and scores alone decide nothing.
func decisions(stages []Stage) record.Outcome {
	passes, decided := 0, false
	for i := range stages {
		s := &stages[i]
		switch {
		case !s.Verified:
			return record.Failed // ended early: a stage that was not reached is not passed
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

// stageRule is the verifiers' own rule: no fail, and at least one pass. says is
// false when there are only scores.
func stageRule(vs []verifier.Verdict) (pass, says bool) {
	fail := false
	for _, v := range vs {
		switch v.Decision {
		case verifier.Pass:
			pass, says = true, true
		case verifier.Fail:
			fail, says = true, true
		case verifier.Continue: // the user did not answer, so this is not a pass
			says = true
		default:
		}
	}
	return pass && !fail, says
}

// StageOutcome returns the outcome of one stage for its own line in the record:
// by the success rule on its own score, or by its verdicts.
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

// Integrity returns how far the agent can have influenced the result, with the
// reasons, worst finding first. verified is false when no verifier gave a
// verdict.
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
