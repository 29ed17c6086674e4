package slurm

import (
	"bytes"
	"cmp"
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
)

// site is a cluster with the programs of this tree in its shared folder.
type site struct {
	t      *testing.T
	script string
	shared string
}

// cluster is the name of the cluster. Runs of these tests at the same time need names
// of their own.
var cluster = cmp.Or(os.Getenv("BERTH_TEST_SLURM_NAME"), "berth-e2e")

// newSite starts the cluster, or skips the test.
func newSite(t *testing.T, options ...string) *site {
	t.Helper()
	if os.Getenv("BERTH_TEST_SLURM") == "" {
		t.Skip("takes minutes and a Slurm of its own: set BERTH_TEST_SLURM=1 to run it")
	}
	if os.Getuid() != 0 {
		t.Skip("scripts/slurm-for-tests needs root")
	}
	tree, err := filepath.Abs("../../..")
	e2etest.Must(t, err)
	s := &site{t: t, script: filepath.Join(tree, "scripts", "slurm-for-tests")}
	if _, err = os.Stat(s.script); err != nil {
		t.Skip("scripts/slurm-for-tests is missing")
	}
	out, err := s.run(5*time.Minute, append(options, "start")...)
	if e, ok := errors.AsType[*exec.ExitError](err); ok && e.ExitCode() == 77 {
		t.Skipf("no Slurm can be started here:\n%s", out)
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
	e2etest.Must(t, e2etest.Build(tree, filepath.Join(s.shared, "bin"), "./agents/nop", "./agents/oracle", "./environments/local", "./verifiers/script"))
	return s
}

func (s *site) run(limit time.Duration, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	out, err := exec.CommandContext(ctx, s.script, append([]string{"--name", cluster}, args...)...).CombinedOutput()
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
		"tasks/slow/solution/solve.sh":      "#!/bin/sh\nsleep 2\ntail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' > /app/done\n",
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
	e2etest.Must(s.t, exec.CommandContext(s.t.Context(), "chown", "-R", "--reference="+filepath.Join(s.shared), dir).Run())
	e2etest.Must(s.t, exec.CommandContext(s.t.Context(), "chmod", "-R", "go-w", dir).Run())
	s.on("login", "id -un") // the nodes are up
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
	runs, err := filepath.Glob(filepath.Join(s.shared, name, "runs", "*"))
	if err != nil || len(runs) != 1 {
		s.t.Fatalf("runs: %q, %v", runs, err)
	}
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
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Second) {
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
	return s.on("login", fmt.Sprintf("cd %s/%s && ../bin/berth %s 2>&1", s.shared, name, args))
}

// One run on a cluster: a pilot is cancelled, jobs are preempted by a job with a
// higher priority, and a node dies. Every trial ends once.
func TestARunOutlivesWhatASchedulerDoes(t *testing.T) {
	s := newSite(t)
	const trials = 60
	s.experiment("faults", trials, executor("requeue"))
	var out bytes.Buffer
	run := exec.CommandContext(t.Context(), s.script, "--name", cluster, "exec", "login", "--", "sh", "-c", "cd "+s.shared+"/faults && ../bin/berth run . --no-live")
	run.Stdout, run.Stderr = &out, &out
	e2etest.Must(t, run.Start())
	running := func() (jobs []string) {
		return strings.Fields(s.on("login", "squeue --noheader --array --states=R --partition=requeue --format=%i"))
	}
	await := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(500 * time.Millisecond) {
			if time.Now().After(end) {
				_ = run.Process.Kill()
				_ = run.Wait()
				t.Fatalf("not in two minutes: %s\n%s", what, &out)
			}
		}
	}
	results := func() int {
		m, _ := filepath.Glob(filepath.Join(s.shared, "faults", "runs", "*", "trials", "*", "*", record.ResultFile)) //nolint:errcheck // the pattern is good
		return len(m)
	}
	await("pilots work", func() bool { return results() > 3 && len(running()) == 3 })
	s.on("login", "scancel "+running()[0])
	before := results()
	await("the others go on", func() bool { return results() > before+4 })
	node := strings.Fields(s.on("login", "squeue --noheader --states=R --partition=requeue --format=%N"))[0]
	s.on("login", fmt.Sprintf("sbatch --partition=urgent --nodelist=%s --exclusive --time=1 --wrap='sleep 3'", node))
	before = results()
	await("pilots start again", func() bool { return len(running()) > 0 && results() > before+4 })
	if out, err := s.run(time.Minute, "kill", strings.Fields(s.on("login", "squeue --noheader --states=R --partition=requeue --format=%N"))[0]); err != nil {
		t.Errorf("kill: %v\n%s", err, out)
	}
	if out, err := s.run(5*time.Minute, "start"); err != nil {
		t.Fatalf("start: %v\n%s", err, out)
	}
	if err := run.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if attempts := s.settled("faults", trials); attempts <= trials {
		t.Errorf("%d attempts of %d trials: nothing was preempted, and the test proves little", attempts, trials)
	}
	s.empty()
}

