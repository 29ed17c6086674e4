package report_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/core/store"
)

// The run has trial a, which passed and used tokens in a killed attempt, and b
// and c, which did not run.
func TestTrialsAreSelectedAndSorted(t *testing.T) {
	t.Parallel()
	m, x, err := store.Read(runOf(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		f    report.Filter
		want string
	}{
		{report.Filter{}, "abc"},
		{report.Filter{Sort: "tokens"}, "abc"},
		{report.Filter{Sort: "cost"}, "abc"},
		{report.Filter{Sort: "time"}, "abc"},
		{report.Filter{Sort: "task"}, "abc"},
		{report.Filter{Expression: `outcome == "passed"`}, "a"},
		{report.Filter{Expression: `task == "two"`}, "c"},
	} {
		if err := tt.f.Choose(t.TempDir(), m, x); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, tr := range report.Select(m, x, &tt.f) {
			got += tr.ID[:1]
		}
		if got != tt.want {
			t.Errorf("%+v selects %q, want %q", tt.f, got, tt.want)
		}
	}
	x.Trials[0], x.Trials[2] = x.Trials[2], x.Trials[0]
	for _, by := range []string{"tokens", "cost", "score", "time", "outcome"} {
		if got := report.Select(m, x, &report.Filter{Sort: by}); got[0].ID[:1] != "a" {
			t.Errorf("sorted by %s, trial %s is first", by, got[0].ID[:1])
		}
	}
	var b bytes.Buffer
	passed := report.Filter{Expression: `outcome == "passed"`}
	if err := passed.Choose(t.TempDir(), m, x); err != nil {
		t.Fatal(err)
	}
	report.Trials(&terminal.Printer{Out: &b}, t.TempDir(), m, x, &passed)
	if text := b.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "2.0 s  0.5000    7920  attempt 2 of 2") {
		t.Errorf("%s", text)
	}
}

func TestAnOrderThatThereIsNotIsRefused(t *testing.T) {
	t.Parallel()
	f := report.Filter{Sort: "size"}
	if err := f.Check(); err == nil || !strings.Contains(err.Error(), `by "size". Choose one of task, `) {
		t.Error(err)
	}
}
