package harbor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/task"
)

const closedLoop = `
artifacts = ["/app/out", "/app/hidden"]
[metadata]
category = "loops"
[metadata.berth]
startup_sec = 180
stall_sec = 600
expect = { live = "exposed", separate = "failed" }
[[metadata.berth.verifiers]]
name = "reviewer"
settings = { rubric = "tests/rubric.md", strict = true }
[metadata.berth.interaction]
max_follow_ups = 2
total_sec = 1800
charged = ["turn", "copy", "wait"]
after = ["yielded", "timeout"]
hold = "copy"
reduce = "max"
decide = "last"
persona = "tests/persona.md"
show = ["/app/out", "/logs/artifacts"]
`

func TestAnInteractionIsRead(t *testing.T) {
	t.Parallel()
	f := minimal().with("task.toml", closedLoop, "tests/persona.md", "You are patient.\n")
	for _, script := range []bool{true, false} {
		verifiers := "reviewer script"
		if !script {
			f, verifiers = f.with("tests/test.sh", ""), "reviewer"
		}
		tk, ps := f.load(t, task.Options{})
		if tk == nil {
			t.Fatal(ps)
		}
		in, s := tk.Interaction, tk.Stages[0]
		if in.MaxFollowUps != 2 || in.Total.Std() != 30*time.Minute || !in.Charges("wait") || in.Charges("judge") || !in.Follows("timeout") || in.Follows("crashed") ||
			in.Hold != task.HoldCopy || in.Reduce != task.ReduceMax || in.Decide != task.ReduceLast || in.User != "user/persona.md" {
			t.Errorf("interaction %+v", in)
		}
		var names []string
		for _, v := range s.Verifiers {
			names = append(names, v.Name)
		}
		if strings.Join(names, " ") != verifiers || string(s.Verifiers[0].Settings) != `{"rubric":"tests/rubric.md","strict":true}` ||
			s.Agent.Startup.Std() != 3*time.Minute || s.Agent.Stall.Std() != 10*time.Minute {
			t.Errorf("stage %+v", s)
		}
		shown := map[string]bool{}
		for _, a := range s.Artifacts {
			shown[a.Source] = slices.Contains(a.Audience, task.RoleUser)
		}
		if len(shown) != 3 || !shown["/app/out"] || shown["/app/hidden"] || !shown["/logs/artifacts"] {
			t.Errorf("artifacts %+v", s.Artifacts)
		}
		i := slices.IndexFunc(tk.Resources, func(r task.Resource) bool { return r.Name == in.User })
		if i < 0 || !tk.Resources[i].For(task.RoleUser, "main") || tk.Resources[i].For(task.RoleAgent, "main") {
			t.Errorf("resources %+v", tk.Resources)
		}
	}
}

func TestAVerifierMayBeAdvisory(t *testing.T) {
	t.Parallel()
	text := strings.Replace(closedLoop, `name = "reviewer"`, "name = \"reviewer\"\nadvisory = true", 1)
	f := minimal().with("task.toml", text, "tests/persona.md", "x\n")
	tk, ps := f.load(t, task.Options{})
	if tk == nil {
		t.Fatal(ps)
	}
	if vs := tk.Stages[0].Verifiers; len(vs) != 2 || !vs[0].Advisory || vs[1].Advisory {
		t.Errorf("%+v", vs)
	}
	tk, ps = minimal().with("task.toml", text, "tests/persona.md", "x\n", "tests/test.sh", "").load(t, task.Options{})
	if tk != nil || len(ps) != 1 || !strings.Contains(ps[0].String(), "are all advisory") {
		t.Errorf("without another verifier: %v", ps)
	}
}

func TestMistakesInAnInteraction(t *testing.T) {
	t.Parallel()
	for old, replaced := range map[string][2]string{
		`"tests/persona.md"`:                 {`"tests/none.md"`, "not a file of the task"},
		`"/app/out", "/logs/`:                {`"/app/other", "/logs/`, "No artifact has the source"},
		`max_follow_ups = 2`:                 {`max_follow_ups = -1`, "not between 0 and 1000"},
		"max_follow_ups = 2\n":               {"", "Write max_follow_ups"},
		`"timeout"`:                          {`"tiemout"`, `Did you mean "timeout"?`},
		`"wait"]`:                            {`"verify"]`, "not one of turn, copy, judge, user, wait"},
		`hold = "copy"`:                      {`hold = "always"`, "write one of judge, copy"},
		`decide = "last"`:                    {`decide = "mean"`, "write one of last, max, min"},
		`name = "reviewer"`:                  {`name = "script"`, "runs the task's own tests"},
		`stall_sec = 600`:                    {`stal_sec = 600`, `Did you mean "stall_sec"?`},
		`"exposed"`:                          {`"detected"`, "write one of failed, exposed, passed"},
		`total_sec = 1800`:                   {`total_sec = -1`, "is -1 seconds"},
		`rubric = "tests/rubric.md", strict`: {`rubric = nan, strict`, "cannot say"},
		"name = \"reviewer\"\n":              {"name = \"reviewer\"\nadvisory = \"maybe\"\n", "advisory"},
	} {
		text := strings.Replace(closedLoop, old, replaced[0], 1)
		tk, ps := minimal().with("task.toml", text, "tests/persona.md", "x\n").load(t, task.Options{})
		said := ""
		for _, p := range ps {
			said += p.String() + "\n"
		}
		if tk != nil || !strings.Contains(said, replaced[1]) || !strings.Contains(said, "task.toml:") {
			t.Errorf("%s: %q; want an error with a line and %q", replaced[0], said, replaced[1])
		}
	}
}

