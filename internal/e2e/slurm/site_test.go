package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// site is a cluster with the programs of this tree in its shared folder.
type site struct {
	t      *testing.T
	script string
	shared string // path of the shared folder, on the nodes and here
	work   int    // seconds that an attempt takes at least
	env    string // of berth on the login node, as a shell reads it
}

// cluster is the name of the cluster.
const cluster = "berth-e2e"

// newSite starts the cluster, or skips the test.
func newSite(t *testing.T, options ...string) *site {
	t.Helper()
	testlevel.Root(t, "start Slurm")
	tree, err := filepath.Abs("../../..")
	e2etest.Must(t, err)
	s := &site{t: t, script: filepath.Join(tree, "scripts", "slurm-for-tests"), work: 2}
	if _, err = os.Stat(s.script); err != nil {
		t.Skip("scripts/slurm-for-tests is missing")
	}
	out, err := s.run(5*time.Minute, append(options, "start")...)
	if e, ok := errors.AsType[*exec.ExitError](err); ok && e.ExitCode() == 77 {
		testlevel.Cannot(t, "no Slurm can be started here: scripts/slurm-for-tests start says why", out)
	}
	t.Cleanup(func() {
		if said, failed := s.run(time.Minute, "stop"); failed != nil {
			t.Errorf("stop: %v\n%s", failed, said)
		}
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err = s.run(time.Minute, "shared")
	e2etest.Must(t, err)
	s.shared = strings.TrimSpace(out)
	e2etest.Watch(t, tree)
	e2etest.Must(t, e2etest.Build(tree, filepath.Join(s.shared, "bin"), "./agents/nop", "./agents/oracle", "./environments/local", "./verifiers/script"))
	return s
}

func (s *site) run(limit time.Duration, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.script, append([]string{"--name", cluster}, args...)...)
	cmd.WaitDelay = 5 * time.Second // what it started on a node may keep the pipe open
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// on runs a shell command of the ordinary user on a node.
func (s *site) on(node, command string) string {
	s.t.Helper()
	out, err := s.run(5*time.Minute, "exec", node, "--", "sh", "-c", command)
	if err != nil {
		s.t.Fatalf("on %s: %s: %v\n%s", node, command, err, out)
	}
	return out
}

// experiment writes an experiment of n trials that take some seconds each.
func (s *site) experiment(name string, n int, executor string) {
	s.t.Helper()
	dir := filepath.Join(s.shared, name)
	e2etest.Write(s.t, dir, map[string]string{
		"tasks/slow/task.toml": `schema_version = "1.4"
[task]
name = "e2e/slow"
version = "1.0.0"
[agent]
timeout_sec = 60
[verifier]
timeout_sec = 60
[environment]
network_mode = "no-network"
workdir = "/app"
`,
		"tasks/slow/instruction.md":         "Do it.\n",
		"tasks/slow/environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
		"tasks/slow/solution/solve.sh":      fmt.Sprintf("#!/bin/sh\nsleep %d\n", s.work) + "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' > /app/done\n",
		"tasks/slow/tests/test.sh":          "#!/bin/sh\nif [ \"$(cat /app/done)\" = lo ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n",
		"berth.hcl": fmt.Sprintf(`experiment "slow" {
  datasets    = [dataset.tasks]
  environment = environment.local
  agent       = agent.oracle
  repeat      = %d
  retry {
    max  = 20
    on   = ["preempted"]
    wait = "0s"
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
%s`, n, executor),
	})
	e2etest.Must(s.t, exec.CommandContext(s.t.Context(), "chmod", "-R", "go-w", dir).Run())
	user := strings.TrimSpace(s.on("login", "id -un"))
	e2etest.Must(s.t, exec.CommandContext(s.t.Context(), "chown", "-R", user, dir).Run())
}

// executor is a block for the cluster.
func executor(partition string) string {
	return fmt.Sprintf(`executor "slurm" {
  partition  = %q
  workers    = 3
  time       = "30m"
  cpus       = 1
  in_flight  = 2
  scratch    = "/srv/scratch"
  grace      = "10s"
  lost_after = "10s"
}
`, partition)
}

// settled checks that every trial of the only run of an experiment passed, and counts
// its attempts.
func (s *site) settled(name string, trials int) (attempts int) {
	s.t.Helper()
	runs := e2etest.Found(s.t, 1, s.shared, name, "runs", "*")
	_, x, err := store.Read(runs[0])
	e2etest.Must(s.t, err)
	passed := 0
	for _, tr := range x.Trials {
		if tr.Outcome() == record.Passed {
			passed++
		}
		finals := 0
		for _, a := range tr.Attempts {
			attempts++
			if a.Result != nil && a.Result.Outcome.Final() {
				finals++
			}
		}
		if finals > 1 {
			s.t.Errorf("trial %s has %d attempts that count", tr.ID, finals)
		}
	}
	if passed != trials || len(x.Trials) != trials || x.Damaged > 0 {
		s.t.Errorf("%d of %d trials passed, %d planned, %d damaged lines", passed, trials, len(x.Trials), x.Damaged)
	}
	return attempts
}

// empty waits until no job is left, and checks that no process of a pilot and no
// file of an attempt is left on a node.
func (s *site) empty() {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Second) { // each look is a command in a container
		left := strings.TrimSpace(s.on("login", "squeue --noheader"))
		if left == "" {
			break
		}
		if time.Now().After(end) {
			s.t.Fatalf("jobs are left:\n%s", left)
		}
	}
	for _, node := range []string{"node1", "node2", "node3"} {
		s.on(node, filepath.Join(s.shared, "bin", "berth")+" gc --scratch /srv/scratch > /dev/null")
		if left := s.on(node, "pgrep -a berth; find /srv/scratch -mindepth 2 | head; true"); strings.TrimSpace(left) != "" {
			s.t.Errorf("left on %s:\n%s", node, left)
		}
	}
}

func (s *site) berth(name, args string) string {
	return s.on("login", fmt.Sprintf("cd %s/%s && %s ../bin/berth %s 2>&1", s.shared, name, s.env, args))
}

// session is a coordinator on the login node.
type session struct {
	*site

	name string // of the experiment
	cmd  *exec.Cmd
	out  string // file with what it says
	over chan error
}

// start starts berth on the login node, in the folder of an experiment.
func (s *site) start(name, args string) *session {
	s.t.Helper()
	c := &session{site: s, name: name, over: make(chan error, 1)}
	c.cmd = exec.CommandContext(s.t.Context(), s.script, "--name", cluster, "exec", "login", "--", "sh", "-c",
		fmt.Sprintf("cd %s/%s && echo $$ > pid && exec env %s ../bin/berth %s", s.shared, name, s.env, args))
	out, err := os.Create(filepath.Join(s.t.TempDir(), "out"))
	e2etest.Must(s.t, err)
	defer out.Close()
	c.out, c.cmd.Stdout, c.cmd.Stderr = out.Name(), out, out
	e2etest.Must(s.t, c.cmd.Start())
	go func() { c.over <- c.cmd.Wait() }()
	return c
}

// wait waits for the end of the coordinator, and returns its exit code and what it
// said.
func (c *session) wait() (int, string) {
	c.t.Helper()
	select {
	case err := <-c.over:
		if c.cmd.ProcessState == nil {
			c.t.Fatal(err)
		}
	case <-time.After(10 * time.Minute):
		c.t.Fatalf("the coordinator does not end\n%s", c.said())
	}
	return c.cmd.ProcessState.ExitCode(), c.said()
}

// said returns what the coordinator has said.
func (c *session) said() string { return e2etest.Read(c.t, c.out) }

// await polls until ok, for three minutes at most.
func (s *site) await(what string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(500 * time.Millisecond) { // each look may be a command in a container, and Slurm takes more than a minute
		if time.Now().After(end) {
			s.t.Fatalf("not in three minutes: %s\n%s", what, s.on("login", "squeue; sinfo; tail -n 20 "+s.shared+"/*/runs/*/cluster/log/*.out"))
		}
	}
}

// results counts the results of an experiment's run.
func (s *site) results(name string) int {
	m, err := filepath.Glob(filepath.Join(s.shared, name, "runs", "*", "trials", "*", "*", record.ResultFile))
	e2etest.Must(s.t, err)
	return len(m)
}

// goesOn waits for more results.
func (s *site) goesOn(name string) {
	s.t.Helper()
	before := s.results(name)
	s.await("attempts end", func() bool { return s.results(name) > before+4 })
}

// pilots returns jobs or nodes (as format says) of pilots that run.
func (s *site) pilots(format string) []string {
	s.t.Helper()
	return strings.Fields(s.on("login", "squeue --noheader --array --states=R --partition=requeue --format="+format))
}

// root runs a shell command of root on a node.
func (s *site) root(node, command string) {
	s.t.Helper()
	if out, err := s.run(time.Minute, "exec", "--root", node, "--", "sh", "-c", command); err != nil {
		s.t.Fatalf("on %s: %s: %v\n%s", node, command, err, out)
	}
}

// repaired starts what was killed.
func (s *site) repaired() {
	s.t.Helper()
	if out, err := s.run(5*time.Minute, "start"); err != nil {
		s.t.Fatalf("start: %v\n%s", err, out)
	}
}
