package plan_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial"
	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// format is a task format whose tasks are one file, with a key and a value on
// each line.
type format struct{}

func (format) Name() string { return "lines" }

func (format) Detect(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "task"))
	return err == nil
}

func (format) Load(_ context.Context, dir string, _ task.Options) (*task.Task, []task.Problem, error) {
	b, err := os.ReadFile(filepath.Join(dir, "task"))
	if err != nil {
		return nil, nil, err
	}
	t := &task.Task{
		Name: filepath.Base(dir), Format: "lines", Digest: "sha256:" + strings.Repeat(strconv.Itoa(len(b)%10), 64), Dir: dir, Mode: task.ModeLive,
		Environment: task.Environment{OS: "linux", Network: task.Network{Mode: task.NetworkNone}},
		Stages: []task.Stage{{
			Name: "main", Instruction: []task.Part{{Text: "do"}}, Verifiers: []task.VerifierUse{{Name: "script"}},
			Reference: &task.Reference{Resource: "solution", Argv: []string{"true"}},
		}},
	}
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch key {
		case "bad":
			return nil, []task.Problem{{File: "task", Line: 1, Severity: task.Error, Summary: value}}, nil
		case "compose":
			t.Environment.Compose = value
		case "skills":
			t.Skills = []task.Skill{{Dir: "/skills"}}
		case "gpu":
			t.Environment.Limits.GPUs = 1
		case "users":
			t.Environment.Users = []string{"nobody"}
		case "network":
			t.Environment.Network = task.Network{Mode: task.NetworkAllow, Allow: []string{"a.com"}}
		case "memory":
			t.Environment.Limits.MemoryMiB = 99
		case "env":
			t.Environment.Env = task.Env{value: {Host: value}}
		}
	}
	return t, nil, nil
}

// fakePlugins answer like real plugins, and count how often they are asked.
type fakePlugins struct {
	agents, environments atomic.Int64
	missing              string
	refuse               func(environment.Spec) string
	needs                agent.Needs
}

func (p *fakePlugins) Agent(_ context.Context, name string) (agent.Agent, record.PluginUsed, error) {
	if name == p.missing {
		return nil, record.PluginUsed{}, fmt.Errorf("%w: no agent %q", plugin.ErrUnknown, name)
	}
	return fakeAgent{p}, record.PluginUsed{Kind: "agent", Name: name}, nil
}

func (p *fakePlugins) Environment(_ context.Context, name string) (environment.Environment, record.PluginUsed, error) {
	if name == p.missing {
		return nil, record.PluginUsed{}, fmt.Errorf("%w: no environment %q", plugin.ErrUnknown, name)
	}
	return fakeEnvironment{p: p}, record.PluginUsed{}, nil
}

func (*fakePlugins) Incarnation(string) int { return 1 }

func (p *fakePlugins) Verifier(context.Context, string) (trial.VerifierPlugin, record.PluginUsed, error) {
	return trial.VerifierPlugin{Traits: verifier.Traits{Needs: verifier.NeedsSandbox}}, record.PluginUsed{}, nil
}

type fakeAgent struct{ p *fakePlugins }

func (a fakeAgent) Check(context.Context, agent.CheckRequest) (agent.Needs, error) {
	a.p.agents.Add(1)
	return a.p.needs, nil
}

func (fakeAgent) Open(context.Context, agent.Setup) (agent.Session, error) {
	panic("a plan opens no session")
}

type fakeEnvironment struct {
	environment.Environment // a plan makes no sandbox, so any other call panics

	p *fakePlugins
}

func (e fakeEnvironment) Check(_ context.Context, s environment.Spec) (environment.Report, error) {
	e.p.environments.Add(1)
	if e.p.refuse != nil {
		if why := e.p.refuse(s); why != "" {
			return environment.Report{Refusals: []environment.Problem{{Summary: why, Detail: "use another"}}}, nil
		}
	}
	return environment.Report{}, nil
}

// folder makes a dataset: tasks maps names to the contents of their files.
func folder(t testing.TB, tasks map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range tasks {
		file := filepath.Join(dir, "tasks", name, "task")
		testlevel.Must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		testlevel.Must(t, os.WriteFile(file, []byte(text), 0o600))
	}
	return dir
}

// load makes an experiment on the dataset of a folder, with a cell for each agent.
func load(dir string, agents ...string) *experiment.Experiment {
	e := &experiment.Experiment{Repeat: 1}
	for i, name := range agents {
		key := ""
		if len(agents) > 1 {
			key = "agent=" + name
		}
		e.Cells = append(e.Cells, &experiment.Cell{
			Cell: cell.Cell{
				Agent: cell.Agent{Label: name, Plugin: name}, Environment: cell.Environment{Label: "e", Plugin: "env"},
			},
			Index: i, Key: key, Slug: name, Datasets: []experiment.Dataset{{Label: "d", Format: "lines", Path: filepath.Join(dir, "tasks")}},
		})
	}
	return e
}

// two makes an experiment with two cells and three repetitions.
func two(dir string) *experiment.Experiment {
	e := load(dir, "first", "second")
	e.Repeat = 3
	return e
}

