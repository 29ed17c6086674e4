package numbers_test

import (
	"slices"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
)

func TestFront(t *testing.T) {
	t.Parallel()
	on := numbers.Front([]float64{0.9, 0.4, 0.5, 0.5, 0.8, 0.5}, []float64{9, 5, 1, 1, 4, 2})
	if want := []bool{true, false, true, true, true, false}; !slices.Equal(on, want) {
		t.Errorf("%v, want %v", on, want)
	}
}
