package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/environments/local/internal/modetest"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
)

// A full disk is a lack of room, unless a sandbox with much in it filled it.
func TestASnapshotOnAFullDisk(t *testing.T) {
	testlevel.Root(t, "mount a small disk")
	small := t.TempDir()
	if err := unix.Mount("none", small, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=20m"); err != nil {
		testlevel.Cannot(t, testlevel.NoMounts, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(small, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	top, err := os.MkdirTemp("", "bl") //nolint:usetesting // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	binary, _, err := host.Install(filepath.Join(top, "bin"), filepath.Join(modetest.Tools, "berth-sandboxd"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		filled, written int // MiB: before the snapshot, and in the sandbox
		want            error
	}{
		{0, 1, nil},
		{19, 3, environment.ErrNoCapacity},
		{0, 40, environment.ErrRefused},
	} {
		t.Run(fmt.Sprintf("%d and %d MiB", tt.filled, tt.written), func(t *testing.T) {
			filler := filepath.Join(small, "filler")
			if err := os.WriteFile(filler, make([]byte, tt.filled<<20), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := snapshotOf(t, binary, small, tt.written); !errors.Is(err, tt.want) {
				t.Errorf("%v; want %v", err, tt.want)
			}
			if left, err := os.ReadDir(small); err != nil || len(left) != 1 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}

// snapshotOf makes a snapshot, in a folder, of a sandbox in which a file was written.
func snapshotOf(t *testing.T, sandboxd, dir string, mib int) error {
	t.Helper()
	e := made(t)
	f, err := host.NewFolder(filepath.Join(filepath.Dir(filepath.Dir(sandboxd)), "c"), sandboxd)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	spec := environment.Spec{Network: environment.Network{Mode: environment.NetworkNone}, Control: f.Path, Lease: time.Minute}
	box, err := e.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	core, err := host.Connect(t.Context(), f, box.PID, spec.Lease)
	if err != nil {
		t.Fatal(err)
	}
	defer core.Close()
	shell, err := core.Shell(t.Context(), host.Session{ID: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer shell.Close()
	out, err := shell.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x > /opt/file", mib<<20)}})
	if err != nil || !out.OK() {
		t.Fatal(out, err)
	}
	if err = e.Stop(t.Context(), box.ID); err != nil {
		t.Fatal(err)
	}
	e.images.dir = func() (string, error) { return dir, nil }
	im, err := e.Snapshot(t.Context(), box.ID)
	if err == nil {
		_, err = e.Destroy(t.Context(), im.Ref)
	}
	return err
}
