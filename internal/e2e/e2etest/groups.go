package e2etest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/berth-eval/berth/internal/testlevel"
)

const noMemoryGroups = "this machine has no memory controller of version 1, which is for old clusters: boot with systemd.unified_cgroup_hierarchy=0"

// MemoryGroup makes a control group of version 1 with a memory limit, below the one
// of this process, and removes it at the end of the test. Where this is not possible,
// it skips the test and says why.
func MemoryGroup(t *testing.T, mib int64) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		testlevel.Cannot(t, noMemoryGroups, err)
	}
	_, own, found := strings.Cut(string(text), ":memory:")
	own, _, _ = strings.Cut(own, "\n")
	parent := filepath.Join("/sys/fs/cgroup/memory", own)
	if _, err = os.Stat(filepath.Join(parent, "memory.limit_in_bytes")); !found || err != nil {
		t.Skip(noMemoryGroups)
	}
	dir, err := os.MkdirTemp(parent, "berth-test-")
	if err != nil {
		testlevel.Root(t, "make a control group")
		testlevel.Cannot(t, "root may not make control groups here: run the tests outside of a container", err)
	}
	t.Cleanup(func() {
		if left := os.Remove(dir); left != nil {
			t.Error(left)
		}
	})
	if err = os.Chmod(dir, 0o755); err != nil { //nolint:gosec // other users work in it
		t.Fatal(err)
	}
	if err = os.WriteFile(filepath.Join(dir, "memory.limit_in_bytes"), []byte(strconv.FormatInt(mib<<20, 10)), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
