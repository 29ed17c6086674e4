package stats

import (
	"errors"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Test says how the p-value of a comparison was computed.
type Test string

// Tests of comparisons.
const (
	// TestMcNemar is McNemar's exact test: each task ran once in both.
	TestMcNemar Test = "mcnemar"
	// TestSigns permutes the signs of the tasks' differences, all of them.
	TestSigns Test = "signs"
	// TestSignsSampled is the same with random permutations.
	TestSignsSampled Test = "signs_sampled"
)

// exactTasks is the largest number of tasks that differ for which all
// permutations of signs are tried.
const exactTasks = 20

// Comparison compares two samples on the tasks that both have. Every task counts
// once, by the mean of its attempts.
type Comparison struct {
	Tasks      int        // in both
	Left       [2]int     // tasks that only one has, which are not compared
	Means      [2]float64 // over the tasks in both
	Difference float64    // the first mean less the second
	// Interval of the difference: Student's, with the tasks as a sample. NaN if
	// all tasks differ by the same, as there is no telling how others would.
	Interval Interval
	P        float64 // two-sided, not corrected for several comparisons
	Test     Test
	// Permutations is how many were tried; 0 for McNemar's test.
	Permutations int
	// Solved are the names of the tasks that only one solves: at least one of its
	// attempts has the full reward, and none of the other's.
	Solved [2][]string
}

// ErrNoCommonTask means that two samples have no task in common.
var ErrNoCommonTask = errors.New("there is no task that both ran")

// Compare compares two samples. permutations is how many random ones to take if
// there are too many to try all. Fails with ErrNoCommonTask.
func Compare(a, b *Sample, level float64, permutations int, seed uint64) (*Comparison, error) {
	c := &Comparison{}
	var of [2][]*taskScores
	c.common(a, b, &of)
	if c.Tasks = len(of[0]); c.Tasks == 0 {
		return nil, ErrNoCommonTask
	}
	differences := make([]float64, c.Tasks)
	once := true
	for i := range c.Tasks {
		x, y := of[0][i], of[1][i]
		if differences[i] = x.mean() - y.mean(); math.Abs(differences[i]) < 1e-12*max(math.Abs(x.mean()), math.Abs(y.mean())) {
			differences[i] = 0 // equal scores that were added in another order
		}
		c.Means[0] += x.mean() / float64(c.Tasks)
		c.Means[1] += y.mean() / float64(c.Tasks)
		once = once && binary(x) && binary(y)
		switch {
		case x.full > 0 && y.full == 0:
			c.Solved[0] = append(c.Solved[0], x.name)
		case y.full > 0 && x.full == 0:
			c.Solved[1] = append(c.Solved[1], y.name)
		}
	}
	c.Difference = stat.Mean(differences, nil)
	c.Interval = Interval{Low: math.NaN(), High: math.NaN(), Level: level, Method: MethodStudent}
	if n := float64(c.Tasks); slices.Min(differences) < slices.Max(differences) {
		d := distuv.StudentsT{Sigma: 1, Nu: n - 1}.Quantile((1+level)/2) * stat.StdErr(stat.StdDev(differences, nil), n)
		c.Interval.Low, c.Interval.High = c.Difference-d, c.Difference+d
	}
	if once {
		c.P, c.Test = mcnemar(count(differences, 1), count(differences, -1)), TestMcNemar
		return c, nil
	}
	c.signs(differences, permutations, seed)
	return c, nil
}

func binary(t *taskScores) bool {
	return len(t.scores) == 1 && (t.scores[0] == 0 || t.scores[0] == 1)
}

func count(all []float64, value float64) (n int) {
	for _, x := range all {
		if x == value {
			n++
		}
	}
	return n
}

// common sorts out the tasks that both samples have.
func (c *Comparison) common(a, b *Sample, of *[2][]*taskScores) {
	i, j := 0, 0
	for i < len(a.tasks) && j < len(b.tasks) {
		switch x, y := &a.tasks[i], &b.tasks[j]; {
		case x.name < y.name:
			c.Left[0]++
			i++
		case x.name > y.name:
			c.Left[1]++
			j++
		default:
			of[0], of[1] = append(of[0], x), append(of[1], y)
			i, j = i+1, j+1
		}
	}
	c.Left[0] += len(a.tasks) - i
	c.Left[1] += len(b.tasks) - j
}

// mcnemar returns the two-sided p-value of McNemar's exact test: first and second
// are how many tasks only the first and only the second solves. It is the
// binomial test of first among both with probability ½.
func mcnemar(first, second int) float64 {
	n := first + second
	if n == 0 {
		return 1
	}
	return min(1, 2*distuv.Binomial{N: float64(n), P: 0.5}.CDF(float64(min(first, second))))
}

// signs tests whether the differences are symmetric around 0. Tasks without a
// difference do not matter. Sums within a rounding error of each other are equal.
func (c *Comparison) signs(differences []float64, permutations int, seed uint64) {
	differences = slices.DeleteFunc(slices.Clone(differences), func(d float64) bool { return d == 0 })
	sum, size := 0.0, 0.0
	for _, d := range differences {
		sum += d
		size += math.Abs(d)
	}
	least := math.Abs(sum) - 1e-9*size // a permutation with such a sum is as extreme
	if len(differences) <= exactTasks {
		c.Test, c.Permutations = TestSigns, 1<<len(differences)
		c.P = float64(allSigns(differences, sum, least)) / float64(c.Permutations)
		return
	}
	c.Test, c.Permutations = TestSignsSampled, permutations
	// The observed one is a permutation as well.
	c.P = float64(1+randomSigns(differences, least, permutations, seed)) / float64(permutations+1)
}

// allSigns returns how many choices of signs give a sum of at least so much,
// whichever its sign. sum is the sum of the differences.
func allSigns(differences []float64, sum, least float64) (extreme int) {
	flipped := make([]bool, len(differences))
	for n := range 1 << len(differences) {
		if n > 0 { // Gray code: the next choice differs in one sign
			i := bits.TrailingZeros(uint(n)) //nolint:gosec // positive
			change := -2 * differences[i]
			if flipped[i] {
				change = -change
			}
			flipped[i] = !flipped[i]
			sum += change
		}
		if math.Abs(sum) >= least {
			extreme++
		}
	}
	return extreme
}

// randomSigns is the same for random choices.
func randomSigns(differences []float64, least float64, permutations int, seed uint64) (extreme int) {
	r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a stored seed
	for range permutations {
		sum, signs := 0.0, uint64(0)
		for i, d := range differences {
			if i%64 == 0 {
				signs = r.Uint64()
			}
			if signs&1 == 1 {
				d = -d
			}
			sum += d
			signs >>= 1
		}
		if math.Abs(sum) >= least {
			extreme++
		}
	}
	return extreme
}

// Holm corrects p-values for their number, in the order given (Holm, 1979): the
// probability of any false rejection among them stays below the level.
func Holm(ps []float64) []float64 {
	order := make([]int, len(ps))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if ps[a] < ps[b] {
			return -1
		}
		if ps[a] > ps[b] {
			return 1
		}
		return 0
	})
	corrected, most := make([]float64, len(ps)), 0.0
	for rank, i := range order {
		most = max(most, min(1, ps[i]*float64(len(ps)-rank)))
		corrected[i] = most
	}
	return corrected
}
