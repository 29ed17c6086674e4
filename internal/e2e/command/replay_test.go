package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// A run that was exported is audited and replayed where neither its experiment nor
// its tasks are.
func TestAPublishedRunIsReplayed(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	e2etest.Must(t, os.CopyFS(filepath.Join(dir, "q"), os.DirFS(filepath.Join(tree.Root, "examples", "quickstart"))))
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"run", "q"}, 0, "6 passed + 3 failed"},
		{[]string{"export", "last", "--to", "bundle", "-o", "run.tar.zst"}, 0, "9 trials written to run.tar.zst"},
	} {
		if r := berthWith(t, dir, nil, tt.args...); r.code != tt.code || !strings.Contains(r.out+r.stderr, tt.want) {
			t.Fatalf("%q ended with %d:\n%s%s", tt.args, r.code, r.out, r.stderr)
		}
	}
	elsewhere := t.TempDir()
	e2etest.Must(t, os.Rename(filepath.Join(dir, "run.tar.zst"), filepath.Join(elsewhere, "run.tar.zst")))
	e2etest.Must(t, os.RemoveAll(filepath.Join(dir, "q")))
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"audit", "run.tar.zst"}, 0, "The record is consistent"},
		{[]string{"replay", "run.tar.zst"}, 2, "replay it with --trust"},
		{[]string{"replay", "run.tar.zst", "berth_hello-file--terminus", "--trust"}, 0, "1 of 1 replayed trials agree in everything"},
	} {
		if r := berthWith(t, elsewhere, nil, tt.args...); r.code != tt.code || !strings.Contains(r.out+r.stderr, tt.want) {
			t.Errorf("%q ended with %d, want %d and %q:\n%s%s", tt.args, r.code, tt.code, tt.want, r.out, r.stderr)
		}
	}
}
