package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// timeOfLine is the time of a line, whose digits may be those of a score.
var timeOfLine = regexp.MustCompile(`"time(stamp)?":"[^"]*"`)

// loopPlugins builds example plugins into dir/plugins.
func loopPlugins(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "plugins", "berth-plugin-"+name), "./"+name)
		build.Dir = filepath.Join(tree.Root, "examples", "plugins")
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false -trimpath")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", name, err, out)
		}
	}
}

// A verifier wants more, a simulated user asks for it, and the second turn passes.
// The hidden rubric is nowhere in what the agent and the user said and heard.
func TestTheClosedLoop(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	loopPlugins(t, dir, "reviewer", "customer")
	berthWith(t, dir, nil, "run", filepath.Join(tree.Root, "examples", "closed-loop"), "--require", "passed = planned").want(t, 0)
	r := berth(t, dir, "show", "last", "samples/sales")
	r.want(t, 0)
	_, text, _ := strings.Cut(r.out, "\nconversation\n")
	text, _, _ = strings.Cut(text, "\ntrajectory\n")
	last := -1
	for _, line := range []string{
		"1 task     `/app/sales.csv` has the sales", "agent    I wrote the total of all sales to out/report.txt.",
		"verifier reviewer: continue, quality 0.4: The total is right.", "handoff: The work was reviewed. Verdict: continue.",
		"2 user     Thank you. The total alone does not help me", "agent    The report has the sum of each month now.",
		"verifier reviewer: pass, quality 1:", "end      the verdict is final", "agent                     4", "user                      1", "verifier reviewer         2",
	} {
		at := strings.Index(text, line)
		if at <= last {
			t.Errorf("%q is not there, or not in its place:\n%s", line, text)
		}
		last = at
	}
	full := answer[types.ShowFull](t, berth(t, dir, "show", "last", "samples/sales", "1", "--json"), "cli-show-attempt")
	if len(full.Verdicts) != 2 || len(full.Turns) != 5 || full.Result.Outcome != record.Passed {
		t.Errorf("%d verdicts, %d lines of turns, %s", len(full.Verdicts), len(full.Turns), full.Result.Outcome)
	}
	for _, file := range []string{record.StepsFile, record.TurnsFile} {
		text := timeOfLine.ReplaceAllString(e2etest.Read(t, full.Dir, file), "")
		for _, hidden := range []string{"0.6", "sums of the months are missing", "quality"} {
			if strings.Contains(text, hidden) {
				t.Errorf("%s has %q of the rubric or of a verdict", file, hidden)
			}
		}
	}
}
