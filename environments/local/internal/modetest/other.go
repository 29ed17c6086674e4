package modetest

import (
	"flag"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/environments/local/internal/ids"
	"github.com/berth-eval/berth/internal/testlevel"
)

// become runs this subtest again in a process of another user, or in another place.
func become(t *testing.T, mode ids.Mode, place Place) {
	t.Helper()
	if mode == ids.Held {
		testlevel.Program(t, "newuidmap", "uidmap")
	}
	pattern := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	if full := flag.Lookup("test.run").Value.String(); strings.Count(full, "/") > strings.Count(t.Name(), "/") {
		pattern = full
	}
	cache := cacheOf(User)
	if err := os.Mkdir(cache, 0o700); err == nil {
		testlevel.Must(t, os.Chown(cache, User, User))
	}
	home, err := os.MkdirTemp("", "berth-home-") //nolint:usetesting // the user cannot enter the folder of t.TempDir
	testlevel.Must(t, err)
	defer os.RemoveAll(home)
	testlevel.Must(t, os.Chown(home, User, User))
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.v", "-test.run="+pattern)
	cmd.Dir = "/"
	cmd.Env = []string{
		"BERTH_TEST=" + os.Getenv("BERTH_TEST"), "PATH=" + os.Getenv("PATH"), "HOME=" + home, markMode + "=" + names[mode], markTools + "=" + Tools,
		markStage + "=" + names[mode], markPlace + "=" + string(place),
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	t.Logf("in its own process (%s %s):\n%s", names[mode], place, out)
	if err != nil || strings.Contains(string(out), "no tests to run") {
		t.Errorf("in its own process: %v", err)
	}
}
