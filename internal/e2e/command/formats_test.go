package command

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// The solutions of the sample tasks pass, judged by what is in their results, and
// doing nothing does not. The same comes out of a replay, for which the models are
// not needed.
func TestTheUniClawExample(t *testing.T) {
	tree.NeedsSandbox(t)
	t.Parallel()
	dir := t.TempDir()
	e2etest.Must(t, os.CopyFS(dir, os.DirFS(filepath.Join(tree.Root, "examples", "uniclaw"))))
	berth(t, dir, "run").want(t, 0)
	recorded := claws6(t, dir)
	for _, name := range []string{"supervisor.yaml", "user.yaml"} { // another model
		e2etest.Write(t, dir, map[string]string{name: "replies: [{text: I was asked.}]\n"})
	}
	berth(t, dir, "run", "--replay", filepath.Base(recorded.Dir)).want(t, 0)
	played := claws6(t, dir)
	if a, b := replies(t, &recorded), replies(t, &played); played.Dir == recorded.Dir || len(a) != 12 || !maps.EqualFunc(a, b, slices.Equal) {
		t.Errorf("recorded %v\nplayed %v", a, b)
	}
}

// replies returns the replies of all models, by task and cell. The requests have times in
// them.
func replies(t *testing.T, show *output.ShowRun) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for i := range show.Trials {
		for _, x := range exchangesOf(t, &show.Trials[i]) {
			name := show.Trials[i].Task + " " + show.Trials[i].CellKey
			out[name] = append(out[name], x.Role+" "+x.Reply)
		}
	}
	return out
}

// claws6 checks the last run of the six sample tasks.
func claws6(t *testing.T, dir string) output.ShowRun {
	t.Helper()
	show := answer[output.ShowRun](t, berth(t, dir, "show", "last", "--json"), "cli-show-run")
	if len(show.Trials) != 12 {
		t.Errorf("%d trials", len(show.Trials))
	}
	for _, trial := range show.Trials {
		want := record.Failed
		if strings.Contains(trial.CellKey, "oracle") {
			want = record.Passed
		}
		if trial.Outcome != want {
			t.Errorf("%s of %s is %s, not %s", trial.Task, trial.CellKey, trial.Outcome, want)
		}
	}
	return show
}
