package faults

import (
	"maps"
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

// The limit of the job ends what the agent runs, and what the tests run: the attempt
// is repeated, and says what to change. An agent that goes on after a killed command
// is graded as usual.
func TestWhatTheLimitOfTheJobEndsIsNotTheAgents(t *testing.T) {
	t.Parallel()
	users(t, func(p *place) {
		p.task("program", "", "exec "+hungry, testTiny)
		p.task("command", "", hungry+"\n"+solveTiny, testTiny)
		p.task("tests", "", solveTiny, "if "+hungry+"; then echo 1; else echo 0; fi > /logs/verifier/reward.txt")
		p.experiment("limits {\n    in_flight = 1\n  }\n  retry {\n    max  = 1\n    wait = \"0s\"\n  }\n  matrix {\n    agent = [agent.oracle]\n  }", "")
		p.shepherd(nil, nil, p.inJob(filepath.Join(bin, "berth"), "run", ".", "--no-live")...).wait().want(p.test, 1)
		results, _ := attemptsOf(p.test, p.run())
		tried := map[string]int{}
		for at, r := range results {
			name := strings.TrimPrefix(r.Task, "e2e/")
			tried[name]++
			want := record.EnvironmentError
			if name == "command" {
				want = record.Passed
			}
			text := read(filepath.Join(p.run(), "trials", at, record.ResultFile))
			if r.Outcome != want || !strings.Contains(text, `"job_oom_kills"`) {
				p.test.Errorf("%s: %s, want %s\n%s", name, r.Outcome, want, text)
			}
			if want == record.EnvironmentError && !strings.Contains(r.Error.Message, "the memory limit of this job") {
				p.test.Errorf("%s: %+v", name, r.Error)
			}
		}
		if !maps.Equal(tried, map[string]int{"program": 2, "command": 1, "tests": 2}) {
			p.test.Errorf("attempts: %v", tried)
		}
		p.clean()
	})
}
