package base

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// visit is called for a file, a link or a folder of the host. rel is its path in a
// copy.
type visit func(path, rel string, info fs.FileInfo) error

// fingerprint identifies the state of what walk visits. also is what else a copy
// depends on.
func fingerprint(walk func(visit) error, also ...any) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, also...)
	err := walk(func(path, rel string, info fs.FileInfo) error {
		if info.IsDir() {
			fmt.Fprintf(h, "%q\n", rel) // without its time, which also changes with what is left out
			return nil
		}
		target, _ := os.Readlink(path) // "" for a file
		fmt.Fprintf(h, "%q %v %d %d %q\n", rel, info.Mode(), info.Size(), info.ModTime().UnixNano(), target)
		return nil
	})
	return hex.EncodeToString(h.Sum(nil))[:16], err
}

// copyAll copies what walk visits, and calls finish, which may be nil, for each copy of
// a regular file.
func copyAll(walk func(visit) error, tree string, list *bufio.Writer, finish func(original fs.FileInfo, to string) error) error {
	return walk(func(path, rel string, info fs.FileInfo) error {
		to := filepath.Join(tree, rel)
		var err error
		switch {
		case info.IsDir():
			err = os.Mkdir(to, 0o755)
		case info.Mode()&fs.ModeSymlink != 0:
			var target string
			if target, err = os.Readlink(path); err == nil {
				err = os.Symlink(target, to)
			}
		case info.Mode().IsRegular():
			if err = copyRegular(path, to); err == nil && finish != nil {
				err = finish(info, to)
			}
		default:
			return nil
		}
		if err == nil {
			_, err = list.WriteString(rel + "\n")
		}
		return err
	})
}

// copyRegular copies one file. A file that is being replaced at this moment is
// left out; the replacement changes the fingerprint.
func copyRegular(from, to string) error {
	fd, err := unix.Open(from, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return os.WriteFile(to, nil, 0o644)
	}
	in := os.NewFile(uintptr(fd), from)
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return os.WriteFile(to, nil, 0o644)
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm()|0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
