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
	"slices"
	"strings"
	"syscall"
	"time"

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

// Beside returns a copy of what lies directly in some folders of root, which are
// given relative to it, parents first: files, links, and folders without their
// content. It leaves out the hidden paths.
//
// It is for folders that have mounts below, of which no overlay can be made.
// Most hold few files. A file on which another is mounted is a file like others.
func (s *State) Beside(root string, folders, hidden []string) (*Copy, error) {
	b := beside{root, folders, hidden}
	return s.get(recipe{
		kind:        "beside" + strings.ReplaceAll(root, "/", "."),
		fingerprint: func() (string, error) { return fingerprint(b.walk, folders) },
		build: func(tree string, list *bufio.Writer) error {
			return copyAll(b.walk, tree, list, func(info fs.FileInfo, to string) error {
				return errors.Join(keepSetID(info, to), os.Chtimes(to, time.Time{}, info.ModTime())) // Python compares it with that of compiled code
			})
		},
	})
}

type beside struct {
	root            string
	folders, hidden []string
}

// walk calls do for everything that is copied, folders first.
func (b beside) walk(do visit) error {
	for _, folder := range b.folders {
		entries, err := os.ReadDir(filepath.Join(b.root, folder))
		if unreadable(err) {
			continue
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			rel := filepath.Join(folder, e.Name())
			from := filepath.Join(b.root, rel)
			info, err := os.Lstat(from)
			if err != nil || slices.Contains(b.hidden, rel) || strings.Contains(rel, "\n") { // the list cannot hold this name
				continue
			}
			if err = do(from, rel, info); err != nil {
				return err
			}
		}
	}
	return nil
}

// keepSetID gives a copy the set-user-ID bit of its original if both have the same
// owner, and the set-group-ID bit if they have the same group. A copy belongs to the
// user who made it: su and sudo keep their bit in root's. With another owner, the bit
// would make a program run as a user that its author did not mean. An ordinary user's
// sandbox has no such programs in any of its folders, because none of their owners
// exists in it.
func keepSetID(original fs.FileInfo, to string) error {
	copied, err := os.Lstat(to)
	if err != nil {
		return err
	}
	was, ok := original.Sys().(*syscall.Stat_t)
	is, same := copied.Sys().(*syscall.Stat_t)
	if !ok || !same {
		return nil
	}
	bits := original.Mode() & (fs.ModeSetuid | fs.ModeSetgid)
	if was.Uid != is.Uid {
		bits &^= fs.ModeSetuid
	}
	if was.Gid != is.Gid {
		bits &^= fs.ModeSetgid
	}
	if bits == 0 {
		return nil
	}
	return os.Chmod(to, copied.Mode()|bits)
}

// WriteWhole writes a file that is either complete or does not exist, even if we are
// killed. It is not synced to disk. What it leaves then begins with "new-".
func WriteWhole(name string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(name), "new-")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}
