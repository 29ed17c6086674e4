package smoke

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

var tree e2etest.Checkout

func TestMain(m *testing.M) { os.Exit(tree.Main(m)) }

// berth runs berth in a folder, as the user who may use its environment.
type berth func(dir string, args ...string) (code int, out, stderr string)

// ours runs it as this user.
func ours(t *testing.T) berth {
	t.Helper()
	return func(dir string, args ...string) (int, string, string) { return tree.Berth(t, dir, args...) }
}

// run runs a copy of an example in dir and returns its trials. change changes its
// experiment file.
func run(t *testing.T, do berth, dir, example string, change func(string) string) []output.ShowTrial {
	t.Helper()
	e2etest.Must(t, os.CopyFS(dir, os.DirFS(filepath.Join(tree.Root, "examples", example))))
	text := e2etest.Read(t, dir, "berth.hcl")
	e2etest.Must(t, os.WriteFile(filepath.Join(dir, "berth.hcl"), []byte(change(text)), 0o600))
	if code, out, stderr := do(dir, "run", "."); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, out, stderr)
	}
	_, out, stderr := do(dir, "show", "last", "--json")
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
			do, dir, config := ours(t), t.TempDir(), ""
			if name == "local" {
				tree.NeedsSandbox(t)
			} else {
				e := e2etest.FindEngine(t, name, "docker.io/library/debian:bookworm-slim")
				do, dir = as(t, e)
				config = fmt.Sprintf("  config {\n    socket = %q\n  }\n", e.Socket)
			}
			got := map[string]string{}
			for _, tr := range run(t, do, dir, "quickstart", func(hcl string) string {
				return strings.NewReplacer("environment = environment.local\n", "environment = environment."+name+"\n",
					"  plugin = \""+name+"\"\n", "  plugin = \""+name+"\"\n"+config).Replace(hcl)
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

// as runs it as the user of an engine, with the programs that the quickstart needs in
// a folder for that user. It returns a folder there.
func as(t *testing.T, e e2etest.Engine) (do berth, dir string) {
	t.Helper()
	e2etest.Watch(t, tree.Root)
	top := e.Release(t, tree.Root, "oracle", "nop", "terminus", "script", "local", "docker", "podman")
	return func(dir string, args ...string) (int, string, string) {
		e.Own(t, top)
		var out, stderr strings.Builder
		cmd := e.Command(t.Context(), t, dir, filepath.Join(top, "bin", "berth"), args...)
		cmd.Stdout, cmd.Stderr = &out, &stderr
		err := cmd.Run()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), out.String(), stderr.String()
	}, filepath.Join(top, "x")
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
			for _, tr := range run(t, ours(t), t.TempDir(), example, func(hcl string) string { return hcl }) {
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
