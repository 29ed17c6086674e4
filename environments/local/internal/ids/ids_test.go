package ids

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// testSlots are slots over a file of the test's.
func testSlots(t *testing.T, file string) *slots {
	t.Helper()
	s, err := slotsIn(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.file.Close() })
	return s
}

func TestRangesDoNotCollideBetweenProcesses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ids")
	// Two openings of the file exclude each other as two processes do.
	a, b := testSlots(t, file), testSlots(t, file)
	seen := map[int]bool{}
	for i := range 200 {
		s := a
		if i%2 == 1 {
			s = b
		}
		base, _, err := s.take()
		if err != nil {
			t.Fatal(err)
		}
		if seen[base] {
			t.Fatalf("range %#x was given out twice", base)
		}
		if base < firstRange || base+Count > firstRange+rangeCount*Count || base%Count != 0 {
			t.Errorf("range %#x is not one of ours", base)
		}
		seen[base] = true
	}
}

func TestRangesRunOutAndComeBack(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ids")
	a, b := testSlots(t, file), testSlots(t, file)
	var release func()
	for range rangeCount {
		_, r, err := a.take()
		if err != nil {
			t.Fatal(err)
		}
		release = r
	}
	for _, s := range []*slots{a, b} {
		if _, _, err := s.take(); !errors.Is(err, ErrNoRange) {
			t.Errorf("got %v, want ErrNoRange", err)
		}
	}
	release()
	release() // twice is once
	if _, _, err := b.take(); err != nil {
		t.Errorf("after one was given back: %v", err)
	}
	if _, _, err := a.take(); !errors.Is(err, ErrNoRange) {
		t.Errorf("one was given back and two taken: %v", err)
	}
}

// The kernel releases the locks of a process that is killed.
func TestRangesOfAKilledProcessComeBack(t *testing.T) {
	if os.Getenv("BERTH_TEST_ROLE") != "" {
		s, err := slotsIn(os.Getenv("BERTH_TEST_ROLE"))
		for range rangeCount {
			if err == nil {
				_, _, err = s.take()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdout.WriteString("taken\n")
		time.Sleep(time.Minute) // until it is killed
		runtime.KeepAlive(s)    // a file that nobody needs any more would be closed, and its locks opened
	}
	file := filepath.Join(t.TempDir(), "ids")
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "BERTH_TEST_ROLE="+file)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	s := testSlots(t, file)
	if _, _, err := s.take(); !errors.Is(err, ErrNoRange) {
		t.Errorf("while it lives: %v, want ErrNoRange", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // "signal: killed"
	if _, _, err := s.take(); err != nil {
		t.Errorf("after it was killed: %v", err)
	}
}

func TestRangesOfOthersAreLeftOut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "subuid")
	// The second range to its end, and one id of the fifth.
	text := "somebody:1879113728:65536\nbroken line\nother:1879310436:1\n#x:1:1\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	taken := takenBySubordinates(file)
	for i, want := range []bool{false, true, false, false, true, false} {
		if taken[i] != want {
			t.Errorf("range %d: taken is %v, want %v", i, taken[i], want)
		}
	}
}

func TestSubordinateIDsAreReadLikeNewuidmap(t *testing.T) {
	name := "root"
	for _, tt := range []struct{ name, text, want string }{
		{"by name", name + ":100000:65536\n", ""},
		{"by number", "0:100000:65536\n", ""},
		{"exactly enough", name + ":100000:65535\n", ""},
		{"the second line", name + ":5000:10\n" + name + ":100000:65536\n", ""},
		{"too few", name + ":100000:65534\n", "65535 ids"},
		{"of another", "other:100000:65536\n", "65535 ids"},
		{"no number", name + ":x:65536\n", "65535 ids"},
		{"empty", "", "65535 ids"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "subuid")
			if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := mine(file, 0)
			if tt.want == "" && (err != nil || s.first != 100000) {
				t.Errorf("got %+v, %v", s, err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := mine(filepath.Join(t.TempDir(), "gone"), 0); err == nil {
		t.Error("a file that is not there gives ids")
	}
}

// A namespace in which the host's root may be user 0 is refused.
func TestUserZeroOfTheHostIsNeverMapped(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		initial    bool
		err        bool
	}{
		{"the host", "         0          0 4294967295\n", true, false},
		{"a user's namespace", "0 1000 1\n1 100000 65535\n", false, false},
		{"root as root", "0 0 1\n", false, true},
		{"all but the last", "0 0 4294967294\n", false, true},
		{"root as another", "1000 0 1\n", false, true},
		{"no map", "", false, false},
		{"nonsense", "0 0\n", false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			initial, err := judgeMap(tt.text)
			if initial != tt.initial || (err != nil) != tt.err {
				t.Errorf("got %v, %v", initial, err)
			}
		})
	}
}

func TestMapsOfOneIDAndHeldNeverBeginWithTheHostsRoot(t *testing.T) {
	for _, mode := range []Mode{OneID, Held} {
		m, err := (&Process{Mode: mode}).Maps()
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range m.UID {
			if mode == Held && line.HostID == 0 {
				t.Errorf("mode %v maps %+v", mode, line)
			}
		}
		if (len(m.UID) == 2) != mode.Many() || m.Setgroups != mode.Many() {
			t.Errorf("mode %v: %+v", mode, m)
		}
	}
	if _, err := (&Process{}).Maps(); err == nil {
		t.Error("the zero mode gives maps")
	}
}

func TestAProcessIsKilledOnlyUnderItsStartTime(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "100")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	start, err := Started(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := Kill(cmd.Process.Pid, start+1); !errors.Is(err, unix.ESRCH) {
		t.Errorf("with another start time: %v, want ESRCH", err)
	}
	if s, err := Started(cmd.Process.Pid); err != nil || s != start {
		t.Errorf("it was killed all the same: %v", err)
	}
	if err := Kill(cmd.Process.Pid, start); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if err := Kill(cmd.Process.Pid, start); !errors.Is(err, unix.ESRCH) {
		t.Errorf("once it is gone: %v, want ESRCH", err)
	}
}
