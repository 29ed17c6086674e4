package bundler

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// linksInside removes links that lead out of a bundle through other links.
func linksInside(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.Type() != fs.ModeSymlink {
			return err
		}
		_, err = root.Stat(filepath.FromSlash(name))
		if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENOTDIR) {
			return nil
		}
		return root.Remove(filepath.FromSlash(name))
	})
}
