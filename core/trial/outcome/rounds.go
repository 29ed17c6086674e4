package outcome

import (
	"maps"
	"slices"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Reduce reduces values, in their order in time, to one number. ok is false
// when there are none. An empty reducer means usual.
func Reduce(r, usual task.Reducer, values []float64) (v float64, ok bool) {
	if len(values) == 0 {
		return 0, false
	}
	if r == "" {
		r = usual
	}
	switch r {
	case task.ReduceLast:
		return values[len(values)-1], true
	case task.ReduceMax:
		return slices.Max(values), true
	case task.ReduceMin:
		return slices.Min(values), true
	default: // task.ReduceMean
		sum := 0.0
		for _, x := range values {
			sum += x
		}
		return sum / float64(len(values)), true
	}
}

// Rounds merges the verdicts of all rounds of a stage into one verdict per
// verifier, in the order of their first verdicts. Scores are reduced name by
// name over the rounds that gave them. Everything else comes from the round
// whose decision counts, usually the last one.
func Rounds(in *task.Interaction, vs []verifier.Verdict) []verifier.Verdict {
	var names []string
	by := map[string][]verifier.Verdict{}
	for _, v := range vs {
		if _, ok := by[v.Verifier]; !ok {
			names = append(names, v.Verifier)
		}
		by[v.Verifier] = append(by[v.Verifier], v)
	}
	out := make([]verifier.Verdict, 0, len(names))
	for _, n := range names {
		merged := decided(in.Decide, by[n])
		merged.Scores = reduceScores(in.Reduce, by[n])
		out = append(out, merged)
	}
	return out
}

// decided returns the verdict whose decision counts: the best or the worst, or
// else the last one. Of equal decisions the later one counts. A verdict that
// decides nothing counts only if none does.
func decided(r task.Reducer, vs []verifier.Verdict) verifier.Verdict {
	rank := map[verifier.Decision]int{verifier.Fail: 1, verifier.Continue: 2, verifier.Pass: 3}
	counts := vs[len(vs)-1]
	for _, v := range slices.Backward(vs) {
		now, best := rank[v.Decision], rank[counts.Decision]
		if now > 0 && (r == task.ReduceMax && now > best || r == task.ReduceMin && (now < best || best == 0)) {
			counts = v
		}
	}
	return counts
}

// reduceScores returns the scores of the last round, reduced over all rounds.
// With another reducer than last, those that only earlier rounds gave count, too.
func reduceScores(r task.Reducer, vs []verifier.Verdict) map[string]verifier.Score {
	scores := maps.Clone(vs[len(vs)-1].Scores)
	values := map[string][]float64{}
	for _, v := range vs {
		for name, s := range v.Scores {
			values[name] = append(values[name], s.Value)
			if _, ok := scores[name]; !ok && r != "" && r != task.ReduceLast {
				if scores == nil {
					scores = map[string]verifier.Score{}
				}
				scores[name] = s
			}
		}
	}
	for name, s := range scores {
		s.Value, _ = Reduce(r, task.ReduceLast, values[name])
		scores[name] = s
	}
	return scores
}

// GoOn reports whether the simulated user may answer after a round: a verdict
// asks to continue and none has failed the work. Without verdicts (a task whose
// user speaks without a verifier) it continues, too.
func GoOn(round []verifier.Verdict) bool {
	if len(round) == 0 {
		return true
	}
	more := false
	for _, v := range round {
		switch v.Decision {
		case verifier.Fail:
			return false
		case verifier.Continue:
			more = true
		default:
		}
	}
	return more
}
