package stats

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// tasks makes attempts of full and other rewards, by how many of five attempts
// each task solves.
func tasks(solved ...int) (all []Attempt) {
	for i, n := range solved {
		for r := range 5 {
			a := Attempt{Task: fmt.Sprintf("t%03d", i), Repetition: r + 1}
			if r < n {
				a.Score, a.Full = 1, true
			}
			all = append(all, a)
		}
	}
	return all
}

func TestWhatIsNoSample(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		attempts []Attempt
		want     string
	}{
		"empty":      {nil, "no measured attempts"},
		"NaN":        {[]Attempt{{Task: "a", Score: math.NaN()}}, "not a finite number"},
		"infinite":   {[]Attempt{{Task: "a", Score: math.Inf(1)}}, "not a finite number"},
		"twice":      {[]Attempt{{Task: "a", Repetition: 1}, {Task: "a", Repetition: 1}}, "repetition 1 twice"},
		"two groups": {[]Attempt{{Task: "a", Repetition: 1, Group: "x"}, {Task: "a", Repetition: 2}}, "two groups"},
	} {
		if _, err := New(c.attempts); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := sample(t, tasks(3, 5))
	for _, k := range []int{0, 6} {
		if _, err := s.PassAtK(k); err == nil {
			t.Errorf("pass@%d of five attempts is not an error", k)
		}
	}
	if _, err := Compare(s, sample(t, []Attempt{{Task: "other"}}), 0.95, 10, 1); err == nil {
		t.Error("samples without a common task are compared")
	}
}

// What nothing varied in has an interval all the same, and no number is invalid.
func TestIntervalsOfExtremes(t *testing.T) {
	t.Parallel()
	for name, attempts := range map[string][]Attempt{
		"none": tasks(0, 0, 0), "all": tasks(5, 5, 5), "one task": tasks(2), "one attempt": {{Task: "a", Score: 1, Full: true}},
		"equal partial scores": {{Task: "a", Score: 0.5}, {Task: "b", Score: 0.5}},
	} {
		in := sample(t, attempts).Interval(0.95)
		if name == "one task" { // there is no telling how other tasks would be
			if !math.IsNaN(in.Low) {
				t.Errorf("%s: %+v", name, in)
			}
			continue
		}
		if !(in.Low >= 0 && in.High <= 1 && in.High-in.Low > 0.3) {
			t.Errorf("%s: %+v", name, in)
		}
	}
	wild := sample(t, []Attempt{{Task: "a", Score: -3}, {Task: "b", Score: 12}, {Task: "c", Score: 5}})
	if in := wild.Interval(0.95); in.Method != MethodStudent || in.Low > -3 || in.High < 12 {
		t.Errorf("scores beyond 0 and 1: %+v", in)
	}
}

func TestGroupsWeighEqually(t *testing.T) {
	t.Parallel()
	attempts := tasks(5, 5, 5, 5, 5, 5, 0, 0)
	for i := range attempts {
		attempts[i].Group = "easy"
		if attempts[i].Task >= "t006" {
			attempts[i].Group = "hard"
		}
	}
	s := sample(t, attempts)
	same(t, "mean of attempts", s.Mean(), 0.75)
	same(t, "mean of groups", s.GroupsEqually(0.95).Mean, 0.5)
}

func TestComparisonOfWhatBothRan(t *testing.T) {
	t.Parallel()
	a, b := sample(t, tasks(5, 0, 2, 5)), sample(t, append(tasks(0, 4, 2), Attempt{Task: "else", Repetition: 1}))
	c, err := Compare(a, b, 0.95, 100, 1)
	if err != nil {
		t.Fatal(err)
	}
	if c.Tasks != 3 || c.Left != [2]int{1, 1} || !slices.Equal(c.Solved[0], []string{"t000"}) || !slices.Equal(c.Solved[1], []string{"t001"}) {
		t.Errorf("%+v", c)
	}
	same(t, "difference", c.Difference, (1-0.8+0)/3)
	none, err := Compare(a, a, 0.95, 100, 1)
	if err != nil || none.P != 1 || none.Difference != 0 {
		t.Errorf("a sample beside itself: %+v, %v", none, err)
	}
	same(t, "no difference at all", mcnemar(0, 0), 1)
	same(t, "five against none", mcnemar(5, 0), 2.0/32)
}

// Random permutations agree with all of them.
func TestSampledSigns(t *testing.T) {
	t.Parallel()
	var all, drawn Comparison
	few := []float64{0.2, 0.4, -0.2, 0.6, 0.2, -0.4, 0.2, 0.8, 0.2, 0.4}
	all.signs(few, 0, 0)
	many := slices.Concat(few, few, few[:1]) // 21: too many to try all
	drawn.signs(many, 20_000, 3)
	if all.Test != TestSigns || all.Permutations != 1024 || drawn.Test != TestSignsSampled {
		t.Errorf("%+v, %+v", all, drawn)
	}
	exact := countedSigns(many)
	if math.Abs(drawn.P-exact) > 0.004 {
		t.Errorf("sampled %g, exact %g", drawn.P, exact)
	}
}

// countedSigns is the exact test by counting how many ways lead to each sum, for
// differences that are multiples of 0.2.
func countedSigns(differences []float64) float64 {
	ways := map[int]float64{0: 1}
	observed := 0
	for _, d := range differences {
		n := int(math.Round(d * 5))
		observed += n
		next := map[int]float64{}
		for sum, p := range ways {
			next[sum+n] += p / 2
			next[sum-n] += p / 2
		}
		ways = next
	}
	p := 0.0
	for sum, share := range ways {
		if max(sum, -sum) >= max(observed, -observed) {
			p += share
		}
	}
	return p
}

func TestRoundingIsNoDifference(t *testing.T) {
	t.Parallel()
	var a, b []Attempt
	for task := range 12 {
		for i, score := range []float64{0.1, 0.2, 0.3} {
			a = append(a, Attempt{Task: fmt.Sprint(task), Repetition: i, Score: score})
			b = append(b, Attempt{Task: fmt.Sprint(task), Repetition: 2 - i, Score: score})
		}
	}
	x, err := New(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := New(b)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := Compare(x, y, 0.95, 1000, 1); err != nil || c.Difference != 0 || c.P != 1 {
		t.Errorf("difference %g, p %g: %v", c.Difference, c.P, err)
	}
}
