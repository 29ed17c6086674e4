package collect

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-eval/berth/core/redact"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// OpenUp makes a tree from a sandbox readable and removable, whatever the modes
// of its files and folders were. It follows no links.
func OpenUp(dir string) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case d.IsDir():
			return os.Chmod(p, 0o700)
		case d.Type().IsRegular():
			return os.Chmod(p, 0o600)
		default:
			return nil
		}
	})
}

// Folder copies the regular files below a folder of the host, which a plugin
// wrote, to the folder to, with secrets masked. It leaves out links and special
// files, and stops with an error at the bounds of an artifact.
func Folder(from, to string, r *redact.Redactor) error {
	var size, files int64
	return Walk(from, func(root *os.Root, p string, d fs.DirEntry) error {
		target := filepath.Join(to, p)
		if d.IsDir() {
			if p == "." {
				return nil // without a file, there is no folder
			}
			return os.MkdirAll(target, 0o755)
		}
		if files++; files > limits.ArtifactEntries {
			return fmt.Errorf("keep %s: more than %d files", filepath.Base(to), int64(limits.ArtifactEntries))
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if size += info.Size(); size > limits.ArtifactBytes { // also if it is sparse
			return fmt.Errorf("keep %s: more than %d bytes", filepath.Base(to), int64(limits.ArtifactBytes))
		}
		if err = copyMasked(root, p, target, info, r); untrusted.NoSpace(err) {
			err = errors.Join(err, os.Remove(target)) // the result needs the space
		}
		return err
	})
}

// Walk calls each for the folders and regular files below a folder, and for the folder
// itself. It leaves out links and special files. A missing folder is empty. root.FS
// would refuse names that are not UTF-8, and they may come from a sandbox.
func Walk(from string, each func(root *os.Root, path string, d fs.DirEntry) error) error {
	root, err := os.OpenRoot(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return filepath.WalkDir(from, func(full string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() && !d.Type().IsRegular() {
			return err
		}
		p, err := filepath.Rel(from, full)
		if err != nil {
			return err
		}
		return each(root, p, d)
	})
}

func copyMasked(root *os.Root, name, to string, info fs.FileInfo, r *redact.Redactor) error {
	in, err := root.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	if err = os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644|info.Mode()&0o111)
	if err != nil {
		return err
	}
	w := r.Writer(out)
	_, err = io.Copy(w, io.LimitReader(in, info.Size()))
	return errors.Join(err, w.Close(), out.Close())
}
