package faults

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// diskEnv makes a shepherd create a small disk first, in its own namespaces.
// Its value is "folder|size".
const diskEnv = "BERTH_E2E_DISK"

func smallDisk(spec string) error {
	dir, size, ok := strings.Cut(spec, "|")
	if !ok {
		return nil
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("no mounts of our own: %w", err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil && !errors.Is(err, syscall.EBUSY) {
		return fmt.Errorf("no small disk: %w", err)
	}
	if os.Getuid() == 0 {
		return nil
	}
	// An ordinary user was given a capability for this. The command must not
	// have it: it would inherit it from the thread that starts it.
	runtime.LockOSThread()
	return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
}

// ownMounts starts a shepherd in namespaces in which smallDisk can mount.
func ownMounts(c *exec.Cmd) {
	a := c.SysProcAttr
	if a.Cloneflags = syscall.CLONE_NEWNS; os.Getuid() == 0 {
		return
	}
	a.Cloneflags |= syscall.CLONE_NEWUSER
	one := func(id int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: id, HostID: id, Size: 1}}
	}
	a.UidMappings, a.GidMappings, a.AmbientCaps = one(os.Getuid()), one(os.Getgid()), []uintptr{unix.CAP_SYS_ADMIN}
}

// If the disk is full, a run ends with a clear error and keeps all results. It
// can be resumed when there is space again.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	const trials = 40
	p.task("tiny", "", e2etest.SolveTiny, e2etest.TestTiny)
	p.experiment(fmt.Sprintf("repeat = %d\n  matrix {\n    agent = [agent.oracle]\n  }", trials), "")
	e2etest.Must(t, os.Mkdir(filepath.Join(p.dir, "runs"), 0o700))
	p.write("script.sh", `
set -u
head -c 15m /dev/zero > runs/.fill
"$1" run . > first.out 2> first.err
echo $? > first.code
mkdir first second
cp -a runs/*/. first/
"$1" show runs/* --json > shown.json || { cat first.err >&2; exit 1; }
rm runs/.fill # there is room
"$1" resume runs/* > second.out 2> second.err
echo $? > second.code
cp -a runs/*/. second/
`)
	s := p.shepherd(ownMounts, []string{diskEnv + "=runs|16m"}, "/bin/sh", "script.sh", filepath.Join(bin, "berth"))
	s.wait().want(t, 0)
	file := func(name string) string { return strings.TrimSpace(read(filepath.Join(p.dir, name))) }

	first := p.sound(filepath.Join(p.dir, "first"))
	if file("first.code") != "3" || !strings.Contains(file("first.err"), "no space left on device") {
		t.Errorf("on a full disk berth ended with %s, want 3 and the reason:\n%s", file("first.code"), file("first.err"))
	}
	before := published(t, filepath.Join(p.dir, "first"))
	done := first.Summary.Outcomes[record.Passed]
	if done == 0 || done == trials {
		t.Errorf("%d of %d trials passed before the disk was full", done, trials)
	}
	second := p.settled(filepath.Join(p.dir, "second"))
	if file("second.code") != "0" || second.Summary.Outcomes[record.Passed] != trials || second.Damaged != 0 {
		t.Errorf("with room again berth ended with %s, %v, %d damaged lines:\n%s", file("second.code"), second.Summary.Outcomes, second.Damaged, file("second.err"))
	}
	after := published(t, filepath.Join(p.dir, "second"))
	if len(after) != second.Summary.Attempts {
		t.Errorf("%d results, %d attempts in the summary", len(after), second.Summary.Attempts)
	}
	for f, b := range before {
		if again := after[strings.Replace(f, "/first/", "/second/", 1)]; !bytes.Equal(again, b) {
			t.Errorf("%s was published and is not as it was", f)
		}
	}
	endedOnce(t, filepath.Join(p.dir, "second"))
	p.clean()
}
