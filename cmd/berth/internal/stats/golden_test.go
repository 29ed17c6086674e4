package stats

import (
	"encoding/json"
	"math"
	"os"
	"strconv"
	"testing"
)

// golden is what other programs computed: see testdata/golden.py.
type golden struct {
	Samples []struct {
		Name                         string
		Attempts                     []Attempt
		Mean, SE                     float64
		Student                      []float64
		Wilson                       []float64
		Means                        []float64
		RepetitionsSE, RepetitionsSD float64
		K                            map[string][3]float64
	}
	Pairs []struct {
		Name       string
		A, B       []Attempt
		Difference float64
		Interval   []float64
		P, McNemar float64
	}
	Ps, Holm []float64
}

func read(t *testing.T) (g golden) {
	t.Helper()
	b, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	if err = json.Unmarshal(b, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

func sample(t *testing.T, attempts []Attempt) *Sample {
	t.Helper()
	s, err := New(attempts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// same fails the test if a number differs from what it should be.
func same(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > 1e-9*max(1, math.Abs(want)) {
		t.Errorf("%s: %.12g, want %.12g", what, got, want)
	}
}

func TestSamplesAsOthersComputeThem(t *testing.T) {
	t.Parallel()
	for _, g := range read(t).Samples {
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			s := sample(t, g.Attempts)
			same(t, "mean", s.Mean(), g.Mean)
			same(t, "cluster-robust standard error", s.SE(), g.SE)
			half := s.student(0.95) * s.SE()
			same(t, "Student's interval, low", s.Mean()-half, g.Student[0])
			same(t, "Student's interval, high", s.Mean()+half, g.Student[1])
			if g.Wilson != nil {
				in := s.Interval(0.95)
				same(t, "Wilson's interval, low", in.Low, g.Wilson[0])
				same(t, "Wilson's interval, high", in.High, g.Wilson[1])
				if in.Method != MethodWilson {
					t.Errorf("the method is %s", in.Method)
				}
			}
			r := s.OverRepetitions()
			for i, m := range g.Means {
				same(t, "mean of a repetition", r.Means[i], m)
			}
			if len(g.Means) > 1 {
				same(t, "standard error over repetitions", r.SE, g.RepetitionsSE)
				same(t, "population sd over repetitions", r.SD, g.RepetitionsSD)
			}
			checkK(t, s, g.K)
		})
	}
}

// checkK compares the numbers for k attempts, by k: pass@k, all-k, best of k.
func checkK(t *testing.T, s *Sample, golden map[string][3]float64) {
	t.Helper()
	for text, want := range golden {
		k, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		for i, of := range []func(int) (Share, error){s.PassAtK, s.AllK, s.BestOf} {
			got, err := of(k)
			if err != nil {
				t.Fatal(err)
			}
			same(t, []string{"pass@", "all-", "best of "}[i]+text, got.Value, want[i])
		}
	}
}

func TestPairsAsOthersComputeThem(t *testing.T) {
	t.Parallel()
	for _, g := range read(t).Pairs {
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			c, err := Compare(sample(t, g.A), sample(t, g.B), 0.95, 1000, 1)
			if err != nil {
				t.Fatal(err)
			}
			same(t, "difference", c.Difference, g.Difference)
			same(t, "interval, low", c.Interval.Low, g.Interval[0])
			same(t, "interval, high", c.Interval.High, g.Interval[1])
			want, test := g.P, TestSigns
			if g.McNemar != 0 {
				want, test = g.McNemar, TestMcNemar
			}
			same(t, "p", c.P, want)
			if c.Test != test {
				t.Errorf("the test is %s, want %s", c.Test, test)
			}
		})
	}
}

func TestHolmAsOthersComputeIt(t *testing.T) {
	t.Parallel()
	g := read(t)
	for i, p := range Holm(g.Ps) {
		same(t, "Holm", p, g.Holm[i])
	}
}
