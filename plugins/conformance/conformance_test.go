package conformance

import (
	"slices"
	"testing"
	"time"
)

// A clause that ends itself is skipped, unless it has failed before.
func TestAClauseThatCannotBeTriedIsSkipped(t *testing.T) {
	t.Parallel()
	var got []Status
	Run(t.Context(), false, []Clause[bool]{
		{Name: "skipped", Run: func(t *T, _ bool) { t.Skipf("no %s", "tool") }},
		{Name: "failed", Run: func(t *T, _ bool) { t.Errorf("wrong"); t.Skipf("no tool") }},
		{Name: "passed", Run: func(*T, bool) {}},
	}, func(r Result) {
		got = append(got, r.Status)
		if r.Clause == "skipped" && !slices.Equal(r.Detail, []string{"no tool"}) {
			t.Errorf("the reason is %q", r.Detail)
		}
	})
	if want := []Status{Skip, Fail, Pass}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

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
