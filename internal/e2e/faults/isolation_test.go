package faults

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// users runs a test as this user and, if this is root, also as an ordinary
// user.
func users(t *testing.T, f func(p *place)) {
	t.Helper()
	uids := []int{os.Getuid()}
	if os.Getuid() == 0 {
		uids = append(uids, stranger)
	}
	for _, uid := range uids {
		t.Run("user "+strconv.Itoa(uid), func(t *testing.T) {
			t.Parallel()
			f(placeOf(t, uid))
		})
	}
}

// The sample that inspects its sandbox from inside passes, as root and as an
// ordinary user.
func TestTheIsolationSample(t *testing.T) {
	t.Parallel()
	users(t, func(p *place) {
		t := p.test
		e2etest.Must(t, os.CopyFS(filepath.Join(p.dir, "tasks", "isolation"), os.DirFS(filepath.Join(tree(), "examples", "quickstart", "tasks", "isolation"))))
		p.experiment("matrix {\n    agent = [agent.oracle, agent.nop]\n  }", "")
		p.berth("run", ".").want(t, 0)
		s := p.settled(p.run())
		if s.Summary.Outcomes[record.Passed] != 1 || s.Summary.Outcomes[record.Failed] != 1 {
			t.Errorf("outcomes %v, want the oracle to pass and nop to fail", s.Summary.Outcomes)
		}
		p.clean()
	})
}
