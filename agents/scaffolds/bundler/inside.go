package bundler

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// maxFile is the largest file of a bundle that is read, in bytes.
const maxFile = 64 << 20

// readInside reads a regular file below dir. It follows links, but none that
// lead out of dir, because the contents of a bundle may not be trusted.
func readInside(dir, name string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, statErr := f.Stat(); statErr != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(statErr, fmt.Errorf("%s is not a regular file", name))
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s is larger than %d MiB", name, maxFile>>20)
	}
	return b, err
}

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
