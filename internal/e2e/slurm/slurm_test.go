package slurm

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

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

// A job of the cluster runs the coordinator, and a key in the environment of the user
// reaches no file and no process on a node.
func TestAJobCarriesARun(t *testing.T) {
	s := newSite(t)
	s.experiment("detached", 6, executor("requeue"))
	out := s.on("login", "cd "+s.shared+"/detached && SOME_API_KEY=canary-5cd1 ../bin/berth run . --detach 2>&1")
	if !strings.Contains(out, "runs the coordinator of") {
		t.Errorf("it said: %s", out)
	}
	for end := time.Now().Add(2 * time.Minute); strings.TrimSpace(s.on("login", "squeue --noheader")) != ""; time.Sleep(500 * time.Millisecond) { // each look is a command in a container
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
	if out := s.berth("short", "plan .; echo code $?"); !strings.Contains(out, "does not fit into the time of a pilot") || !strings.Contains(out, "code 2") {
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
	for _, want := range []string{"and both see the run folder", "scratch: /srv/scratch/", "the node reaches the relay of login at 10.121.7.1:", "The experiment can run on node1"} {
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
