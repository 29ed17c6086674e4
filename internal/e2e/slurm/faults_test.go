package slurm

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// One run of 200 trials on a cluster: a pilot is cancelled, jobs are preempted by a
// job with a higher priority, a node is set down, slurmd and slurmctld are killed, and
// a node loses its power. Every trial ends once, and no trial fails because of it.
func TestARunOutlivesWhatASchedulerDoes(t *testing.T) { //nolint:paralleltest // the cluster is shared
	s := newSite(t)
	const trials, name = 200, "faults"
	s.experiment(name, trials, executor("requeue"))
	mounts := s.mounts()
	run := s.start(name, "run .")
	s.await("pilots work", func() bool { return s.results(name) > 3 && len(s.pilots("%i")) == 3 })

	s.on("login", "scancel "+s.pilots("%i")[0])
	s.goesOn(name)

	s.on("login", fmt.Sprintf("sbatch --partition=urgent --nodelist=%s --exclusive --time=1 --wrap='sleep 3'", s.pilots("%N")[0]))
	s.goesOn(name)

	s.await("a pilot works", func() bool { return len(s.pilots("%N")) > 0 })
	down := s.pilots("%N")[0]
	s.root("login", "scontrol update nodename="+down+" state=down reason=test")
	s.goesOn(name)
	s.root("login", "scontrol update nodename="+down+" state=resume || true") // Slurm may have done so, because slurmd answers

	s.await("a pilot works", func() bool { return len(s.pilots("%N")) > 0 })
	lost := s.pilots("%N")[0]
	s.root(lost, "kill -9 $(cat /run/slurm/slurmd.pid)")
	s.await("Slurm counts the node as down", func() bool {
		return strings.Contains(s.on("login", "sinfo --noheader --nodes="+lost+" --partition=requeue --format=%T"), "down")
	})
	s.goesOn(name)
	s.repaired()

	s.root("login", "kill -9 $(cat /run/slurm/slurmctld.pid)")
	s.goesOn(name)
	s.repaired()

	s.await("a pilot works", func() bool { return len(s.pilots("%N")) > 0 })
	if out, err := s.run(time.Minute, "kill", s.pilots("%N")[0]); err != nil {
		t.Errorf("kill: %v\n%s", err, out)
	}
	s.goesOn(name)
	s.repaired()

	if code, out := run.wait(); code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	attempts := s.settled(name, trials)
	if attempts <= trials {
		t.Errorf("%d attempts of %d trials: nothing was preempted, and the test proves little", attempts, trials)
	}
	t.Logf("%d attempts of %d trials", attempts, trials)
	s.empty()
	if after := s.mounts(); after != mounts {
		t.Errorf("mounts before:\n%s\nafter:\n%s", mounts, after)
	}
}

// mounts returns the mount points of all nodes where berth has something. Others come
// and go with what else runs on this machine when a node is made.
func (s *site) mounts() string {
	s.t.Helper()
	var all strings.Builder
	for _, node := range []string{"login", "node1", "node2", "node3"} {
		all.WriteString(node + ":\n" + s.on(node, "cut -d' ' -f2,3 /proc/self/mounts | grep -E '^(/tmp|/var/tmp|/srv|/dev/shm|/home|/run/user|/var/lib/berth-slurm)' | sort"))
	}
	return all.String()
}

// A node does not see the shared folder for longer than its pilot counts as alive. Its
// attempts are repeated elsewhere, and the pilot goes on when the folder is back.
func TestANodeThatLosesTheFolder(t *testing.T) { //nolint:paralleltest // the cluster is shared
	s := newSite(t)
	const trials, name = 60, "blind"
	s.experiment(name, trials, executor("requeue"))
	run := s.start(name, "run .")
	s.await("pilots work", func() bool { return s.results(name) > 3 && len(s.pilots("%i")) == 3 })
	node := s.pilots("%N")[0]
	s.root(node, "mount -t tmpfs -o ro none "+s.shared)
	s.await("its pilot is lost", func() bool { return strings.Contains(run.said(), "is lost: it has said nothing for 10s") })
	s.goesOn(name)
	s.root(node, "umount "+s.shared)
	s.await("its pilot is back", func() bool { return strings.Contains(run.said(), "is back") })
	if code, out := run.wait(); code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	if attempts := s.settled(name, trials); attempts <= trials {
		t.Errorf("%d attempts of %d trials: the pilot had nothing to lose, and the test proves little", attempts, trials)
	}
	s.empty()
}
