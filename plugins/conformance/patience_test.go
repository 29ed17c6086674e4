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

// TestPatienceThatIsSet: the load of the machine is at least 0, so that without
// the variable no timeout gets shorter.
func TestPatienceThatIsSet(t *testing.T) {
	for value, want := range map[string]time.Duration{"0.25": 250 * time.Millisecond, "4": 4 * time.Second, "1000": 20 * time.Second} {
		t.Setenv(PatienceVariable, value)
		if got := Patience(time.Second); got != want {
			t.Errorf("with %q: %s, want %s", value, got, want)
		}
	}
	for _, value := range []string{"", "-1", "0", "much", "NaN"} {
		t.Setenv(PatienceVariable, value)
		if got := Patience(time.Second); got < time.Second {
			t.Errorf("with %q: %s, want the load to decide", value, got)
		}
	}
}

// A factor for timeouts must not end a call before it has begun.
func TestADelayIsNotMadeShorter(t *testing.T) {
	t.Setenv(PatienceVariable, "0.01")
	if got := Delay(time.Second); got < time.Second {
		t.Errorf("%v", got)
	}
	t.Setenv(PatienceVariable, "20")
	if got := Delay(time.Second); got < 20*time.Second {
		t.Errorf("%v, want at least 20 s", got)
	}
}
