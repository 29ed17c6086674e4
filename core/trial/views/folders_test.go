package views_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-eval/berth/core/trial/views"
	"github.com/berth-eval/berth/internal/testlevel"
)

func TestAViewThatIsTooLargeForMemoryIsMadeOnTheDisk(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	f := views.Folders{Runtime: filepath.Join(top, "memory"), Disk: filepath.Join(top, "disk")}
	testlevel.Must(t, views.Make(f.Runtime))
	for name, fits := range map[string]bool{"small": true, "large": false} {
		dir, err := f.View(name, func(dir string, room *views.Room) error {
			if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "f"), nil, 0o600)); err != nil {
				return err
			}
			if room != nil && !fits {
				return views.ErrNoRoom
			}
			return nil
		})
		want := filepath.Join(f.Disk, name)
		if fits && !f.Tight() { // a machine may be short of memory
			want = filepath.Join(f.Runtime, name)
		}
		if _, statErr := os.Stat(filepath.Join(dir, "f")); err != nil || dir != want || statErr != nil {
			t.Errorf("%s: %s, %v, %v, want %s", name, dir, err, statErr, want)
		}
	}
	if _, err := os.Stat(filepath.Join(f.Runtime, "large")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what did not fit is still in memory: %v", err)
	}
	testlevel.Must(t, f.Remove())
	if left, err := os.ReadDir(top); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestWithoutADiskAllIsInOnePlace(t *testing.T) {
	t.Parallel()
	f := views.Folders{Runtime: t.TempDir()}
	dir, err := f.Large("logs")
	if want := filepath.Join(f.Runtime, "logs"); err != nil || dir != want {
		t.Errorf("disk: %s, %v, want %s", dir, err, want)
	}
	dir, err = f.View("v", func(_ string, room *views.Room) error {
		if room != nil {
			t.Errorf("the view may have %d bytes only, although there is no other place for it", room.Left)
		}
		return nil
	})
	if want := filepath.Join(f.Runtime, "v"); err != nil || dir != want {
		t.Errorf("view: %s, %v, want %s", dir, err, want)
	}
}
