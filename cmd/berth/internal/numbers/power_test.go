package numbers_test

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
)

func TestPowerAsOthersComputeIt(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../stats/testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct{ Detectable float64 } // by statsmodels
	if err = json.Unmarshal(b, &golden); err != nil {
		t.Fatal(err)
	}
	// A task's difference has the variance 2·0.25·(0.25 + 0.25) = 0.25: between
	// tasks 2·0.25·0.5·0.5 = 0.125, and 0.25/2 in two repetitions.
	d, err := numbers.Detectable(100, 2, numbers.Typical)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(d-golden.Detectable) > 1e-5 {
		t.Errorf("detectable: %g, want %g", d, golden.Detectable)
	}
}

func TestNeededRepetitions(t *testing.T) {
	t.Parallel()
	for _, tasks := range []int{30, 120, 500} {
		for _, repetitions := range []int{1, 2, 3, 10} {
			d, err := numbers.Detectable(tasks, repetitions, numbers.Typical)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := numbers.Needed(tasks, d, numbers.Typical); err != nil || n != repetitions {
				t.Errorf("%d tasks × %d detect %.3f, for which %d repetitions are needed (%v)", tasks, repetitions, d, n, err)
			}
		}
	}
	if _, err := numbers.Needed(30, 0.05, numbers.Typical); err == nil || !strings.Contains(err.Error(), "add tasks") {
		t.Errorf("a difference that 30 tasks never detect: %v", err)
	}
}

func TestFront(t *testing.T) {
	t.Parallel()
	on := numbers.Front([]float64{0.9, 0.4, 0.5, 0.5, 0.8, 0.5}, []float64{9, 5, 1, 1, 4, 2})
	if want := []bool{true, false, true, true, true, false}; !slices.Equal(on, want) {
		t.Errorf("%v, want %v", on, want)
	}
}