func TestAnExpectationIsALabel(t *testing.T) {
	t.Parallel()
	tk, ps := minimal().with("task.toml", closedLoop, "tests/persona.md", "x\n").load(t, task.Options{})
	if tk == nil || len(tk.Expect) != 2 || tk.Expect["live"] != "exposed" {
		t.Errorf("%+v, %v", tk, ps)
	}
}

// A score that the task names has no threshold.
func TestAScoreWithoutAThreshold(t *testing.T) {
	t.Parallel()
	tk, ps := minimal().with("task.toml", "[metadata.berth]\nscore = \"score\"\n").load(t, task.Options{})
	if tk == nil || tk.Success.Score != "score" || tk.Success.AtLeast != nil {
		t.Errorf("%+v, %v", tk, ps)
	}
}

const onSurface = `
[metadata.berth.surface]
level = "2"
actions = ["add"]
observations = ["text"]
steps = 20
files = "tests/pages"
settings = { base = 10 }
[[metadata.berth.captures]]
name = "export"
settings = { url = "/export" }
`

func TestASurfaceIsRead(t *testing.T) {
	t.Parallel()
	f := minimal().with("task.toml", onSurface, "tests/pages/index.html", "hello", "solution/actions.jsonl", "{}\n", "solution/solve.sh", "")
	tk, ps := f.load(t, task.Options{})
	if tk == nil || len(ps) > 0 {
		t.Fatal(ps)
	}
	s := &tk.Stages[0]
	if u := s.Surface; u == nil || u.Level != "2" || !slices.Equal(u.Actions, []string{"add"}) || !slices.Equal(u.Observations, []string{"text"}) || u.Steps != 20 {
		t.Errorf("surface %+v", s.Surface)
	}
	if string(tk.Environment.Settings) != `{"base":10}` || !slices.Equal(tk.Environment.Files, []string{"surface"}) {
		t.Errorf("settings %s, files %q", tk.Environment.Settings, tk.Environment.Files)
	}
	if len(s.Captures) != 1 || s.Captures[0].Name != "export" || string(s.Captures[0].Settings) != `{"url":"/export"}` {
		t.Errorf("captures %+v", s.Captures)
	}
	if s.Reference == nil || !slices.Equal(s.Reference.Argv, []string{"cat", "/solution/actions.jsonl"}) {
		t.Errorf("reference %+v", s.Reference)
	}
	if tk, _ = minimal().with("solution/actions.jsonl", "{}\n", "solution/solve.sh", "").load(t, task.Options{}); tk == nil || tk.Stages[0].Reference != nil {
		t.Error("without a surface, actions are a solution")
	}
}

func TestASurfaceThatCannotBe(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"[[metadata.berth.captures]]\nname = \"x\"\n":           "Captures without a surface",
		"[metadata.berth.surface]\nsteps = 0\n":                 "Number out of range",
		"[metadata.berth.surface]\nfiles = \"tests/nothing\"\n": "Folder is missing",
		"[metadata.berth.surface]\nlevle = \"2\"\n":             "level",
	} {
		_, ps := minimal().with("task.toml", text).load(t, task.Options{})
		if !slices.ContainsFunc(ps, func(p task.Problem) bool { return strings.Contains(p.Summary+p.Detail, want) }) {
			t.Errorf("%q: %v, want %q", text, ps, want)
		}
	}
}

// A setting of a plugin is found in task.toml, or else what is around it.
func TestSettingsAreLocated(t *testing.T) {
	t.Parallel()
	tk := configured(`[metadata.berth.surface.settings]
page = "a"
[[metadata.berth.captures]]
name = "c"
settings = { kind = "url" }
[[metadata.berth.verifiers]]
name = "one"
[[metadata.berth.verifiers]]
name = "two"
settings = { truth = "t.json", fields = { x = 1, "y z" = 2 } }
`).must(t)
	for key, want := range map[string]string{
		"stages[0].verifiers[1].settings.truth":         "task.toml:10 metadata.berth.verifiers[1].settings.truth",
		`stages[0].verifiers[1].settings.fields["x"]`:   "task.toml:10 metadata.berth.verifiers[1].settings.fields.x",
		"stages[0].verifiers[1].settings.missing":       "task.toml:10 metadata.berth.verifiers[1].settings.missing",
		"stages[0].verifiers[0].settings.missing":       "task.toml:6 metadata.berth.verifiers[0].settings.missing",
		"stages[0].captures[0].settings.kind":           "task.toml:5 metadata.berth.captures[0].settings.kind",
		"environment.settings.page":                     "task.toml:2 metadata.berth.surface.settings.page",
		"stages[0].verifiers[2].settings.of_the_script": "task.toml:6 metadata.berth.verifiers[2].settings.of_the_script",
		"environment.workdir":                           ":0 environment.workdir",
	} {
		p := task.Located(Format{}, tk, task.Problem{Key: key})
		if got := fmt.Sprintf("%s:%d %s", p.File, p.Line, p.Key); got != want {
			t.Errorf("%s: got %s, want %s", key, got, want)
		}
	}
}
