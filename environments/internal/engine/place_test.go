package engine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/runtimedir"
)

// shortFolder is a folder whose path leaves room for sockets.
func shortFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(testlevel.Tmp(), "be")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// A user who names a folder gets all but the marks there, and one who names a
// folder that cannot be used hears it before anything is run.
func TestTheFolderForLocksIsTheOneThatTheUserNames(t *testing.T) {
	dir := shortFolder(t)
	t.Setenv(runtimedir.Env, dir)
	if got, err := Place(); err != nil || got != filepath.Join(dir, folder) {
		t.Errorf("got %q, %v; want it in %s", got, err, dir)
	}
	t.Setenv(runtimedir.Env, filepath.Join(dir, "no", "where"))
	e := New(Options{Name: "e", Default: func() (string, error) { return "", errors.New("no engine") }})
	report, err := e.Check(t.Context(), environment.Spec{})
	if err != nil || len(report.Refusals) != 1 || !strings.Contains(report.Refusals[0].Detail, runtimedir.Env) {
		t.Errorf("%+v, %v; want a refusal that names %s", report, err, runtimedir.Env)
	}
}
