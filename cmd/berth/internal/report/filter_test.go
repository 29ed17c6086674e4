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
		{report.Filter{Outcomes: []string{"passed"}}, "a"},
		{report.Filter{Outcomes: []string{"passed", "not_run"}}, "abc"},
		{report.Filter{Outcomes: []string{"failed"}}, ""},
		{report.Filter{Task: "one"}, "ab"},
		{report.Filter{Task: "org/*"}, "ab"},
		{report.Filter{Task: "two", Outcomes: []string{"passed"}}, ""},
		{report.Filter{Cell: "a"}, "abc"},
		{report.Filter{Cell: "agent=*"}, "abc"},
		{report.Filter{Cell: "b"}, ""},
		{report.Filter{Sort: "tokens"}, "abc"},
		{report.Filter{Sort: "cost"}, "abc"},
		{report.Filter{Sort: "time"}, "abc"},
		{report.Filter{Sort: "task", Outcomes: []string{"not_run"}}, "bc"},
	} {
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
	report.Trials(&terminal.Printer{Out: &b}, t.TempDir(), m, x, &report.Filter{Outcomes: []string{"passed"}})
	if text := b.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "2.0 s  0.5000    7920  attempt 2 of 2") {
		t.Errorf("%s", text)
	}
}

func TestAFilterThatCannotMatchIsRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		f    report.Filter
		want string
	}{
		{report.Filter{Outcomes: []string{"colour"}}, `no outcome "colour". The outcomes are passed, failed, `},
		{report.Filter{Outcomes: []string{"faild"}}, `no outcome "faild": did you mean "failed"?`},
		{report.Filter{Sort: "size"}, `by "size". Choose one of task, `},
		{report.Filter{Task: "["}, `--task: "[" is not a valid pattern`},
	} {
		if err := tt.f.Check(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt.f, err)
		}
	}
}

func TestAFilterThatMatchesNothingNamesWhatThereIs(t *testing.T) {
	t.Parallel()
	m, x, err := store.Read(runOf(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		f    report.Filter
		want string
	}{
		{report.Filter{Cell: "agent=b"}, `--cell: no cell of the run matches "agent=b": did you mean "agent=a"?`},
		{report.Filter{Cell: "x*"}, `--cell: no cell of the run matches "x*"; known: agent=a, a`},
		{report.Filter{Task: "on"}, `--task: no task of the run matches "on": did you mean "one"?`},
		{report.Filter{Task: "tow", Outcomes: []string{"failed"}}, `--task: no task of the run matches "tow": did you mean "two"?`},
	} {
		if err := tt.f.Nothing(m, x); err == nil || err.Error() != tt.want {
			t.Errorf("%+v: %v, want %s", tt.f, err, tt.want)
		}
	}
	// That no trial has an outcome is an answer.
	if err := (&report.Filter{Outcomes: []string{"failed"}}).Nothing(m, x); err != nil {
		t.Error(err)
	}
	if err := (&report.Filter{Sort: "time", Cell: "a"}).Nothing(m, x); err != nil {
		t.Error(err)
	}
}
