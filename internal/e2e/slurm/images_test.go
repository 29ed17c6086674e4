package slurm

import (
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// The archive of an image is on the login node and on one other node. Pilots of the
// others say so and take nothing, and the run is made where the archive is.
func TestAnArchiveThatIsOnOneNode(t *testing.T) { //nolint:paralleltest // the cluster is shared
	s := podmanSite(t)
	s.work = 1
	const name, trials, archive = "lonely", 6, "/tmp/lonely.tar"
	for _, node := range []string{"login", "node2"} {
		s.on(node, "cp "+s.shared+"/base.tar "+archive)
	}
	s.boxes(name, archive, "agent.oracle", trials, executor("requeue"))
	if code, out := s.start(name, "run . --no-live").wait(); code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	s.settled(name, trials)
	for at, r := range e2etest.Attempts(t, s.folder(name)) {
		if r.Outcome != record.Passed || r.Worker == nil || r.Worker.Node != "node2" {
			t.Errorf("%s: %s by %+v", at, r.Outcome, r.Worker)
		}
	}
	declined := map[string]string{}
	for _, p := range s.shown(name).Pilots {
		if p.Done == 0 {
			declined[p.Node] = p.Why
		}
	}
	for _, node := range []string{"node1", "node3"} {
		if want := `The archive of the image is not there. There is no file "` + archive + `" on this machine.`; !strings.Contains(declined[node], want) {
			t.Errorf("%s says %q", node, declined[node])
		}
	}
	s.vacated()
}
