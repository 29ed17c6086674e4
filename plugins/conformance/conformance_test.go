package conformance

import (
	"slices"
	"testing"
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
