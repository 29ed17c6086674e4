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
)

// OpenUp makes a tree that came out of a sandbox readable and removable, whatever
// modes its files and folders had there. It follows no link.
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
// wrote, into the folder to, with secrets masked. Links and special files are
// left out. It stops at the bounds of an artifact and says so in an error.
func Folder(from, to string, r *redact.Redactor) error {
	root, err := os.OpenRoot(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("keep %s: %w", filepath.Base(to), err)
	}
	defer root.Close()
	var size, files int64
	// Not root.FS, which refuses names that are not UTF-8: what a plugin wrote may
	// have come out of a sandbox.
	return filepath.WalkDir(from, func(full string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		p, err := filepath.Rel(from, full)
		if err != nil {
			return err
		}
		target := filepath.Join(to, p)
		switch {
		case d.IsDir() && p == ".":
			return nil // an empty folder is not kept
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		case !d.Type().IsRegular():
			return nil
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
		if err = copyMasked(root, p, target, info.Size(), r); NoSpace(err) {
			err = errors.Join(err, os.Remove(target)) // the room is needed for the result
		}
		return err
	})
}

func copyMasked(root *os.Root, name, to string, size int64, r *redact.Redactor) error {
	in, err := root.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	const fresh = os.O_CREATE | os.O_TRUNC | os.O_WRONLY
	out, err := os.OpenFile(to, fresh, 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(to), 0o755); err == nil {
			out, err = os.OpenFile(to, fresh, 0o644)
		}
	}
	if err != nil {
		return err
	}
	w := r.Writer(out)
	_, err = io.Copy(w, io.LimitReader(in, size))
	return errors.Join(err, w.Close(), out.Close())
}
