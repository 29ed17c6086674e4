package e2etest

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// Attempts returns the results of all attempts of a run, by folder.
func Attempts(t *testing.T, run string) map[string]*record.Result {
	t.Helper()
	_, x, err := store.Read(run)
	Must(t, err)
	all := map[string]*record.Result{}
	for _, tr := range x.Trials {
		for _, a := range tr.Attempts {
			at := filepath.Join(tr.Dir, store.AttemptDir(a.Number))
			all[at] = Result(t, filepath.Join(run, store.TrialsDir, at))
		}
	}
	return all
}

// SameRun checks that a run of pilots is the same as one that was made without them:
// their manifests but for the first line, which is about the run, the ids of trials,
// and what decided each result. Times and hosts differ. It returns the results of the
// pilots.
func SameRun(t *testing.T, alone, piloted string) map[string]*record.Result {
	t.Helper()
	lines := func(run string) []string {
		return strings.Split(strings.TrimSuffix(Read(t, run, store.ManifestFile), "\n"), "\n")[1:]
	}
	if before, after := lines(alone), lines(piloted); len(before) == 0 || !slices.Equal(before, after) {
		t.Errorf("manifests differ:\n%q\n%q", before, after)
	}
	want, got := Attempts(t, alone), Attempts(t, piloted)
	if len(want) == 0 || len(got) != len(want) {
		t.Fatalf("%d results alone, %d of pilots", len(want), len(got))
	}
	decided := func(r *record.Result) string {
		return fmt.Sprint(r.Trial, r.Task, r.TaskDigest, r.Cell, r.Repetition, r.Attempt, r.Outcome, r.AgentEnd, r.Integrity, r.Reasons, r.Mode, r.Scores, r.Labels, r.Steps)
	}
	for at, w := range want {
		g := got[at]
		if g == nil {
			t.Errorf("%s: no result of pilots", at)
			continue
		}
		if decided(w) != decided(g) || !reflect.DeepEqual(w.Image, g.Image) {
			t.Errorf("%s:\n%s, %+v alone\n%s, %+v of pilots", at, decided(w), w.Image, decided(g), g.Image)
		}
		if g.Worker == nil || g.Worker.Pilot == "" || g.Worker.Node == "" || w.Worker != nil {
			t.Errorf("%s: made by %+v, alone by %+v", at, g.Worker, w.Worker)
		}
	}
	return got
}