func plans(t testing.TB, e *experiment.Experiment, p trial.Plugins) *plan.Plan {
	t.Helper()
	made, err := plan.Make(context.Background(), plan.Input{Experiment: e, Formats: []task.Format{format{}}, Plugins: p, Dialects: dialects.All})
	testlevel.Must(t, err)
	return made
}

func TestEveryCellTaskAndRepetitionIsATrial(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"one": "", "two": "", "three": "bad has no instruction"})
	p := plans(t, two(dir), &fakePlugins{})
	if len(p.Trials) != 2*3*3 || p.Blocked() {
		t.Fatalf("%d trials, problems %v", len(p.Trials), p.Problems)
	}
	invalid, seen := 0, map[string]bool{}
	for i := range p.Trials {
		tr := &p.Trials[i]
		if tr.Invalid != "" {
			invalid++
			if tr.Invalid != "task:1: has no instruction" {
				t.Errorf("invalid because %q", tr.Invalid)
			}
		}
		if seen[tr.ID] || seen[tr.Dir] || len(tr.ID) != 64 {
			t.Errorf("trial %s in %s is there twice", tr.ID, tr.Dir)
		}
		seen[tr.ID], seen[tr.Dir] = true, true
	}
	if invalid != 6 {
		t.Errorf("%d trials of the invalid task, want 6: it is counted, never dropped", invalid)
	}
	if p.Trials[0].Repetition != 1 || p.Trials[len(p.Trials)-1].Repetition != 3 {
		t.Error("repetitions are not one after another")
	}
}

// A mistake in an experiment must not use up all memory of the machine.
func TestTooManyTrialsAreRefused(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"one": "ok", "two": "ok"})
	p := &fakePlugins{}
	e := load(dir, "first", "second", "third", "fourth", "fifth", "sixth")
	e.Repeat = 100_000
	made := plans(t, e, p)
	const want = "1200000 trials are too many: 6 cells on their tasks, 100000 times each"
	if !made.Blocked() || len(made.Trials) > 0 || len(made.Problems) != 1 || !strings.Contains(made.Problems[0].Summary+": "+made.Problems[0].Detail, want) {
		t.Errorf("%d trials; problems %v, want %q", len(made.Trials), made.Problems, want)
	}
}

func TestTrialIDByHand(t *testing.T) {
	t.Parallel()
	// printf '{"cell":{"a":1},"repetition":2,"task":{"digest":"sha256:d","name":"n<&>"}}' | sha256sum
	const want = "f1fdd8bec9f578aa2547636eced3d0fe82cf4e24d9d6b807676b6ac82b4d199c"
	if got := plan.TrialID("n<&>", "sha256:d", json.RawMessage(`{"a":1}`), 2); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestIDsDependOnWhatCouldChangeResultsAndOnNothingElse(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"one": ""})
	base := plans(t, load(dir, "first"), &fakePlugins{})
	e := load(folder(t, map[string]string{"one": ""}), "first")
	e.Limits.InFlight, e.Retry.Max = new(7), 3
	if moved := plans(t, e, &fakePlugins{}); base.Trials[0].ID != moved.Trials[0].ID {
		t.Error("a path or a limit of the run is in the id")
	}
	for name, change := range map[string]func(*experiment.Cell){
		"agent":            func(c *experiment.Cell) { c.Agent.Plugin = "second" },
		"limits":           func(c *experiment.Cell) { c.Limits.AgentTime = 7 * time.Minute },
		"how it is judged": func(c *experiment.Cell) { c.Datasets[0].Verify = task.ModeRestarted },
	} {
		e = load(dir, "first")
		change(e.Cells[0])
		other := plans(t, e, &fakePlugins{})
		if other.Trials[0].ID == base.Trials[0].ID {
			t.Errorf("%s is not in the id", name)
		}
	}
}

func TestRefusalsAreByNameAndOnce(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"one": "", "big": "memory", "many": "compose compose.yaml"})
	p := plans(t, two(dir), &fakePlugins{refuse: func(s environment.Spec) string {
		if s.Limits.MemoryMiB == 99 {
			return "no memory limit here"
		}
		return ""
	}})
	if !p.Blocked() || len(p.Problems) != 2 {
		t.Fatalf("problems: %v", p.Problems)
	}
	for _, pr := range p.Problems {
		if !pr.Refusal || len(pr.Tasks) != 1 || len(pr.Cells) != 2 || pr.Detail == "" {
			t.Errorf("problem %+v", pr)
		}
	}
	refused := 0
	for i := range p.Trials {
		if p.Trials[i].Refused != "" {
			refused++
		}
	}
	if refused != 12 {
		t.Errorf("%d refused trials, want 12", refused)
	}
	if p.SkipRefused(); p.Blocked() {
		t.Error("the rest cannot be run")
	}
}

