package cell_test

import (
	"math"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/cell"
)

// A factor that means "as long as it takes" must not overflow into a time that is over
// at once.
func TestATimeIsScaledWithoutOverflow(t *testing.T) {
	t.Parallel()
	const year = 366 * 24 * time.Hour
	for _, tt := range []struct {
		name          string
		asks, instead time.Duration
		factor        float64
		want          time.Duration
	}{
		{"none", 0, 0, 0, 0},
		{"that of the task", time.Minute, 0, 0, time.Minute},
		{"another", time.Minute, time.Hour, 0, time.Hour},
		{"a factor", time.Minute, 0, 1.5, 90 * time.Second},
		{"a factor of none", 0, 0, 2, 0},
		{"a large factor", time.Hour, 0, 1e7, year},
		{"the largest factor", time.Hour, 0, math.MaxFloat64, year},
		{"a long time of the task", math.MaxInt64, 0, 0, year},
		{"a long time of the experiment", 0, math.MaxInt64, 0, year},
	} {
		if got := cell.Scaled(tt.asks, tt.instead, tt.factor); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
