package maker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/environments/local/internal/cgroup"
	"github.com/berth-eval/berth/environments/local/internal/ids"
	"github.com/berth-eval/berth/environments/local/internal/modetest"
)

// groupsOfTest is a file system of control groups of version 2 where root may
// make some, with or without controllers.
func groupsOfTest(t *testing.T) *cgroup.Parent {
	t.Helper()
	for _, at := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var st unix.Statfs_t
		if unix.Statfs(at, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC && unix.Access(at, unix.W_OK) == nil {
			return cgroup.At(at)
		}
	}
	t.Skip("needs control groups of version 2, writable")
	return nil
}

func TestSandboxIsInAControlGroupOfItsOwn(t *testing.T) {
	modetest.Each(t, func(t *testing.T, mode ids.Mode) {
		if mode != ids.RealRoot {
			t.Skip("needs root, or a delegated group, which tests cannot make for a user")
		}
		r := newRig(t)
		r.groups = groupsOfTest(t)
		x := r.open(t, Order{Limits: cgroup.Limits{Pids: 100, MemoryMiB: 64}})
		rec, err := r.read(x.ID)
		if err != nil || !strings.HasSuffix(rec.Group, "/berth-"+x.ID) {
			t.Fatalf("record: %+v, %v", rec, err)
		}
		if text, readErr := os.ReadFile(filepath.Join(rec.Group, "cgroup.procs")); readErr != nil || len(strings.Fields(string(text))) == 0 {
			t.Errorf("nothing is in its group: %q, %v", text, readErr)
		}
		if got := x.sh(t, "grep ^0:: /proc/self/cgroup"); got != "0::/\n" {
			t.Errorf("inside it is in %q", got)
		}
		u, err := r.Destroy(t.Context(), x.ID)
		if err != nil || u.CPU <= 0 {
			t.Errorf("destroy: %+v, %v", u, err)
		}
		if _, err := os.Stat(rec.Group); err == nil {
			t.Error("its group is left")
		}
	})
}