func TestMissingPluginsAreNamed(t *testing.T) {
	t.Parallel()
	p := plans(t, two(folder(t, map[string]string{"one": ""})), &fakePlugins{missing: "second"})
	if len(p.Missing) != 1 || p.Missing[0].Name != `agent "second"` || !slices.Equal(p.Missing[0].For, []string{"agent=second"}) || !p.Blocked() {
		t.Errorf("missing %+v", p.Missing)
	}
	p = plans(t, two(folder(t, map[string]string{"one": "", "two": ""})), &fakePlugins{missing: "env"})
	if len(p.Missing) != 1 || !slices.Equal(p.Missing[0].For, []string{"agent=first", "agent=second"}) {
		t.Errorf("missing %+v, for two cells", p.Missing)
	}
}

func TestHostVariablesThatAreNotGivenRefuseATask(t *testing.T) {
	t.Parallel()
	lookup := func(name string) (string, bool) { return "v", name != "UNSET" }
	for _, tt := range []struct {
		variable string
		flag     []string
		dataset  []string
		want     string // in the refusal; empty: none
	}{
		{"API", nil, nil, "API is not let through: allow it with --allow-env API, or with allow_env in the dataset."},
		{"API", []string{"API"}, nil, ""},
		{"API_KEY", nil, []string{"OTHER", "API_*"}, ""},
		{"API", nil, []string{"API_*"}, "API is not let through"},
		{"UNSET", nil, []string{"*"}, "UNSET is not set."},
	} {
		e := two(folder(t, map[string]string{"one": "env " + tt.variable, "two": ""}))
		for i := range e.Cells {
			e.Cells[i].Datasets[0].AllowEnv = tt.dataset
		}
		p, err := plan.Make(t.Context(), plan.Input{
			Experiment: e, Formats: []task.Format{format{}}, Plugins: &fakePlugins{}, Dialects: dialects.All,
			Options: task.Options{AllowEnv: tt.flag, LookupEnv: lookup},
		})
		testlevel.Must(t, err)
		if tt.want == "" {
			if p.Blocked() {
				t.Errorf("%+v: %+v", tt, p.Problems)
			}
			continue
		}
		if len(p.Problems) != 1 || !p.Problems[0].Refusal || !strings.Contains(p.Problems[0].Detail, tt.want) || p.Tasks[0].Task == nil || !p.Blocked() {
			t.Errorf("%+v: %+v", tt, p.Problems)
		}
		if p.SkipRefused(); p.Blocked() {
			t.Errorf("%+v: the other task cannot be run", tt)
		}
	}
}

// ten makes a plan of 10,000 trials: 100 tasks × 20 cells × 5 repetitions.
func ten(t testing.TB) *experiment.Experiment {
	t.Helper()
	tasks := map[string]string{}
	for i := range 100 {
		tasks[fmt.Sprintf("task-%03d", i)] = ""
	}
	e := load(folder(t, tasks), slices.Repeat([]string{"first", "second"}, 10)...)
	e.Repeat = 5
	for i, c := range e.Cells {
		c.Limits.AgentTime = time.Duration(i/2+1) * time.Minute
		c.Key, c.Slug = fmt.Sprintf("%s,time=%s", c.Key, c.Limits.AgentTime), fmt.Sprintf("%s-%s", c.Slug, c.Limits.AgentTime)
	}
	return e
}

// A plan of 10,000 trials is fast because each question is asked once.
func TestPluginsAreAskedEachQuestionOnce(t *testing.T) {
	t.Parallel()
	p := &fakePlugins{}
	made := plans(t, ten(t), p)
	if len(made.Trials) != 10000 {
		t.Fatalf("%d trials", len(made.Trials))
	}
	if a, e := p.agents.Load(), p.environments.Load(); a != 2 || e != 1 {
		t.Errorf("asked agents %d times and environments %d times, want 2 and 1", a, e)
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > 200<<20 {
		t.Errorf("%d MiB are held", m.HeapAlloc>>20)
	}
	runtime.KeepAlive(made)
}

// Tasks with the same features and deliveries are one line. A cell that refuses them
// delivers nothing.
func TestWhatTasksDeclareIsListed(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"plain": "", "one": "skills\ngpu\nusers", "two": "skills\ngpu\nusers", "net": "network"})
	e := load(dir, "shell", "talker")
	p := &fakePlugins{needs: agent.Needs{Shell: true}, refuse: func(s environment.Spec) string {
		if s.Limits.GPUs > 0 {
			return "there are no GPUs"
		}
		return ""
	}}
	made := plans(t, e, p)
	got, err := json.Marshal(made.Declared)
	testlevel.Must(t, err)
	want := `[{"features":["network"],"tasks":["net"],"cells":[{"cells":["agent=shell","agent=talker"],"delivery":{"network":"delivered"}}]},` +
		`{"features":["gpu","users","skills"],"tasks":["one","two"],"cells":[]}]`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	p = &fakePlugins{needs: agent.Needs{}}
	for _, d := range plans(t, e, p).Declared {
		if way := d.Cells[0].Delivery[task.FeatureSkills]; way != "unused" && len(d.Features) > 1 {
			t.Errorf("an agent without a model: %s", way)
		}
	}
}

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
