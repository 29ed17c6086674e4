package numbers

import (
	"github.com/berth-eval/berth/cmd/berth/internal/stats"
	"github.com/berth-eval/berth/cmd/berth/output"
)

// Pair compares the samples of two cells, whose names are a and b, on the tasks that
// both have; tasks of the same name are the same. Its p-value is not corrected, and it
// has no sentence yet.
func Pair(a, b string, of, with *stats.Sample) (*output.ComparedPair, error) {
	c, err := stats.Compare(of, with, level, permutations, seed)
	if err != nil {
		return nil, err
	}
	most := func(s *stats.Sample) int { _, n := s.Repetitions(); return n }
	return &output.ComparedPair{
		A: a, B: b, Tasks: c.Tasks, Left: c.Left, Repetitions: [2]int{most(of), most(with)}, Means: c.Means,
		Difference: c.Difference, Interval: interval(c.Interval), P: c.P, Test: string(c.Test), Permutations: c.Permutations,
		OnlyA: nonNil(c.Solved[0]), OnlyB: nonNil(c.Solved[1]),
	}, nil
}

// Correct corrects the p-values of pairs for their number, and says the result of
// each as a sentence.
func Correct(pairs []output.ComparedPair) {
	ps := make([]float64, len(pairs))
	for i := range pairs {
		ps[i] = pairs[i].P
	}
	for i, p := range stats.Holm(ps) {
		pairs[i].Holm = p
		pairs[i].Sentence = sentence(&pairs[i])
	}
}
