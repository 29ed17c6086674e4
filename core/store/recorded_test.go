package store_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/internal/testlevel"
)

// A trial of another id, with another time limit for example, is replayed from
// the trial of the same task, repetition and cell.
func TestTheRecordedTrialThatStandsForAnother(t *testing.T) {
	t.Parallel()
	m := manifest(3)
	m.Cells = append(m.Cells, store.Cell{Index: 1, Key: "agent=b", Slug: "b", Choices: map[string]string{"agent": "b"}, Agent: "b", Environment: "e"})
	m.Trials[1].Cell, m.Trials[1].Repetition = 1, 1
	run, err := store.Create(t.TempDir(), m, nil)
	testlevel.Must(t, err)
	for i := range m.Trials[:2] {
		at, lost := run.Begin(m.Trials[i].ID)
		if lost != nil {
			t.Fatal(lost)
		}
		testlevel.Must(t, at.Publish(result(run, i, record.Passed)))
	}
	testlevel.Must(t, run.Close())
	r, err := store.OpenRecorded(run.Dir)
	testlevel.Must(t, err)
	dir := func(i int) string {
		return filepath.Join(run.Dir, store.TrialsDir, filepath.FromSlash(m.Trials[i].Dir), "attempt-1")
	}
	for _, tt := range []struct {
		trial, cell, task string
		repetition        int
		want, wrong       string
	}{
		{m.Trials[1].ID, "agent=a", "task", 9, dir(1), ""},
		{"other", "agent=a", "task", 1, dir(0), ""},
		{"other", "agent=b", "task", 1, dir(1), ""},
		{"other", "agent=c", "task", 1, "", "has 2 trials of task \"task\" and repetition 1, and none that is this one, or the only one of its cell (agent=c)"},
		{"other", "agent=c", "task", 3, "", "was not finished"},
		{"other", "agent=a", "task", 4, "", "has no trial of task \"task\" and repetition 4"},
	} {
		got, err := r.Attempt(tt.trial, tt.cell, tt.task, tt.repetition)
		if got != tt.want || (err == nil) != (tt.wrong == "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("%s, %s, %d: %q, %v; want %q, %q", tt.trial, tt.cell, tt.repetition, got, err, tt.want, tt.wrong)
		}
	}
}
