package faults

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// jobMiB is enough for berth and its plugins, and far too little for hungry.
const jobMiB = 400

// hungry takes memory until it is killed.
const hungry = "tail /dev/zero"

// inJob returns a command that runs argv as a job of a scheduler: in a group of
// version 1 below the one that has the limit.
func (p *place) inJob(argv ...string) []string {
	p.test.Helper()
	job := e2etest.MemoryGroup(p.test, jobMiB)
	step := filepath.Join(job, "step")
	p.test.Cleanup(func() {
		if err := os.Remove(step); err != nil {
			p.test.Error(err)
		}
	})
	procs := filepath.Join(step, "cgroup.procs")
	e2etest.Must(p.test, os.Mkdir(step, 0o755))
	e2etest.Must(p.test, os.Chown(procs, p.uid, -1))
	return append([]string{"sh", "-c", "echo $$ > " + procs + ` && exec "$@"`, "sh"}, argv...)
}

// hungryTasks writes tasks of which a process is killed: the agent's program, a
// command of the agent, or a command of the tests.
func (p *place) hungryTasks(hungry string, names ...string) {
	p.test.Helper()
	solve := map[string]string{"program": "exec " + hungry, "command": hungry + "\n" + solveTiny, "tests": solveTiny}
	for _, name := range names {
		test := testTiny
		if name == "tests" {
			test = "if " + hungry + "; then echo 1; else echo 0; fi > /logs/verifier/reward.txt"
		}
		p.task(name, "", solve[name], test)
	}
}

// comesTo checks the outcomes of tasks by name, and how often they were tried.
func (p *place) comesTo(dir string, want map[string]record.Outcome, tries map[string]int) {
	t := p.test
	t.Helper()
	results, none := attemptsOf(t, dir)
	if none > 0 {
		t.Errorf("%d attempts have no result", none)
	}
	got := map[string]int{}
	for at, r := range results {
		name := strings.TrimPrefix(r.Task, "e2e/")
		got[name]++
		text := read(filepath.Join(dir, "trials", at, record.ResultFile))
		if r.Outcome != want[name] || strings.Contains(text, `"job_oom_kills"`) != (tries != nil) {
			t.Errorf("%s: %s, want %s\n%s", name, r.Outcome, want[name], text)
		}
		if r.Outcome == record.EnvironmentError && !strings.Contains(r.Error.Message, "the memory limit of this job") {
			t.Errorf("%s: %+v", name, r.Error)
		}
	}
	for name := range want {
		if got[name] != max(1, tries[name]) {
			t.Errorf("%s was tried %d times, want %d", name, got[name], max(1, tries[name]))
		}
	}
}

const oneByOne = "limits {\n    in_flight = 1\n  }\n  retry {\n    max  = 1\n    wait = \"0s\"\n  }\n  matrix {\n    agent = [agent.oracle]\n  }"

// The limit of the job ends what the agent runs, and what the tests run: the attempt
// is repeated, and says what to change. An agent that goes on after a killed command
// is graded as usual.
func TestWhatTheLimitOfTheJobEndsIsNotTheAgents(t *testing.T) {
	t.Parallel()
	users(t, func(p *place) {
		p.hungryTasks(hungry, "program", "command", "tests")
		p.experiment(oneByOne, "")
		p.shepherd(nil, nil, p.inJob(filepath.Join(bin, "berth"), "run", ".", "--no-live")...).wait().want(p.test, 1)
		p.comesTo(p.run(), map[string]record.Outcome{
			"program": record.EnvironmentError, "command": record.Passed, "tests": record.EnvironmentError,
		}, map[string]int{"program": 2, "tests": 2})
		p.clean()
	})
}

// The same in the job of a pilot, of which the coordinator is not part.
func TestWhatTheLimitOfAPilotsJobEndsIsNotTheAgents(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.hungryTasks(hungry, "program")
	p.piloted(oneByOne, "")
	inJob := p.inJob() // first: it skips the test where there is no such group
	c, dir := p.coordinated()
	pilot := p.shepherd(nil, nil, append(inJob, filepath.Join(bin, "berth"), "pilot", dir, "--in-flight", "1")...)
	c.wait().want(t, 1)
	pilot.wait().want(t, 0)
	p.comesTo(dir, map[string]record.Outcome{"program": record.EnvironmentError}, map[string]int{"program": 2})
	p.vacated()
}

