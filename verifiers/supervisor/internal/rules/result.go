package rules

import "github.com/berth-eval/berth/plugins/verifier"

// Status is how a loop of turns ended.
type Status string

// The statuses.
const (
	Passed             Status = "pass"
	Failed             Status = "fail"
	GlobalTimeout      Status = "global_timeout"
	BudgetExhausted    Status = "budget_exhausted"
	ExecutorIncomplete Status = "executor_incomplete"
)

// Round is one judgement of the loop.
type Round struct {
	Verdict   verifier.Decision
	Score     float64
	Completed bool // the agent had completed its turn
	Gate      GateResult
}

// Loop is what the result of an attempt is made of.
type Loop struct {
	Rounds        []Round
	TotalOver     bool    // the time of all turns was used up
	FollowUpsOver bool    // no follow-up was left
	LastCut       bool    // the last turn was ended by its time
	Threshold     float64 // score from which an attempt passes
	CompletedOnly bool    // only completed turns have a score
}

// Result is the result of an attempt.
type Result struct {
	Final, Last float64
	Status      Status
	Passed      bool
}

// Result returns the result of the loop. The best score of all rounds counts.
func (l Loop) Result() Result {
	var r Result
	for _, round := range l.Rounds {
		r.Last = round.Score
		if round.Completed || !l.CompletedOnly {
			r.Final = max(r.Final, round.Score)
		}
	}
	r.Status = l.status()
	if len(l.Rounds) > 0 && r.Final >= l.Threshold && r.Status != Failed && r.Status != ExecutorIncomplete {
		r.Status, r.Passed = Passed, true
	}
	return r
}

// status returns how the loop ended, whatever its score.
func (l Loop) status() Status {
	var last Round
	completed := false
	for _, r := range l.Rounds {
		last, completed = r, completed || r.Completed
	}
	switch {
	case last.Gate == Shut, last.Verdict == verifier.Fail:
		return Failed
	case last.Verdict == verifier.Pass:
		return Passed
	case l.TotalOver:
		return GlobalTimeout
	case l.FollowUpsOver:
		return BudgetExhausted
	case completed && l.LastCut:
		return GlobalTimeout
	default:
		return ExecutorIncomplete
	}
}
