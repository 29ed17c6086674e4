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
// name over the rounds that gave them. Everything else, including the decision,
// comes from the last round: a later fail is never hidden by an earlier, better
// score. An empty reducer means last.
func Rounds(r task.Reducer, vs []verifier.Verdict) []verifier.Verdict {
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
		out = append(out, reduceVerdicts(r, by[n]))
	}
	return out
}

func reduceVerdicts(r task.Reducer, vs []verifier.Verdict) verifier.Verdict {
	last := vs[len(vs)-1]
	last.Scores = maps.Clone(last.Scores)
	values := map[string][]float64{}
	for _, v := range vs {
		for name, s := range v.Scores {
			values[name] = append(values[name], s.Value)
			if _, ok := last.Scores[name]; !ok && r != "" && r != task.ReduceLast {
				if last.Scores == nil {
					last.Scores = map[string]verifier.Score{}
				}
				last.Scores[name] = s
			}
		}
	}
	for name, s := range last.Scores {
		s.Value, _ = Reduce(r, task.ReduceLast, values[name])
		last.Scores[name] = s
	}
	return last
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