// A CLI in the sandbox that is killed has crashed. An agent outside of it goes on
// after a killed command, and is graded as usual.
func TestAgentsInAndOutsideOfTheSandboxInAJob(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.task("tiny", "", solveTiny, testTiny)
	p.write("replies.yaml", `replies:
  - text: "It is hungry.\n\n`+"```bash\\n"+hungry+"\\n```"+`"
  - text: "It was killed.\n\n`+"```bash\\n"+solveTiny+"\\n```"+`"
  - text: "`+"```bash\\necho TASK_IS_COMPLETE\\n```"+`"
`)
	p.experiment(strings.Replace(oneByOne, "agent.oracle", "agent.inside, agent.outside", 1), `agent "inside" {
  plugin = "cli"
  config {
    command = ["sh", "-c", "exec `+hungry+`"]
  }
}
agent "outside" {
  plugin = "minisweagent"
  model  = model.scripted
}
model "scripted" {
  provider = "script"
  script   = "./replies.yaml"
}
`)
	p.shepherd(nil, nil, p.inJob(filepath.Join(bin, "berth"), "run", ".", "--no-live")...).wait().want(t, 1)
	results, _ := attemptsOf(t, p.run())
	tried := map[string]int{}
	for at, r := range results {
		tried[r.Cell["agent"]]++
		want := map[string]record.Outcome{"inside": record.EnvironmentError, "outside": record.Passed}[r.Cell["agent"]]
		if text := read(filepath.Join(p.run(), "trials", at, record.ResultFile)); r.Outcome != want || !strings.Contains(text, `"job_oom_kills"`) {
			t.Errorf("%s: %s, want %s\n%s", r.Cell["agent"], r.Outcome, want, text)
		}
	}
	if tried["inside"] != 2 || tried["outside"] != 1 {
		t.Errorf("attempts: %v", tried)
	}
	p.clean()
}

// preferred returns a berth whose plugin of that name is the first that the kernel
// kills.
func (p *place) preferred(plugin string) string {
	p.test.Helper()
	name := "berth-plugin-" + plugin
	script := p.write(filepath.Join("bin", "plugins", name, name), "#!/bin/sh\necho 1000 > /proc/self/oom_score_adj\nexec "+filepath.Join(bin, "plugins", name)+"\n")
	err := filepath.WalkDir(bin, func(path string, d fs.DirEntry, err error) error {
		to := filepath.Join(p.dir, "bin", strings.TrimPrefix(path, bin))
		switch {
		case err != nil || d.Name() == name:
			return err
		case d.IsDir():
			return os.MkdirAll(to, 0o755)
		default:
			return os.Link(path, to) // a copy would be large, and a plugin is not looked for behind a symbolic link
		}
	})
	if err = errors.Join(err, os.Chmod(script, 0o755)); err != nil { //nolint:gosec // a program
		p.test.Fatal(err)
	}
	return filepath.Join(p.dir, "bin", "berth")
}

// The kernel ends a plugin instead of the hungry process.
func TestAPluginThatTheLimitOfTheJobEndsIsNotTheAgents(t *testing.T) {
	t.Parallel()
	for plugin, task := range map[string]string{"oracle": "program", "local": "program", "script": "tests"} {
		t.Run(plugin, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			berth := p.preferred(plugin)
			p.hungryTasks("sh -c 'echo 0 > /proc/self/oom_score_adj; exec "+hungry+"'", task) // not the first to be killed
			p.experiment(strings.Replace(oneByOne, "max  = 1", "max  = 0", 1), "")
			p.shepherd(nil, nil, p.inJob(berth, "run", ".", "--no-live")...).wait().want(t, 1)
			results, none := attemptsOf(t, p.run())
			if none > 0 || len(results) != 1 {
				t.Errorf("%d results, and %d without one", len(results), none)
			}
			for at, r := range results {
				if r.Outcome != record.EnvironmentError {
					t.Errorf("%s: %s, want %s", at, r.Outcome, record.EnvironmentError)
				}
			}
			p.clean()
		})
	}
}
