package slurm

import (
	"strings"
	"testing"
)

// The scratch folder of a node is nearly full for a while. Its pilot says so and takes
// nothing, the others go on, and no attempt is spoiled.
func TestAScratchFolderThatIsFull(t *testing.T) { //nolint:paralleltest // the cluster is shared
	s := newSite(t, "--scratch-size", "200m")
	const trials, name = 40, "cramped"
	s.experiment(name, trials, executor("requeue"))
	run := s.start(name, "run . --no-live")
	s.await("pilots work", func() bool { return s.results(name) > 3 && len(s.pilots("%i")) == 3 })
	node := s.pilots("%N")[0]
	s.on(node, "cd /srv/scratch && head -c $(($(df --output=avail --block-size=1 . | tail -n 1) - 8*1024*1024)) /dev/zero > filler")
	s.await("its pilot says so", func() bool { return strings.Contains(run.said(), "has no room for attempts") })
	s.goesOn(name)
	s.on(node, "rm /srv/scratch/filler")
	if code, out := run.wait(); code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	if attempts := s.settled(name, trials); attempts != trials {
		t.Errorf("%d attempts of %d trials: some were spoiled", attempts, trials)
	}
	s.empty()
}