// The shared folder is behind sshfs, which shows what other nodes write some seconds
// late.
func TestARunOverSSHFS(t *testing.T) {
	s := newSite(t, "--sshfs")
	s.experiment("late", 8, strings.Replace(executor("requeue"), `"10s"
}`, `"1m"
}`, 1))
	s.berth("late", "run . --no-live")
	if attempts := s.settled("late", 8); attempts != 8 {
		t.Errorf("%d attempts of 8 trials", attempts)
	}
	s.empty()
}

// The coordinator is killed, and the run goes on from another node, with the same
// attempts.
func TestARunGoesOnFromAnotherNode(t *testing.T) {
	s := newSite(t)
	s.experiment("moved", 20, executor("cancel"))
	s.on("login", "cd "+s.shared+`/moved; ../bin/berth run . --no-live > out 2>&1 & P=$!
n=0; while [ $(ls runs/*/cluster/leases 2>/dev/null | wc -l) -lt 4 ] && [ $n -lt 600 ]; do sleep 0.1; n=$((n+1)); done
kill -9 $P`)
	s.on("node2", "cd "+s.shared+"/moved && ../bin/berth resume last --no-live --take-over 2>&1")
	if attempts := s.settled("moved", 20); attempts != 20 {
		t.Errorf("%d attempts of 20 trials: those that went on were not kept", attempts)
	}
	s.empty()
}

// A job of the cluster carries the run, and a key in the environment of the user
// reaches no file and no process on a node.
func TestAJobCarriesARun(t *testing.T) {
	s := newSite(t)
	s.experiment("detached", 6, executor("requeue"))
	out := s.on("login", "cd "+s.shared+"/detached && SOME_API_KEY=canary-5cd1 ../bin/berth run . --detach 2>&1")
	if !strings.Contains(out, "carries the run") {
		t.Errorf("it said: %s", out)
	}
	for end := time.Now().Add(2 * time.Minute); strings.TrimSpace(s.on("login", "squeue --noheader")) != ""; time.Sleep(500 * time.Millisecond) {
		for _, node := range []string{"node1", "node2", "node3"} {
			if found := s.on(node, "grep -l 'canary-5cd[1]' /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; true"); strings.TrimSpace(found) != "" {
				t.Errorf("the key is in processes on %s: %s", node, found)
			}
		}
		if time.Now().After(end) {
			t.Fatal("the run does not end")
		}
	}
	s.settled("detached", 6)
	if found := s.on("login", "grep -rl canary-5cd1 "+s.shared+"/detached; true"); strings.TrimSpace(found) != "" {
		t.Errorf("the key is in %s", found)
	}
	s.empty()
}

