package conformance

import (
	"testing"
	"time"
)

func TestPatience(t *testing.T) {
	t.Parallel()
	for loadavg, want := range map[string]time.Duration{
		"": time.Second, "x": time.Second, "NaN 1 1": time.Second, "-3 1 1": time.Second, "0.10 0.20 0.30 1/100 5": time.Second,
		"2.00 0 0 1/1 1": time.Second, "6.00 0 0 1/1 1": 3 * time.Second, "900.00 0 0 1/1 1": 20 * time.Second, "+Inf": 20 * time.Second,
	} {
		if got := patience(time.Second, loadavg, 2); got != want {
			t.Errorf("with load %q: %s, want %s", loadavg, got, want)
		}
	}
}
