package node_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/internal/testlevel"
)

const helperEnv = "BERTH_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" { // the child claims a place and is killed
		p, err := node.Claim("label-of-the-killed", "/run", []string{"e"}, "")
		if err != nil {
			panic(err)
		}
		_, _ = os.Stdout.WriteString(p.Dir + "\n")
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// own gives the test its own runtime folder.
func own(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(testlevel.Tmp(), "bnt")
	testlevel.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv(node.EnvDir, dir)
	return dir
}

func TestDirRefusesWhatWouldNotWork(t *testing.T) {
	dir := own(t)
	file := filepath.Join(dir, "file")
	open := filepath.Join(dir, "open")
	testlevel.Must(t, errors.Join(os.WriteFile(file, nil, 0o600), os.Mkdir(open, 0o700), os.Chmod(open, 0o755)))
	for path, want := range map[string]string{
		"relative": "not an absolute path", "/" + strings.Repeat("x", 60): "too long", file: "not a folder", open: "open to others",
		"/nowhere/at/all": "no such file", dir: "",
	} {
		t.Setenv(node.EnvDir, path)
		got, err := node.Dir()
		if want == "" {
			if err != nil || got != path {
				t.Errorf("%s: %q, %v", path, got, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), node.EnvDir) {
			t.Errorf("%s: %v, want an error with %q that says what to set", path, err, want)
		}
	}
}

func TestAPlaceIsRemovedWhenItIsReleased(t *testing.T) {
	own(t)
	p, err := node.Claim("l", "/run", nil, "")
	testlevel.Must(t, err)
	if len(p.Dir) > 48 {
		t.Errorf("%s is too long for the sockets of an attempt", p.Dir)
	}
	living, err := node.Living()
	if err != nil || len(living) != 1 || living[0].Label != "l" || living[0].Process.PID != os.Getpid() {
		t.Errorf("living: %+v, %v", living, err)
	}
	if stale, staleErr := node.Stale(); staleErr != nil || len(stale) != 0 {
		t.Errorf("a living place is stale: %+v, %v", stale, staleErr)
	}
	if err = errors.Join(p.Release(), p.Release()); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(p.Dir + "*")
	if err != nil || len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

func TestAPlaceInMemoryHasADiskBesideIt(t *testing.T) {
	memory, err := os.MkdirTemp("/dev/shm", "bnt")
	if err != nil {
		testlevel.Cannot(t, testlevel.NoMemory, err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(memory) })
	temp := t.TempDir()
	t.Setenv(node.EnvDir, memory)
	t.Setenv("TMPDIR", temp)
	p, err := node.Claim("l", "/run", nil, "")
	if err != nil {
		testlevel.Cannot(t, testlevel.NoMemory, err)
	}
	if p.Disk != "" && !strings.HasPrefix(p.Disk, temp+"/") {
		t.Errorf("the disk is %s, which is not below %s", p.Disk, temp)
	}
	if p.Disk == "" {
		t.Logf("%s is in memory, too", temp)
		temp = memory
	} else if err = os.MkdirAll(filepath.Join(p.Disk, "1", "view"), 0o700); err != nil {
		t.Fatal(err)
	}
	disk := p.Disk
	if err = p.Leave(); err != nil { // leaves the same state as a kill
		t.Fatal(err)
	}
	stale, err := node.Stale()
	if err != nil || len(stale) != 1 || stale[0].Disk != disk {
		t.Fatalf("stale: %+v, %v", stale, err)
	}
	if err = stale[0].Release(); err != nil {
		t.Error(err)
	}
	if left, globErr := filepath.Glob(filepath.Join(temp, "*", filepath.Base(p.Dir)+"*")); globErr != nil || len(left) != 0 {
		t.Errorf("left: %q, %v", left, globErr)
	}
}

func TestThePlaceOfAKilledProcessIsFoundOnce(t *testing.T) {
	own(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"=1")
	in, err := cmd.StdinPipe()
	testlevel.Must(t, err)
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	testlevel.Must(t, err)
	b := make([]byte, 200)
	n, err := out.Read(b)
	testlevel.Must(t, err)
	dir := strings.TrimSpace(string(b[:n]))
	if stale, staleErr := node.Stale(); staleErr != nil || len(stale) != 0 {
		t.Fatalf("stale while it lives: %+v, %v", stale, staleErr)
	}
	testlevel.Must(t, cmd.Process.Signal(syscall.SIGKILL))
	_ = cmd.Wait()
	stale, err := node.Stale()
	if err != nil || len(stale) != 1 || stale[0].Dir != dir || stale[0].Label != "label-of-the-killed" || !slices.Equal(stale[0].Environments, []string{"e"}) {
		t.Fatalf("stale: %+v, %v", stale, err)
	}
	if living, livingErr := node.Living(); livingErr != nil || len(living) != 0 {
		t.Errorf("a place that is being cleaned counts as living: %+v, %v", living, livingErr)
	}
	if again, againErr := node.Stale(); againErr != nil || len(again) != 0 {
		t.Errorf("a second cleaner got it, too: %+v, %v", again, againErr)
	}
	testlevel.Must(t, stale[0].Leave())
	again, err := node.Stale()
	if err != nil || len(again) != 1 {
		t.Fatalf("after it was left: %+v, %v", again, err)
	}
	if err = again[0].Release(); err != nil {
		t.Error(err)
	}
	if _, err = os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}

func TestAPlaceWithoutAnOwnerIsStillRemoved(t *testing.T) {
	dir := own(t)
	testlevel.Must(t, os.MkdirAll(filepath.Join(dir, "p", "broken", "x"), 0o700))
	stale, err := node.Stale()
	if err != nil || len(stale) != 1 || stale[0].Label != "" {
		t.Fatalf("stale: %+v, %v", stale, err)
	}
	if err = stale[0].Release(); err != nil {
		t.Error(err)
	}
}

// A process that is killed while it makes or removes its place may leave only
// the lock. Cleaners remove it, but never the lock of a place that is being
// made.
func TestALockWithoutAPlaceIsRemoved(t *testing.T) {
	runtime := own(t)
	places := filepath.Join(runtime, "p")
	testlevel.Must(t, os.MkdirAll(places, 0o700))
	left := filepath.Join(places, "0e7507f1.lock")
	testlevel.Must(t, os.WriteFile(left, nil, 0o600))
	if stale, err := node.Stale(); err != nil || len(stale) != 0 {
		t.Errorf("%v, %v", stale, err)
	}
	if _, err := os.Lstat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", left, err)
	}
	var all sync.WaitGroup
	done := make(chan struct{})
	all.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if stale, err := node.Stale(); err != nil || len(stale) != 0 {
				t.Errorf("a living place is taken for a stale one: %v, %v", stale, err)
				return
			}
			if _, err := node.Living(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 300 {
		p, err := node.Claim("label", "", nil, "")
		if err != nil {
			t.Error(err)
			break
		}
		if err = p.Release(); err != nil {
			t.Error(err)
		}
	}
	close(done)
	all.Wait()
	if entries, err := os.ReadDir(places); err != nil || len(entries) != 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

func TestALockThatCannotBeKeptNamesTheRuntimeFolder(t *testing.T) {
	runtime := own(t)
	if err := os.WriteFile(filepath.Join(runtime, "l"), nil, 0o600); err != nil { // where the folder of locks would be
		t.Fatal(err)
	}
	_, err := node.Acquire(t.TempDir())
	if _, ok := errors.AsType[*node.FolderError](err); !ok || !strings.Contains(err.Error(), runtime) || !strings.Contains(err.Error(), node.EnvDir) {
		t.Errorf("got %v, want an error that names %s and %s", err, runtime, node.EnvDir)
	}
}

func TestALockIsHeldByOneAtATimeAlthoughItsFileIsRemoved(t *testing.T) {
	runtime := own(t)
	dir := t.TempDir()
	var holders, turns atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for turns.Load() < 200 && t.Context().Err() == nil {
				hold(t, dir, &holders, &turns)
			}
		})
	}
	all.Go(func() { // a sweeper must remove nothing
		for turns.Load() < 200 && t.Context().Err() == nil {
			if _, err := node.Stale(); err != nil {
				t.Error(err)
			}
		}
	})
	all.Wait()
	left, err := os.ReadDir(filepath.Join(runtime, "l"))
	if err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// hold takes the lock for a moment if it is free.
func hold(t *testing.T, dir string, holders, turns *atomic.Int64) {
	t.Helper()
	l, err := node.Acquire(dir)
	if _, held := errors.AsType[*node.HeldError](err); held {
		return
	}
	if err != nil {
		t.Error(err)
		return
	}
	if n := holders.Add(1); n != 1 {
		t.Errorf("%d hold it", n)
	}
	turns.Add(1)
	holders.Add(-1)
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}

func TestTheLockOfAKilledProcessIsSwept(t *testing.T) {
	runtime := own(t)
	dir := t.TempDir()
	l, err := node.Acquire(dir)
	testlevel.Must(t, err)
	names, err := filepath.Glob(filepath.Join(runtime, "l", "*"))
	if err != nil || len(names) != 1 {
		t.Fatalf("locks: %q, %v", names, err)
	}
	testlevel.Must(t, l.Release())
	gone := node.Self()
	gone.Start = 1 // an old process with the same PID
	b, err := json.Marshal(gone)
	if err == nil {
		err = os.WriteFile(names[0], b, 0o600) // the state that a kill leaves
	}
	testlevel.Must(t, err)
	if err = second(dir); err != nil {
		t.Errorf("a lock that nobody holds: %v", err)
	}
	testlevel.Must(t, os.WriteFile(names[0], b, 0o600))
	if _, err = node.Stale(); err != nil {
		t.Error(err)
	}
	if _, err = os.Stat(names[0]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

func second(dir string) error {
	l, err := node.Acquire(dir)
	if err != nil {
		return err
	}
	return l.Release()
}

func TestAProcessIsKnownByMoreThanItsNumber(t *testing.T) {
	t.Parallel()
	self := node.Self()
	if self.PID != os.Getpid() || self.Start == 0 || self.Boot == "" || self.Namespace == "" {
		t.Fatalf("self: %+v", self)
	}
	b, err := json.Marshal(self)
	testlevel.Must(t, err)
	var back node.Process
	if err = json.Unmarshal(b, &back); err != nil || back != self {
		t.Errorf("%+v, %v", back, err)
	}
	if s := self.State(); s != node.Alive {
		t.Errorf("self is %d", s)
	}
	cmd := exec.CommandContext(t.Context(), "true")
	testlevel.Must(t, cmd.Start())
	p := self
	p.PID, p.Start = cmd.Process.Pid, 0
	for p.State() == node.Alive && t.Context().Err() == nil { // until it is a zombie, which counts as dead
		continue
	}
	if s := p.State(); s != node.Dead {
		t.Errorf("a process that ended is %d", s)
	}
	_ = cmd.Wait()
}

// A machine that stops loses a runtime folder in memory, and with it what says who
// made a folder in a scratch folder. Its lock there tells that its process is gone.
func TestAScratchFolderIsSwept(t *testing.T) {
	scratch := t.TempDir()
	p, err := node.Claim("label", "/run", nil, scratch)
	testlevel.Must(t, err)
	dead := filepath.Join(scratch, "0badcafe")
	testlevel.Must(t, errors.Join(os.MkdirAll(p.Disk, 0o700), os.MkdirAll(filepath.Join(dead, "attempts"), 0o700), os.WriteFile(dead+".lock", nil, 0o600)))
	for _, dry := range []bool{true, false} {
		left, sweepErr := node.SweepScratch(scratch, dry)
		if sweepErr != nil || !slices.Equal(left, []string{dead}) {
			t.Errorf("dry %v: %q, %v", dry, left, sweepErr)
		}
		if _, err = os.Stat(dead); dry != (err == nil) {
			t.Errorf("dry %v: %v", dry, err)
		}
	}
	if _, err = os.Stat(p.Disk); err != nil {
		t.Errorf("the folder of a living process: %v", err)
	}
	if err = p.Release(); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(scratch); err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}
