package proc

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/internal/testlevel"
)

// line1 is the process's own line, which is about its first thread.
func line1(t *testing.T, pid int) Process {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	p, ok := parseStat(b)
	if !ok {
		t.Fatalf("%q", b)
	}
	return p
}

// A process whose first thread is traced, and so stands still, goes on with its
// others.
func TestAProcessWhoseFirstThreadIsTracedRuns(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$")
	if os.Getenv(roleEnv) == "traced" {
		for { //nolint:staticcheck // it is killed
			time.Sleep(time.Millisecond) // until it is killed
		}
	}
	cmd.Env = append(os.Environ(), roleEnv+"=traced")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	testlevel.Eventually(t, "it has several threads", func() bool { return line1(t, cmd.Process.Pid).Threads > 2 })
	runtime.LockOSThread() // a tracer is a thread
	defer runtime.UnlockOSThread()
	if err := unix.PtraceSeize(cmd.Process.Pid); err != nil {
		testlevel.Cannot(t, "processes may not be traced here: sysctl kernel.yama.ptrace_scope=0", err)
	}
	if err := unix.PtraceInterrupt(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	testlevel.Eventually(t, "the first thread stands still", func() bool { return strings.ContainsRune("tT", rune(line1(t, cmd.Process.Pid).State)) })
	if p, _ := Stat(cmd.Process.Pid); p.Still() {
		t.Errorf("%+v is taken to stand still", p)
	}
	_ = unix.PtraceDetach(cmd.Process.Pid)
}
