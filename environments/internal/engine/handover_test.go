package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/environment"
)

// folders is an engine of which each container has a folder.
type folders struct {
	Engine

	dir       string
	busy      bool // folders cannot be exchanged
	committed *[]string
	removed   *[]string
}

func (f folders) files(name string) string { return filepath.Join(f.dir, name, "diff") }
func (f folders) Create(_ context.Context, c Container) error {
	return errors.Join(os.MkdirAll(filepath.Dir(f.files(c.Name)), 0o755), os.Mkdir(f.files(c.Name), 0o555))
}
func (f folders) Unmount(context.Context, string) error     { return nil }
func (f folders) RemoveImage(context.Context, string) error { return nil }
func (f folders) Inspect(_ context.Context, ref string) (Image, error) {
	return Image{ID: "sha256:" + ref}, nil
}

func (f folders) State(_ context.Context, name string) (State, error) {
	if f.busy {
		return State{}, nil
	}
	return State{Files: f.files(name), Running: true}, nil
}

func (f folders) Commit(_ context.Context, name, image string) error {
	if _, err := os.Stat(f.files(name)); err != nil {
		return ErrAbsent
	}
	*f.committed = append(*f.committed, image)
	return nil
}

func (f folders) Remove(_ context.Context, name string) error {
	*f.removed = append(*f.removed, name)
	_ = os.Chmod(f.files(name), 0o755) //nolint:gosec // so that it can be removed
	return os.RemoveAll(filepath.Join(f.dir, name))
}

// snapshotOf makes a snapshot of a stopped sandbox "berth-1" with one file.
func snapshotOf(t *testing.T, f folders) (*Environment, *remote, environment.Image) {
	t.Helper()
	e := New(Options{Dial: func(string) (Engine, error) { return f, nil }, Default: func() (string, error) { return "unix:///none", nil }})
	r, err := e.at(Config{})
	if err != nil {
		t.Fatal(err)
	}
	err = f.Create(t.Context(), Container{Name: "berth-1"})
	if err == nil {
		err = os.Chmod(f.files("berth-1"), 0o755) //nolint:gosec // as engines have it
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(f.files("berth-1"), "work"), nil, 0o600)
	}
	if err == nil {
		err = os.Chmod(f.files("berth-1"), 0o555) //nolint:gosec // as images have it
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(f.files("berth-1"), 0o755) }) //nolint:gosec // so that it can be removed
	e.keep("berth-1", "sha256:image", State{Files: f.files("berth-1")}, parts{})
	b := e.boxes["berth-1"]
	b.used = &environment.Remains{PeakMemoryMiB: 7} // by Stop
	e.boxes["berth-1"] = b
	im, err := e.Snapshot(t.Context(), "berth-1")
	if err != nil {
		t.Fatal(err)
	}
	return e, r, im
}

// The files of a stopped sandbox are in the one that is made on its snapshot,
// whether they were handed over or copied, and the stopped one is removed after
// that, also if it was destroyed before.
func TestFilesAreHandedOver(t *testing.T) {
	t.Parallel()
	for name, busy := range map[string]bool{"handed over": false, "copied": true} {
		var committed, removed []string
		f := folders{dir: t.TempDir(), busy: busy, committed: &committed, removed: &removed}
		e, r, im := snapshotOf(t, f)
		if used, err := e.Destroy(t.Context(), "berth-1"); err != nil || used.PeakMemoryMiB != 7 {
			t.Fatalf("%s: destroy: %+v, %v", name, used, err)
		}
		if got := r.listed("berth-1"); got != im.Ref || len(removed) > 0 {
			t.Errorf("%s: listed as %q, removed %q; the snapshot %q has its files", name, got, removed, im.Ref)
		}
		c := Container{Name: "berth-2", Image: "sha256:image", on: r.handover(im.Ref)}
		if err := e.make(t.Context(), r, c); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_, missing := os.Stat(filepath.Join(f.files("berth-2"), "work"))
		info, err := os.Stat(f.files("berth-2"))
		if err != nil || info.Mode().Perm() != 0o555 || (missing != nil) != busy || len(committed) > 0 != busy {
			t.Errorf("%s: %v, %v, %v; images %q", name, info, err, missing, committed)
		}
		c.Name = "berth-3"
		if err := e.make(t.Context(), r, c); !errors.Is(err, environment.ErrNoSandbox) || !strings.Contains(err.Error(), "another sandbox") {
			t.Errorf("%s: a second time: %v", name, err)
		}
		if _, err := e.Destroy(t.Context(), im.Ref); err != nil || !slices.Contains(removed, "berth-1") || len(e.boxes) > 0 || r.handover(im.Ref) != nil {
			t.Errorf("%s: drop: %v; removed %q, boxes %v", name, err, removed, e.boxes)
		}
		e.Close()
		_ = f.Remove(t.Context(), "berth-2")
	}
}

// A snapshot that nobody uses is dropped with the sandbox that was destroyed, and
// without one that was not.
func TestASnapshotThatIsNotUsed(t *testing.T) {
	t.Parallel()
	for _, destroyed := range []bool{true, false} {
		var committed, removed []string
		e, _, im := snapshotOf(t, folders{dir: t.TempDir(), committed: &committed, removed: &removed})
		if destroyed {
			if _, err := e.Destroy(t.Context(), "berth-1"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := e.Destroy(t.Context(), im.Ref); err != nil || slices.Contains(removed, "berth-1") != destroyed {
			t.Errorf("destroyed %v: %v, removed %q", destroyed, err, removed)
		}
	}
}

// A sandbox that was lost after its snapshot was made has no files to hand over.
func TestASnapshotOfALostSandbox(t *testing.T) {
	t.Parallel()
	var committed, removed []string
	f := folders{dir: t.TempDir(), committed: &committed, removed: &removed}
	e, r, im := snapshotOf(t, f)
	if err := f.Remove(t.Context(), "berth-1"); err != nil {
		t.Fatal(err)
	}
	err := e.make(t.Context(), r, Container{Name: "berth-2", on: r.handover(im.Ref)})
	if !errors.Is(err, environment.ErrNoSandbox) {
		t.Errorf("got %v", err)
	}
	if !slices.Contains(removed, "berth-2") {
		t.Errorf("removed %q; want the new container in it", removed)
	}
}
