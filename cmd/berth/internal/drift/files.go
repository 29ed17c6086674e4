package drift

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/berth-eval/berth/core/store"
)

// ChangedFiles lists the files of the experiment that are not as they were when
// the run in dir was made: one line for each, sorted.
func ChangedFiles(dir string, m *store.Manifest) ([]string, error) {
	top := filepath.Join(dir, m.Header.Folder())
	missing := maps.Clone(m.Header.Files)
	var changed []string
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		want, known := m.Header.Files[name]
		delete(missing, name)
		switch {
		case !d.Type().IsRegular():
			changed = append(changed, name+": is not a regular file")
			return nil
		case !known:
			changed = append(changed, name+": was added")
			return nil
		}
		got, err := store.SumOf(path)
		if err == nil && got != want {
			changed = append(changed, name+": was changed")
		}
		return err
	})
	for name := range missing {
		changed = append(changed, name+": is missing")
	}
	slices.Sort(changed)
	return changed, err
}

// EditedFiles lists the files of the experiment that differ, where they were read,
// from the copies that the run stored, sorted. A file that is gone is not listed.
func EditedFiles(m *store.Manifest) []string {
	var edited []string
	for name, stored := range m.Header.Files {
		if local := filepath.FromSlash(name); m.Header.Dir != "" && filepath.IsLocal(local) {
			if now, err := store.SumOf(filepath.Join(m.Header.Dir, local)); err == nil && now != stored {
				edited = append(edited, name)
			}
		}
	}
	slices.Sort(edited)
	return edited
}

// Untrusted fails if anybody but this user and root can decide what the run in dir
// does when it is resumed: because a file or folder of it belongs to another user,
// or because others can write to it.
func Untrusted(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	// Who can write to the folder above it can put another one in its place.
	above, err := os.Stat(filepath.Dir(dir))
	switch {
	case err != nil:
		return err
	case above.Mode().Perm()&0o002 != 0 && above.Mode()&fs.ModeSticky == 0:
		return fmt.Errorf("%s, in which the run is, can be written to by others (mode %#o)", filepath.Dir(dir), above.Mode().Perm())
	}
	for _, name := range []string{".", store.ManifestFile, store.JournalDir, store.TrialsDir} {
		if err = onlyOurs(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, sub := range []string{store.ExperimentDir, store.JournalDir} {
		err = filepath.WalkDir(filepath.Join(dir, sub), func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return onlyOurs(path)
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// onlyOurs fails if others can write to a file or folder.
func onlyOurs(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a link", path)
	case ok && st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d", path, st.Uid)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s can be written to by others (mode %#o)", path, info.Mode().Perm())
	}
	return nil
}
