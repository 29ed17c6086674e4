package plan_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/task"
)

// located is the format of these tests with the places of settings.
type located struct{ format }

func (located) Locate(_ *task.Task, p task.Problem) task.Problem {
	p.File, p.Line, p.Key = "task", 7, "there"
	return p
}

// Mistakes in what a task sets are errors of the plan, with file and line, for the
// plugin that the cell uses.
func TestSettingsOfTasksAreChecked(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"a": "", "b": ""})
	e := load(dir, "one", "two")
	asked := 0
	in := plan.Input{
		Experiment: e, Formats: []task.Format{located{}}, Plugins: &fakePlugins{}, Dialects: dialects.All,
		Settings: func(_ context.Context, kind plugins.Kind, name string, s plugins.Settings) ([]config.Problem, error) {
			asked++
			return []config.Problem{{Path: "size", Summary: "Wrong value", Detail: fmt.Sprintf("%s %s got %s.", kind, name, s.JSON)}}, nil
		},
	}
	made, err := plan.Make(t.Context(), in)
	if err != nil || !made.Blocked() || asked != 4 { // answers with a problem are not kept
		t.Fatalf("%v, %d questions, problems %+v", err, asked, made.Problems)
	}
	if p := made.Problems[0]; p.Summary != `task:7: verifier "script": there: Wrong value` || p.Detail != "verifier script got ." || !p.Refusal || len(p.Tasks) != 2 || len(p.Cells) != 2 {
		t.Errorf("%+v", p)
	}
	made.SkipRefused()
	if n := len(made.Trials); made.Trials[0].Refused == "" || n != 4 {
		t.Errorf("%d trials, %+v", n, made.Trials[0])
	}
	in.Formats = []task.Format{format{}} // which knows no places
	if made, err = plan.Make(t.Context(), in); err != nil || !strings.HasPrefix(made.Problems[0].Summary, `verifier "script": stages[0].verifiers[0].settings.size: Wrong value`) {
		t.Errorf("%v, %+v", err, made.Problems)
	}
}
