package smoke

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

var tree e2etest.Checkout

func TestMain(m *testing.M) { os.Exit(tree.Main(m)) }

// run runs a copy of an example and returns its trials. change changes its experiment
// file.
func run(t *testing.T, example string, change func(string) string) []output.ShowTrial {
	t.Helper()
	dir := t.TempDir()
	e2etest.Must(t, os.CopyFS(dir, os.DirFS(filepath.Join(tree.Root, "examples", example))))
	text := e2etest.Read(t, dir, "berth.hcl")
	e2etest.Must(t, os.WriteFile(filepath.Join(dir, "berth.hcl"), []byte(change(text)), 0o600))
	if code, out, stderr := tree.Berth(t, dir, "run", ".", "--no-live"); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, out, stderr)
	}
	_, out, stderr := tree.Berth(t, dir, "show", "last", "--json")
	var shown output.ShowRun
	if err := json.Unmarshal([]byte(out), &shown); err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr)
	}
	return shown.Trials
}

// want are the scores of the quickstart in every environment.
var want = map[string]string{
	"berth/fix-script agent=nop": "failed 0", "berth/fix-script agent=oracle": "passed 1", "berth/fix-script agent=terminus": "passed 1",
	"berth/hello-file agent=nop": "failed 0", "berth/hello-file agent=oracle": "passed 1", "berth/hello-file agent=terminus": "passed 1",
	"berth/isolation agent=nop": "failed 0", "berth/isolation agent=oracle": "passed 1", "berth/isolation agent=terminus": "passed 1",
}

func TestTheQuickstart(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"local", "docker", "podman"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "local" {
				tree.NeedsSandbox(t)
			} else {
				usable(t, name)
			}
			got := map[string]string{}
			for _, tr := range run(t, "quickstart", func(hcl string) string {
				return strings.Replace(hcl, "environment = environment.local\n", "environment = environment."+name+"\n", 1)
			}) {
				got[tr.Task+" "+tr.CellKey] = "no score"
				if a := tr.Attempts; len(a) == 1 && a[0].Score != nil {
					got[tr.Task+" "+tr.CellKey] = fmt.Sprintf("%s %g", a[0].Outcome, *a[0].Score)
				}
			}
			if !maps.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// usable skips the test where this user cannot run the quickstart in the engine's
// containers: no engine, or not its image.
func usable(t *testing.T, engine string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), engine, "image", "inspect", "--format", "{{.Id}}", "debian:bookworm-slim").CombinedOutput() //nolint:gosec // one of two names
	if err != nil {
		reason, _, _ := strings.Cut(strings.TrimSpace(string(out)+" "+err.Error()), "\n")
		t.Skipf("%s cannot be used by this user, or lacks debian:bookworm-slim: make setup (%s)", engine, reason)
	}
}

// The reference solution scores more than nothing.
func TestATrialOnEachSurface(t *testing.T) {
	t.Parallel()
	for example, needs := range map[string]string{"sokoban": "", "webui": "chromium"} {
		t.Run(example, func(t *testing.T) {
			t.Parallel()
			tree.NeedsSandbox(t)
			if needs != "" {
				testlevel.Program(t, needs, needs)
			}
			score := map[string]float64{}
			for _, tr := range run(t, example, func(hcl string) string { return hcl }) {
				if a := tr.Attempts; len(a) == 1 && a[0].Score != nil {
					score[tr.CellKey] = *a[0].Score
				} else {
					t.Errorf("%s has no score: %+v", tr.CellKey, a)
				}
			}
			if best, none := score["agent=oracle"], score["agent=nop"]; best <= none {
				t.Errorf("the reference solution has %g, nothing %g", best, none)
			}
		})
	}
}
