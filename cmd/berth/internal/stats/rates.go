package stats

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// Mean returns the success rate: the mean score over all attempts. Partial
// scores count as they are.
func (s *Sample) Mean() float64 {
	sum := 0.0
	for i := range s.tasks {
		sum += s.tasks[i].sum
	}
	return sum / float64(s.n)
}

// PassAt1 returns the share of attempts with the full reward.
func (s *Sample) PassAt1() float64 {
	full := 0
	for i := range s.tasks {
		full += s.tasks[i].full
	}
	return float64(full) / float64(s.n)
}

// Share is a mean over tasks.
type Share struct {
	Value float64
	Tasks int // that have enough attempts, over which the mean is
	Left  int // tasks with fewer attempts
}

// PassAtK returns the probability that at least one of k attempts at a task has
// the full reward: the mean over tasks of 1 − C(n−c,k)/C(n,k), where c of a task's
// n attempts have it. This is unbiased for n > k (Chen et al., 2021,
// arXiv:2107.03374, equation 1). Fails if no task has k attempts.
func (s *Sample) PassAtK(k int) (Share, error) {
	return s.share(k, func(t *taskScores) float64 {
		return 1 - draw(len(t.scores)-t.full, len(t.scores), k)
	})
}

// AllK returns the probability that all of k attempts at a task have the full
// reward, pass^k: the mean over tasks of C(c,k)/C(n,k) (Yao et al., 2024,
// arXiv:2406.12045). Fails if no task has k attempts.
func (s *Sample) AllK(k int) (Share, error) {
	return s.share(k, func(t *taskScores) float64 { return draw(t.full, len(t.scores), k) })
}

// BestOf returns the expected best score of k attempts at a task, as mean over
// tasks: with the scores of a task in ascending order, Σ score(i)·C(i−1,k−1)/C(n,k)
// for i from k to n. Fails if no task has k attempts.
func (s *Sample) BestOf(k int) (Share, error) {
	return s.share(k, func(t *taskScores) float64 {
		scores := slices.Sorted(slices.Values(t.scores))
		n, best := len(scores), 0.0
		for i := k; i <= n; i++ {
			// C(i−1,k−1)/C(n,k) = (C(i−1,k−1)/C(n−1,k−1))·k/n
			best += scores[i-1] * draw(i-1, n-1, k-1) * float64(k) / float64(n)
		}
		return best
	})
}

// draw returns C(c,k)/C(n,k): the probability that k things drawn from n, of
// which c are marked, are all marked.
func draw(c, n, k int) float64 {
	p := 1.0
	for i := range k {
		if c-i <= 0 {
			return 0
		}
		p *= float64(c-i) / float64(n-i)
	}
	return p
}

func (s *Sample) share(k int, of func(*taskScores) float64) (Share, error) {
	var sh Share
	if k < 1 {
		return sh, fmt.Errorf("k is %d: it must be at least 1", k)
	}
	for i := range s.tasks {
		if len(s.tasks[i].scores) < k {
			sh.Left++
			continue
		}
		sh.Tasks++
		sh.Value += of(&s.tasks[i])
	}
	if sh.Tasks == 0 {
		_, most := s.Repetitions()
		return sh, fmt.Errorf("k is %d, and no task has more than %d measured attempts", k, most)
	}
	sh.Value /= float64(sh.Tasks)
	return sh, nil
}

// Repeated says how the mean varies from repetition to repetition over the same
// tasks.
type Repeated struct {
	Means []float64 // of each repetition over its tasks, in the order of repetitions
	// SE is the standard error of the mean: the standard deviation of Means, with
	// n−1, divided by √n. NaN if there is one repetition.
	SE float64
	// SD is the population standard deviation of Means, with n, as many papers
	// print it. NaN if there is one repetition.
	SD float64
}

// OverRepetitions compares repetitions. The tasks are taken as they are: what
// another choice of tasks would change is not in these numbers.
func (s *Sample) OverRepetitions() Repeated {
	sums, counts := map[int]float64{}, map[int]int{}
	for i := range s.tasks {
		for j, r := range s.tasks[i].repetitions {
			sums[r] += s.tasks[i].scores[j]
			counts[r]++
		}
	}
	var all []int
	for r := range sums {
		all = append(all, r)
	}
	slices.Sort(all)
	r := Repeated{SE: math.NaN(), SD: math.NaN()}
	for _, n := range all {
		r.Means = append(r.Means, sums[n]/float64(counts[n]))
	}
	if len(all) > 1 {
		r.SE = stat.StdErr(stat.StdDev(r.Means, nil), float64(len(all)))
		r.SD = stat.PopStdDev(r.Means, nil)
	}
	return r
}

// Solved sorts tasks by how many of their attempts have the full reward.
type Solved struct {
	Always, Sometimes, Never []string // names of tasks, sorted
}

// Solved returns which tasks are solved always, sometimes and never.
func (s *Sample) Solved() (by Solved) {
	for i := range s.tasks {
		switch t := &s.tasks[i]; t.full {
		case 0:
			by.Never = append(by.Never, t.name)
		case len(t.scores):
			by.Always = append(by.Always, t.name)
		default:
			by.Sometimes = append(by.Sometimes, t.name)
		}
	}
	return by
}
