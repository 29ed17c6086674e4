package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/trajectory"
	"github.com/berth-eval/berth/plugins/verifier"
)

// roleKey is set in a process of this test binary that plays the plugins.
const roleKey = "BERTH_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleKey) != "" {
		play()
	}
	os.Exit(withPlugins(m)) //nolint:forbidigo // of the tests
}

// play plays the plugins that the experiments name.
func play() {
	var list []plugins.Plugin
	for _, name := range []string{"oracle", "nop"} {
		list = append(list, plugins.Agent(plugins.Info{Name: name, Version: "1.0.0", Doc: "Does nothing."}, nil, idle{}))
	}
	for _, name := range []string{"local", "podman", "docker"} {
		list = append(list, plugins.Environment(plugins.Info{Name: name, Version: "1.0.0", Doc: "Makes no sandbox."}, nil, full{environment.Plain{Name: name, Copies: true}}))
	}
	for _, name := range []string{"script", "judge"} {
		list = append(list, plugins.Verifier(plugins.Info{Name: name, Version: "1.0.0", Doc: "Sees nothing."}, nil, verifier.Traits{Needs: verifier.NeedsSandbox}, blind{}))
	}
	plugins.Serve(list...)
}

// withPlugins runs the tests where plugins, caches and sockets are in a folder of
// their own.
func withPlugins(m *testing.M) int {
	dir, err := os.MkdirTemp("/tmp", "bcl") // short, because sockets lie below it
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	self, err := os.Executable()
	for _, name := range []string{"berth-sandboxd"} { // is copied, and never started
		file := filepath.Join(filepath.Dir(self), name)
		if f, made := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700); made == nil {
			defer func() { _ = os.Remove(file) }()
			err = errors.Join(err, f.Close())
		}
	}
	program := filepath.Join(dir, "plugins", "berth-plugin-test", "berth-plugin-test")
	err = errors.Join(err, os.MkdirAll(filepath.Dir(program), 0o700), os.Mkdir(filepath.Join(dir, "cache"), 0o700),
		os.WriteFile(program, fmt.Appendf(nil, "#!/bin/sh\nGORACE=atexit_sleep_ms=0 %s=1 exec '%s'\n", roleKey, self), 0o700))
	for name, value := range map[string]string{
		"BERTH_PLUGIN_PATH": filepath.Join(dir, "plugins"), "BERTH_RUNTIME_DIR": filepath.Join(dir, "r"), "XDG_CACHE_HOME": filepath.Join(dir, "cache"),
		"XDG_DATA_HOME": filepath.Join(dir, "data"), "HOME": dir, "NO_COLOR": "1",
	} {
		err = errors.Join(err, os.Setenv(name, value))
	}
	if err != nil {
		panic(err)
	}
	return m.Run()
}

// idle is an agent that does nothing.
type idle struct{}

func (idle) Check(context.Context, agent.CheckRequest) (agent.Needs, error) {
	return agent.Needs{}, nil
}
func (idle) Open(context.Context, agent.Setup) (agent.Session, error) { return idle{}, nil }
func (idle) Turn(context.Context, agent.Message, agent.Recorder) (agent.Yield, error) {
	return agent.Yield{End: agent.Done}, nil
}
func (idle) Close(context.Context, string, agent.Recorder) error { return nil }

// full is an environment that plans like local and never makes a sandbox.
type full struct{ environment.Plain }

func (full) Create(context.Context, environment.Spec) (environment.Sandbox, error) {
	return environment.Sandbox{}, fmt.Errorf("no sandbox in this test: %w", environment.ErrRefused)
}
func (full) Destroy(context.Context, string) (r environment.Remains, err error) { return r, nil }
func (full) List(context.Context, string) ([]string, error)                     { return nil, nil }

// blind is a verifier that sees nothing.
type blind struct{}

func (blind) Verify(context.Context, verifier.Request, func(string)) (verifier.Verdict, error) {
	return verifier.Verdict{}, verifier.ErrArtifactMissing
}

// write writes files below dir.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// harborTask writes a task that plan accepts.
func harborTask(t *testing.T, dir string) {
	t.Helper()
	write(t, dir, map[string]string{
		"task.toml": "schema_version = \"1.4\"\n[task]\nname = \"test/" + filepath.Base(dir) + "\"\n[agent]\ntimeout_sec = 600\n[verifier]\ntimeout_sec = 60\n" +
			"[environment]\nnetwork_mode = \"no-network\"\nworkdir = \"/app\"\n",
		"instruction.md":         "Write the file done.\n",
		"environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
		"solution/solve.sh":      "#!/bin/sh\ntouch /app/done\n",
		"tests/test.sh":          "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n",
	})
}

