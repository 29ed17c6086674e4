package proc

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/internal/testlevel"
)

func init() {
	if os.Getenv(roleEnv) != "headless" {
		return
	}
	go func() {
		for {
			time.Sleep(time.Millisecond) // until it is killed
		}
	}()
	runtime.LockOSThread() // the first thread, in an init function
	_, _, _ = syscall.Syscall(unix.SYS_EXIT, 0, 0, 0)
}

// headless starts such a process and waits until the kernel shows it as Z.
func headless(t *testing.T) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), roleEnv+"=headless")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	testlevel.Eventually(t, "the kernel shows Z for its first thread", func() bool { return line1(t, cmd.Process.Pid).State == 'Z' })
	return cmd.Process.Pid
}

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

func TestAProcessWhoseFirstThreadHasEndedLives(t *testing.T) {
	t.Parallel()
	pid := headless(t)
	// The damage: whoever believes the process's own line takes it for dead.
	if p := line1(t, pid); !p.Zombie() || p.Threads < 2 {
		t.Fatalf("the line is %+v; want the state of a zombie, and several threads", p)
	}
	p, there := Stat(pid)
	if !there || p.Zombie() || p.Still() || p.Thread == pid {
		t.Errorf("%+v, %v; want a process that lives, with a thread that does", p, there)
	}
	table, err := List()
	if err != nil || table.Index()[pid] == nil || table.Index()[pid].Zombie() {
		t.Errorf("in the table it is %+v, %v", table.Index()[pid], err)
	}
	self, err := os.Executable()
	if d := Look(p, false); err != nil || d.Executable != self || len(d.CommandLine) == 0 {
		t.Errorf("it runs %q with arguments %q, want %q (%v)", d.Executable, d.CommandLine, self, err)
	}
	if err = syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	testlevel.Eventually(t, "stopped, all its threads stand still", func() bool { p, _ = Stat(pid); return p.Still() })
	if p.State != 'T' || p.Zombie() {
		t.Errorf("stopped, it is %+v", p)
	}
	if err = syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testlevel.Eventually(t, "killed, it is a zombie", func() bool { p, _ = Stat(pid); return p.Zombie() })
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
