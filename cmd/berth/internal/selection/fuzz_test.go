package selection_test

import (
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/selection"
)

// An expression, which a page of berth view may get from anybody's link, is refused
// or ends.
func FuzzCompile(f *testing.F) {
	f.Add(`outcome == "passed" && cell.agent in ["pi"] && any(tags, # matches "^g")`)
	m, x := run()
	f.Fuzz(func(t *testing.T, text string) {
		e, err := selection.Compile(text, m)
		if err != nil {
			return
		}
		if selected, err := e.Trials(m, x); err == nil && len(selected) > len(x.Trials) {
			t.Errorf("%d trials", len(selected))
		}
	})
}
