package faults

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/output"
)

// For experiments with one mistake each, the program reports it with exit code
// 2, leaves no process running and creates no run. cmd/berth/internal/config has
// the golden texts of the messages.
func TestBrokenExperimentsStartNothing(t *testing.T) {
	t.Parallel()
	from := filepath.Join(tree(), "cmd", "berth", "internal", "config", "testdata", "broken")
	files, err := filepath.Glob(filepath.Join(from, "*.hcl"))
	if err != nil || len(files) < 25 {
		t.Fatalf("%d broken experiments in %s, want 25 or more: %v", len(files), from, err)
	}
	p := newPlace(t)
	if err = os.CopyFS(filepath.Join(p.dir, "broken"), os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	for i, f := range files {
		name := filepath.Base(f)
		r := p.berth("validate", filepath.Join("broken", name), "--json")
		if r.Code != 2 {
			t.Errorf("%s: exit code %d\n%s%s", name, r.Code, r.stdout, r.stderr)
			continue
		}
		var v output.Validate
		if err = json.Unmarshal([]byte(r.stdout), &v); err != nil || v.Valid || len(v.Diagnostics)+len(v.Problems)+len(v.Missing) == 0 {
			t.Errorf("%s: says %s (%v), want what is wrong", name, r.stdout, err)
		}
		if i%8 == 0 { // the commands that would start something refuse it, too
			p.berth("run", filepath.Join("broken", name), "--no-live").want(t, 2)
		}
	}
	if _, err = os.Stat(filepath.Join(p.dir, "runs")); err == nil {
		t.Error("a run folder was made of a broken experiment")
	}
	p.clean()
}
