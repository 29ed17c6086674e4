package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-eval/berth/core/plugin"
)

// copyPlugin copies the plugin at path, a file or folder with the name of a plugin,
// into the folder dir, and returns where it is. Of a folder it copies what the
// digest covers: files that links lead to become files. Only the owner can write
// to the copy. It fails with fs.ErrExist if the name is taken in dir.
func copyPlugin(path, dir string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	to := filepath.Join(dir, filepath.Base(path))
	return to, plugin.Walk(path, func(from, name string, info fs.FileInfo) error {
		target := filepath.Join(to, name)
		if info.IsDir() {
			return os.Mkdir(target, 0o755)
		}
		mode := fs.FileMode(0o644)
		if info.Mode()&0o111 != 0 {
			mode = 0o755
		}
		return copyFile(from, target, mode)
	})
}

func copyFile(from, to string, mode fs.FileMode) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err = io.Copy(out, in); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return out.Chmod(mode) // whatever the umask says
}
