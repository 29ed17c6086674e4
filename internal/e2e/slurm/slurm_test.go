package slurm

import (
	"strings"
	"testing"
	"time"
)

// The shared folder is behind sshfs, which shows what other nodes write some seconds
// late.
func TestARunOverSSHFS(t *testing.T) {
	s := newSite(t, "--sshfs")
	s.experiment("late", 8, strings.Replace(executor("requeue"), `"10s"
}`, `"1m"
}`, 1))
	s.berth("late", "run .")
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
	s.on("login", "cd "+s.shared+`/moved; ../bin/berth run . > out 2>&1 & P=$!
n=0; while [ $(ls runs/*/cluster/leases 2>/dev/null | wc -l) -lt 4 ] && [ $n -lt 600 ]; do sleep 0.1; n=$((n+1)); done
kill -9 $P`)
	s.on("node2", "cd "+s.shared+"/moved && ../bin/berth resume last --take-over 2>&1")
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
		out := s.berth("refused-"+tt.partition, "run .; echo code $?")
		if !strings.Contains(out, tt.want) || !strings.Contains(out, "code 3") {
			t.Errorf("partition %s: %s", tt.partition, out)
		}
	}
	s.experiment("short", 1, strings.Replace(executor("requeue"), `"30m"`, `"2m"`, 1))
	if out := s.berth("short", "plan .; echo code $?"); !strings.Contains(out, "does not fit into the time of a pilot") || !strings.Contains(out, "code 2") {
		t.Errorf("a short time: %s", out)
	}
}