const experimentText = `experiment "e" {
  datasets    = [dataset.tasks]
  environment = environment.local
  matrix {
    agent = [agent.oracle, agent.nop]
  }
}
dataset "tasks" {
  format = "harbor"
  path   = "./tasks"
}
environment "local" {
  plugin = "local"
}
agent "oracle" {
  plugin = "oracle"
  oracle = true
}
agent "nop" {
  plugin = "nop"
}
`

// experiment returns a folder with an experiment of two agents on one task.
func experiment(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	harborTask(t, filepath.Join(dir, "tasks", "one"))
	write(t, dir, map[string]string{"experiment.hcl": experimentText})
	return dir
}

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// stored writes a run with the API of the store: two agents on two tasks, of which
// a passes both, b passes one, and one trial of b had an attempt that was killed.
func stored(t *testing.T, parent string) string {
	t.Helper()
	return storedWith(t, parent, 3)
}

// storedWith writes such a run, of which one trial did not pass; -1: all did.
func storedWith(t *testing.T, parent string, failed int) string {
	t.Helper()
	m := &store.Manifest{Header: store.Header{Experiment: "e", Berth: "test", Created: began}}
	for i, name := range []string{"a", "b"} {
		m.Cells = append(m.Cells, store.Cell{Index: i, Key: "agent=" + name, Slug: name, Agent: name, Environment: "local", Choices: map[string]string{"agent": name}})
		for k, task := range []string{"org/one", "org/two"} {
			id := strings.Repeat(string(rune('a'+2*i+k)), 64)
			m.Trials = append(m.Trials, store.Trial{ID: id, Dir: store.TrialDir(task, name, 1, id), Task: task, TaskDigest: "sha256:" + id, Dataset: "d", Cell: i, Repetition: 1})
		}
	}
	for i := range m.Trials { // the same task has the same content for both
		m.Trials[i].TaskDigest = "sha256:" + m.Trials[i%2].ID
	}
	r, err := store.Create(parent, m, []store.File{{Name: "experiment.hcl", Bytes: []byte(experimentText)}})
	if err != nil {
		t.Fatal(err)
	}
	killed, err := r.Begin(m.Trials[3].ID)
	if err = errors.Join(err, killed.Abandon()); err != nil {
		t.Fatal(err)
	}
	for i := range m.Trials {
		publish(t, r, &m.Trials[i], i != failed)
	}
	if err = r.Close(); err != nil {
		t.Fatal(err)
	}
	return r.Dir
}

// publish writes an attempt of a trial, with a step and a line of the log.
func publish(t *testing.T, r *store.Run, trial *store.Trial, pass bool) {
	t.Helper()
	a, err := r.Begin(trial.ID)
	if err != nil {
		t.Fatal(err)
	}
	outcome, score := record.Failed, 0.0
	if pass {
		outcome, score = record.Passed, 1
	}
	cost := 0.25
	step := record.Step{Time: began, Stage: "main", Turn: 1, Role: "agent", Step: trajectory.Step{StepID: 1, Source: trajectory.Model, Message: trajectory.Text("I look around.")}}
	err = errors.Join(
		a.Append(record.StepsFile, step),
		a.Append(record.LogFile, map[string]any{"time": began, "from": "agent", "text": "a line of the log"}),
		a.Publish(record.Result{
			Version: 1, Run: r.Manifest.Header.Run, Trial: trial.ID, Task: trial.Task, TaskDigest: trial.TaskDigest, Cell: r.Manifest.Cells[trial.Cell].Choices,
			Repetition: 1, Attempt: a.Number(), Berth: "test", Host: "here", Outcome: outcome, AgentEnd: record.Yielded, Integrity: record.Checked, Mode: "live",
			Score: &score, Scores: map[string]float64{"reward": score}, Start: began, End: began.Add(90 * time.Second), AgentTime: time.Minute, Steps: 1,
			Phases:   []record.Phase{{Name: record.PhaseTurn, Who: record.ByAgent, Start: began, End: began.Add(time.Minute)}},
			Verdicts: []verifier.Verdict{{Verifier: "script", Decision: verifier.Scored, Rationale: "the tests said so"}},
			Usage:    []record.Usage{{Role: "agent", Model: "m", Requests: 2, InputTokens: 100, OutputTokens: 10, CostUSD: &cost}},
		}),
	)
	if err != nil {
		t.Fatal(err)
	}
}
