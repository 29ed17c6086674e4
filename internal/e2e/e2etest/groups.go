package e2etest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// MemoryGroup makes a control group of version 1 with a memory limit, below the one
// of this process, and removes it at the end of the test. Where this is not possible,
// it skips the test and says why.
func MemoryGroup(t *testing.T, mib int64) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Skip(err)
	}
	_, own, found := strings.Cut(string(text), ":memory:")
	own, _, _ = strings.Cut(own, "\n")
	parent := filepath.Join("/sys/fs/cgroup/memory", own)
	if _, err = os.Stat(filepath.Join(parent, "memory.limit_in_bytes")); !found || err != nil {
		t.Skip("the memory controller of this machine is not of version 1")
	}
	dir, err := os.MkdirTemp(parent, "berth-test-")
	if err != nil {
		t.Skip("control groups can be made by root only")
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
