package proc

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/internal/testlevel"
)

const line = "42 (a) b (c\n) S 7 8 9 0 -1 4194560 1 2 3 4 50 60 70 80 20 0 1 0 12345 1000 77 18446744073709551615 1 1 0\n"

func TestStatLine(t *testing.T) {
	t.Parallel()
	p, ok := parseStat([]byte(line))
	want := Process{PID: 42, Parent: 7, Session: 9, State: 'S', Started: 12345}
	comm := string(p.Comm)
	p.Comm = nil
	if !ok || comm != "a) b (c\n" || p.PID != want.PID || p.Parent != want.Parent || p.Session != want.Session || p.State != want.State ||
		p.Threads != 1 || p.Thread != 42 ||
		p.Started != want.Started {
		t.Errorf("got %+v, %q, %v", p, comm, ok)
	}
}

// FuzzStat: a process chooses its name, in the middle of the line.
func FuzzStat(f *testing.F) {
	f.Add([]byte("name"))
	f.Add([]byte(") R 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1"))
	f.Fuzz(func(t *testing.T, name []byte) {
		if len(name) > 15 {
			name = name[:15] // as the kernel does
		}
		before, after, _ := strings.Cut(line, "a) b (c\n")
		p, ok := parseStat([]byte(before + string(name) + after))
		if !ok || p.PID != 42 || p.Parent != 7 || p.Started != 12345 || string(p.Comm) != string(name) {
			t.Errorf("name %q gives %+v, %v", name, p, ok)
		}
	})
}

func FuzzStatBytes(f *testing.F) {
	f.Add([]byte(line))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = parseStat(b) })
}

func TestListSeesAChildAndNotItself(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	table, err := List()
	if err != nil {
		t.Fatal(err)
	}
	index := table.Index()
	if index[os.Getpid()] != nil {
		t.Error("the table has ourselves in it")
	}
	p := index[cmd.Process.Pid]
	if p == nil || p.Parent != os.Getpid() || p.Zombie() || p.Started == 0 {
		t.Fatalf("the child is %+v", p)
	}
	again, ok := Stat(p.PID)
	if !ok || again.Started != p.Started {
		t.Errorf("a second look: %+v, %v", again, ok)
	}
}

func TestLookAtAnother(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := Look(Process{PID: os.Getpid(), Thread: os.Getpid()}, true)
	self, _ := os.Executable()
	if d.Executable != self || d.UID != uint32(os.Geteuid()) || !strings.HasPrefix(string(d.CommandLine), os.Args[0]) {
		t.Errorf("of ourselves: %+v", d)
	}
	var found bool
	for _, s := range Listening() {
		if s.Network == "unix" && s.Address == l.Addr().String() {
			found = slices.Contains(d.Inodes, s.Inode)
		}
	}
	if !found {
		t.Errorf("our socket %s is not among %v", l.Addr(), d.Inodes)
	}
	if d := Look(Process{PID: 1 << 30, Thread: 1 << 30}, true); d.Executable != "" || d.CommandLine != nil {
		t.Errorf("of nobody: %+v", d)
	}
}

func TestRunsABundle(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		d    Detail
		want bool
	}{
		{Detail{Executable: "/opt/agent/bin/node"}, true},
		{Detail{Executable: "/opt/agent/bin/node (deleted)"}, true},
		{Detail{Executable: "/opt/agents/node"}, false},
		{Detail{Executable: "/usr/bin/python3", CommandLine: []byte("python3\x00/opt/agent/main.py\x00x")}, true},
		{Detail{Executable: "/usr/bin/python3", CommandLine: []byte("python3\x00-u\x00/opt/agent/main.py")}, true},
		{Detail{Executable: "/usr/bin/grep", CommandLine: []byte("grep\x00-r\x00x\x00/opt/agent/main.py")}, false},
		{Detail{CommandLine: []byte("/opt/agent/run")}, true},
		{Detail{}, false},
	} {
		if got := tt.d.Runs([]string{"/opt/agent"}); got != tt.want {
			t.Errorf("%q %q: got %v, want %v", tt.d.Executable, tt.d.CommandLine, got, tt.want)
		}
	}
}

func TestStatusIDs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for text, want := range map[string]bool{
		"Name:\tx\nUid:\t5\t5\t5\t5\nGid:\t6\t6\t6\t6\n":        true,
		"Name:\tx\\nUid:\nUid:\t5\t0\t5\t5\nGid:\t6\t6\t6\t6\n": false, // a setuid program
		"Name:\tx\nUid:\t5\t5\t5\t5\nGid:\t6\t6\t6\n":           false,
		"Name:\tx\nUid:\t5\t5\t5\tx\nGid:\t6\t6\t6\t6\n":        false,
		"Name:\tx\n": false,
		"Name:\tx\nUid:\t99999999999999999999\t5\t5\t5\nGid:\t6\n": false,
	} {
		if err := os.WriteFile(dir+"/status", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if id, same := identity(dir, make([]byte, 4096)); same != want || want && (id.uid != 5 || id.gid != 6) {
			t.Errorf("%q: %+v, %v", text, id, same)
		}
	}
}

// FuzzNetlink: the kernel wrote it, but nobody's arithmetic is safe from it.
func FuzzNetlink(f *testing.F) {
	message := make([]byte, unix.SizeofNlMsghdr+inetMessage)
	binary.NativeEndian.PutUint32(message, uint32(len(message)))
	binary.NativeEndian.PutUint16(message[4:], diagByFamily)
	message[unix.SizeofNlMsghdr] = unix.AF_INET
	f.Add(message)
	f.Fuzz(func(_ *testing.T, b []byte) {
		messages(b, func(m []byte) {
			_, _ = parseInet(m, unix.IPPROTO_TCP)
			_, _ = parseUnix(m)
		})
	})
}

// roleEnv says what a process of a test does: limited lacks descriptors, and traced
// waits.
const roleEnv = "BERTH_TEST_ROLE"

// With a limit at which the folder of processes can be opened, but nothing in
// it, a table that left out what it cannot read would be empty: whoever may set
// the limits of PID 1, as root of a sandbox with one id may, would hide what it
// left running.
func TestWhatCannotBeReadIsNotLeftOut(t *testing.T) {
	t.Parallel()
	if os.Getenv(roleEnv) != "limited" {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), roleEnv+"=limited")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("with few descriptors: %v\n%s", err, out)
		}
		return
	}
	if all, err := List(); err != nil || len(all) == 0 {
		t.Fatalf("without a limit: %d processes, %v", len(all), err)
	}
	next, err := unix.Dup(0) // the lowest that is free
	if err != nil {
		t.Fatal(err)
	}
	var was unix.Rlimit
	if err = errors.Join(unix.Close(next), unix.Getrlimit(unix.RLIMIT_NOFILE, &was)); err != nil {
		t.Fatal(err)
	}
	limit := was
	limit.Cur = uint64(next) + 1
	if err = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	all, listErr := List()
	_, there := Stat(os.Getppid())
	dir, openErr := os.Open("/proc")
	_, within := Stat(os.Getppid()) // the one descriptor is taken now
	if err = unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if openErr != nil || !there || within {
		t.Fatalf("the limit of %d is not what it should be: %v, %v, %v", limit.Cur, openErr, there, within)
	}
	_ = dir.Close()
	if !errors.Is(listErr, unix.EMFILE) {
		t.Errorf("%d processes, %v; want an error, not a table with gaps", len(all), listErr)
	}
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
