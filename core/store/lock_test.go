package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/internal/testlevel"
)

// helperEnv says what this test binary does instead of testing.
const helperEnv = "BERTH_TEST_ROLE"

// helper is another process on the same run folder, a worker, or a process on a
// full disk.
func helper() int {
	args := strings.Split(os.Getenv(helperEnv), "|")
	fail := func(err error) int {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	switch args[0] {
	case "hold":
		r, err := store.Open(args[1], "test", false)
		if err != nil {
			return fail(err)
		}
		fmt.Fprintln(os.Stdout, "held")
		time.Sleep(time.Minute) // until it is killed
		_ = r.Close()
	case "copies":
		return fail(copies(args[1], args[2] == "true"))
	case "full":
		if err := onAFullDisk(args[1]); err != nil {
			return fail(err)
		}
	}
	return 0
}

func TestASecondBerthIsRefusedAndToldWho(t *testing.T) {
	t.Parallel()
	r := create(t, 1)
	defer r.Close()
	_, err := store.Open(r.Dir, "test", false)
	var held *node.HeldError
	if !errors.As(err, &held) || held.By.PID != os.Getpid() || !strings.Contains(err.Error(), fmt.Sprintf("pid %d on ", os.Getpid())) {
		t.Errorf("got %v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err = os.Symlink(r.Dir, link); err != nil {
		t.Fatal(err)
	}
	if _, err = store.Open(link, "test", false); !errors.As(err, &held) {
		t.Errorf("through a link: %v", err)
	}
}

// The damage without the lock: both processes begin the same trials.
func TestDamageTwoBerthsDoEachTrialTwice(t *testing.T) {
	t.Parallel()
	r := create(t, 3)
	other, err := store.OpenWithoutLock(r.Dir, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		attempt(t, r, i, record.Passed)
		attempt(t, other, i, record.Passed)
	}
	if err = errors.Join(r.Close(), other.Close()); err != nil {
		t.Fatal(err)
	}
	_, x, err := store.Read(r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, tr := range x.Trials {
		if len(tr.Attempts) != 2 {
			t.Errorf("trial %s has %d attempts, want that it was done and paid for twice", tr.ID, len(tr.Attempts))
		}
	}
}

func TestAKilledBerthHoldsNothing(t *testing.T) {
	t.Parallel()
	r := create(t, 1)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"=hold|"+r.Dir)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 5)
	if _, err = out.Read(line); err != nil || string(line) != "held\n" {
		t.Fatalf("the helper said %q, %v", line, err)
	}
	var held *node.HeldError
	if _, err = store.Open(r.Dir, "test", false); !errors.As(err, &held) || held.By.PID != cmd.Process.Pid {
		t.Errorf("while it lives: %v", err)
	}
	if err = cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	again, err := store.Open(r.Dir, "test", false)
	if err != nil {
		t.Fatalf("after it was killed: %v", err)
	}
	attempt(t, again, 0, record.Passed)
	if err = again.Close(); err != nil {
		t.Error(err)
	}
}

// foreign writes the journal of a process that did not record its end.
func foreign(t *testing.T, dir string, p node.Process) {
	t.Helper()
	e, err := json.Marshal(store.Entry{Kind: store.WriterBegan, Seq: 1, Time: time.Now().UTC(), Process: &p})
	if err != nil {
		t.Fatal(err)
	}
	sum := crc32.Checksum(e, crc32.MakeTable(crc32.Castagnoli))
	line := fmt.Sprintf("{\"sum\":\"%08x\",\"entry\":%s}\n", sum, e)
	if err = os.WriteFile(filepath.Join(dir, store.JournalDir, "20000101-foreign-1.jsonl"), []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
}

// In a shared folder the lock of this machine does not cover other machines.
func TestABerthOnAnotherMachineIsSeen(t *testing.T) {
	t.Parallel()
	self := node.Self()
	for name, tt := range map[string]struct {
		process node.Process
		busy    bool
	}{
		"another machine":            {node.Process{Host: "node17", PID: 99, Boot: "other"}, true},
		"another container here":     {node.Process{Host: self.Host, PID: 99, Boot: self.Boot, Namespace: "pid:[1]"}, true},
		"here, before it was booted": {node.Process{Host: self.Host, PID: 1, Boot: "other", Namespace: self.Namespace}, false},
		"here, gone":                 {node.Process{Host: self.Host, PID: 1 << 22, Boot: self.Boot, Namespace: self.Namespace}, false},
		"here, its number is reused": {node.Process{Host: self.Host, PID: os.Getpid(), Start: self.Start + 1, Boot: self.Boot, Namespace: self.Namespace}, false},
		"here, alive":                {self, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := create(t, 1)
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			foreign(t, r.Dir, tt.process)
			r2, err := store.Open(r.Dir, "test", false)
			if !tt.busy {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				if err = r2.Close(); err != nil {
					t.Error(err)
				}
				return
			}
			var busy *store.BusyError
			if !errors.As(err, &busy) || !strings.Contains(err.Error(), tt.process.String()) {
				t.Fatalf("got %v", err)
			}
			takenOver(t, r.Dir, tt.process == self)
		})
	}
}

// takenOver passes the user's word that the other process is gone, which is
// ignored if that is known to live.
func takenOver(t *testing.T, dir string, lives bool) {
	t.Helper()
	r, err := store.Open(dir, "test", true)
	var busy *store.BusyError
	switch {
	case lives && !errors.As(err, &busy):
		t.Errorf("the user's word is taken against what is seen: %v", err)
	case !lives && err != nil:
		t.Fatalf("with the user's word: %v", err)
	case !lives:
		if err = r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A full disk: the helper has a disk of 512 KiB in its own mount namespace,
// fills it during attempts, frees space, and continues.
func TestAFullDiskLosesNothingThatWasPublished(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	dir := t.TempDir()
	cmd.Env = append(os.Environ(), helperEnv+"=full|"+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || strings.Contains(string(out), "no small disk") {
		testlevel.Cannot(t, testlevel.NoNamespaces, fmt.Sprintf("%v %s", err, out))
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func onAFullDisk(dir string) error {
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=512k"); err != nil {
		return fmt.Errorf("no small disk: %w", err)
	}
	if err := errors.Join(naiveOnAFullDisk(dir), copyToAFullDisk(dir)); err != nil {
		return err
	}
	const n = 40
	r, err := store.Create(dir, manifest(n), nil)
	if err != nil {
		return err
	}
	published := map[string]bool{}
	for i := range n {
		if i%8 == 3 {
			fillUp(filepath.Join(dir, "fill"))
		}
		if i%8 == 6 {
			if err = os.Remove(filepath.Join(dir, "fill")); err != nil {
				return err
			}
		}
		if writeAttempt(r, i) == nil {
			published[r.Manifest.Trials[i].ID] = true
		}
	}
	if err = r.Close(); err != nil {
		return err
	}
	if len(published) == n || len(published) == 0 {
		return fmt.Errorf("%d of %d attempts were published: the disk was not full at times", len(published), n)
	}
	_, x, err := store.Read(r.Dir)
	if err != nil {
		return err
	}
	for _, t := range x.Trials {
		if published[t.ID] && t.Outcome() != record.Passed {
			return fmt.Errorf("trial %s was published and is %s", t.ID, t.Outcome())
		}
	}
	if x.Damaged > 0 {
		return fmt.Errorf("%d damaged lines", x.Damaged)
	}
	return nil
}

// naiveOnAFullDisk shows the damage: a file that is overwritten in place loses
// its old content.
func naiveOnAFullDisk(dir string) error {
	name, fill := filepath.Join(dir, "naive.json"), filepath.Join(dir, "fill")
	held := strings.Repeat("trial passed\n", 100)
	if err := os.WriteFile(name, []byte(held), 0o600); err != nil {
		return err
	}
	fillUp(fill)
	if err := os.WriteFile(name, []byte(strings.Repeat(held, 100)), 0o600); !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("on a full disk a file was written: %w", err)
	}
	b, err := os.ReadFile(name)
	if err != nil || strings.HasPrefix(string(b), held) && strings.HasSuffix(string(b), "passed\n") {
		return fmt.Errorf("a file that was written in place on a full disk is whole: %d bytes, %w", len(b), err)
	}
	return errors.Join(os.Remove(name), os.Remove(fill))
}

// fillUp fills the disk to the last byte.
func fillUp(file string) {
	f, err := os.Create(file)
	if err != nil {
		return
	}
	defer f.Close()
	for _, size := range []int{4096, 1} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
	}
}

func writeAttempt(r *store.Run, i int) error {
	a, err := r.Begin(r.Manifest.Trials[i].ID)
	if err != nil {
		return err
	}
	if err = a.Append(record.EventsFile, strings.Repeat("x", 100)); err != nil {
		return errors.Join(err, a.Abandon())
	}
	return a.Publish(result(r, i, record.Passed))
}