// What the scheduler refuses is said in its own words, before anything runs.
func TestWhatAClusterRefuses(t *testing.T) {
	s := newSite(t)
	for _, tt := range []struct{ partition, want string }{
		{"nowhere", "Invalid partition name specified"},
		{"closed", "not permitted to use this partition"},
	} {
		s.experiment("refused-"+tt.partition, 1, executor(tt.partition))
		out := s.berth("refused-"+tt.partition, "run . --no-live; echo code $?")
		if !strings.Contains(out, tt.want) || !strings.Contains(out, "code 3") {
			t.Errorf("partition %s: %s", tt.partition, out)
		}
	}
	s.experiment("short", 1, strings.Replace(executor("requeue"), `"30m"`, `"2m"`, 1))
	if out := s.berth("short", "plan .; echo code $?"); !strings.Contains(out, "does not fit into the time of a worker") || !strings.Contains(out, "code 2") {
		t.Errorf("a short time: %s", out)
	}
}

// doctor looks at one node for an experiment of its own, and returns what it said and
// its exit code.
func (s *site) doctor(node, block, options string) (said, code string) {
	s.t.Helper()
	s.experiment(node, 1, strings.Replace(block, "{", fmt.Sprintf("{\n  options = [\"--nodelist=%s\"]", node), 1))
	said, code, _ = strings.Cut(s.berth(node, "doctor berth.hcl "+options+"; echo code $?"), "code ")
	if files := s.on("login", "ls -A "+node); files != "berth.hcl\ntasks\n" {
		s.t.Errorf("%s: doctor left something: %q", node, files)
	}
	return said, strings.TrimSpace(code)
}

// keyed adds a model with a key to an experiment.
const keyed = `agent "asks" {
  plugin = "minisweagent"
}
model "m" {
  provider = "openai-chat"
  name     = "m1"
  api_key  = secret("E2E_NONE")
}
`

func TestDoctorSeesBothEndsOfAGoodAndOfACrippledNode(t *testing.T) { //nolint:paralleltest // the cluster is shared
	s := newSite(t, "--no-userns", "node3", "--no-subids", "node2", "--walled", "node2")
	e2etest.Must(t, e2etest.Build(filepath.Join(filepath.Dir(s.script), ".."), filepath.Join(s.shared, "bin"), "./agents/minisweagent"))
	out, code := s.doctor("node1", executor("requeue"), "")
	for _, want := range []string{"hard links: both ends wanted", "scratch: /srv/scratch/", "the node reaches the relay of login at 10.121.7.1:", "The experiment can run on node1"} {
		if !strings.Contains(out, want) || code != "0" {
			t.Errorf("no %q in (code %s):\n%s", want, code, out)
		}
	}
	relayed := strings.Replace(executor("requeue"), "{", "{\n  models = \"relay\"", 1) + keyed
	for name, c := range map[string]struct {
		node, block, options string
		want                 []string
	}{
		"no user namespaces": {"node3", executor("requeue"), "", []string{
			"on the node: user namespaces: not allowed to this process", "environment local: the experiment uses it, and it cannot make sandboxes", "unprivileged_userns_clone",
		}},
		"shared scratch": {"node1", strings.Replace(executor("requeue"), "/srv/scratch", s.shared, 1), "", []string{"so it is shared", "set scratch in the executor block"}},
		"blocked relay, no subordinate ids": {"node2", relayed, "", []string{
			"the node does not reach the relay of login", "--relay-address", "0 subordinate user ids", "usermod --add-subuids",
		}},
	} {
		out, code = s.doctor(c.node, c.block, c.options)
		for _, want := range append(c.want, "cannot run on this cluster yet") {
			if !strings.Contains(out, want) || code != "1" {
				t.Errorf("%s: no %q in (code %s):\n%s", name, want, code, out)
			}
		}
	}
	// The same node reaches a port that is open.
	if out, code = s.doctor("node2", relayed, "--relay-address 10.121.7.1:7001"); code != "0" || !strings.Contains(out, "the node reaches the relay of login at 10.121.7.1:7001") {
		t.Errorf("an open port (code %s):\n%s", code, out)
	}
}
