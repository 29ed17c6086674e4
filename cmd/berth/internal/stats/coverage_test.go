package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/berth-eval/berth/internal/testlevel"
)

// world is what results are drawn from. Tasks differ in how hard they are, so
// that repetitions of a task are correlated (icc). The rate of each simulated
// benchmark is drawn from rate ± 0.05: with few tasks the coverage for one rate
// alone jumps up and down, as counts are whole numbers (Brown, Cai and DasGupta,
// 2001).
type world struct {
	rate, icc          float64
	tasks, repetitions int
}

func (w world) String() string {
	return fmt.Sprintf("%.1f %5.1f %6d × %d", w.rate, w.icc, w.tasks, w.repetitions)
}

// attempts draws the attempts of one benchmark, and returns its true rate.
func (w world) attempts(r *rand.Rand) (float64, []Attempt) {
	rate := w.rate + (r.Float64()-0.5)*0.1
	n := (1 - w.icc) / w.icc
	hard := distuv.Beta{Alpha: rate * n, Beta: (1 - rate) * n, Src: r}
	var all []Attempt
	for i := range w.tasks {
		p, name := hard.Rand(), fmt.Sprintf("%03d", i)
		for j := range w.repetitions {
			a := Attempt{Task: name, Repetition: j}
			if r.Float64() < p {
				a.Score, a.Full = 1, true
			}
			all = append(all, a)
		}
	}
	return rate, all
}

// covered is how often the interval contained the true rate, and how often a
// comparison of two equal cells was significant at 5 %.
type covered struct{ closed, size float64 }

func (w world) simulate(t *testing.T, times, permutations int) covered {
	t.Helper()
	var sum covered
	var mu sync.Mutex
	var wg sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for i := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), uint64(w.tasks*100+w.repetitions))) //nolint:gosec // a simulation
			var own covered
			for n := i; n < times; n += workers {
				w.once(t, r, permutations, &own)
			}
			mu.Lock()
			defer mu.Unlock()
			sum.closed, sum.size = sum.closed+own.closed, sum.size+own.size
		})
	}
	wg.Wait()
	n := float64(times)
	return covered{sum.closed / n, sum.size / n}
}

func (w world) once(t *testing.T, r *rand.Rand, permutations int, sum *covered) {
	rate, all := w.attempts(r)
	s, err := New(all)
	if err != nil {
		t.Error(err)
		return
	}
	if in := s.Interval(0.95); in.Low <= rate && rate <= in.High {
		sum.closed++
	}
	// Two equal cells: who is which is drawn for each attempt.
	var a, b []Attempt
	_, other := w.attempts(r)
	for i := range all {
		x, y := all[i], other[i]
		if r.IntN(2) == 0 {
			x, y = y, x
		}
		a, b = append(a, x), append(b, y)
	}
	sa, err := New(a)
	if err != nil {
		t.Error(err)
		return
	}
	sb, err := New(b)
	if err != nil {
		t.Error(err)
		return
	}
	c, err := Compare(sa, sb, 0.95, permutations, r.Uint64())
	if err != nil {
		t.Error(err)
		return
	}
	if c.P <= 0.05 {
		sum.size++
	}
}

// A 95 % interval contains the true rate in 95 % of benchmarks, and equal cells
// differ in 5 % of comparisons. The whole table takes minutes: it is made with
// BERTH_TEST=all.
func TestIntervalsCoverAndTestsHoldTheirLevel(t *testing.T) {
	t.Parallel()
	rates, tasks, repetitions := []float64{0.1, 0.5}, []int{30, 100}, []int{1, 5}
	times, permutations, slack := 400, 50, 0.035
	if testlevel.All() {
		rates, tasks, repetitions = []float64{0.1, 0.3, 0.5, 0.7, 0.9}, []int{30, 100, 500}, []int{1, 3, 5}
		times, permutations, slack = 4000, 100, 0.017
	}
	var table strings.Builder
	for _, w := range worlds(rates, tasks, repetitions) {
		got := w.simulate(t, times, permutations)
		fmt.Fprintf(&table, "%s  %6.3f %6.3f\n", w, got.closed, got.size)
		if math.Abs(got.closed-0.95) > slack {
			t.Errorf("%s: the interval covers %.3f", w, got.closed)
		}
		if got.size > 0.055+slack/2 {
			t.Errorf("%s: equal cells differ in %.3f", w, got.size)
		}
	}
	t.Logf("rate icc  tasks × repetitions  closed size\n%s", table.String())
}

func worlds(rates []float64, tasks, repetitions []int) (all []world) {
	for _, rate := range rates {
		for _, n := range tasks {
			for _, k := range repetitions {
				all = append(all, world{rate, 0.2, n, k})
				if k > 1 { // else it is the same
					all = append(all, world{rate, 0.6, n, k})
				}
			}
		}
	}
	return all
}
