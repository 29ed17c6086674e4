package base

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Beside returns a copy of what lies directly in some folders of root, which are
// given relative to it, parents first: files, links, and folders without their
// content. It leaves out the hidden paths.
//
// It is for folders that have mounts below, of which no overlay can be made.
// Most hold few files. A file on which another is mounted is a file like others.
func (s *State) Beside(root string, folders, hidden []string) (*Copy, error) {
	r := beside{root, folders, hidden}
	return s.get(recipe{kind: "beside" + strings.ReplaceAll(root, "/", "."), fingerprint: r.print, build: r.build})
}

type beside struct {
	root            string
	folders, hidden []string
}

// walk calls do for everything that is copied, folders first.
func (b *beside) walk(do func(rel string, info fs.FileInfo) error) error {
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
			info, err := os.Lstat(filepath.Join(b.root, rel))
			if err != nil || slices.Contains(b.hidden, rel) || strings.Contains(rel, "\n") { // the list cannot hold this name
				continue
			}
			if err = do(rel, info); err != nil {
				return err
			}
		}
	}
	return nil
}

// print returns a fingerprint of the state of the folders.
func (b *beside) print() (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%q\n", b.folders)
	err := b.walk(func(rel string, info fs.FileInfo) error {
		if info.IsDir() {
			fmt.Fprintf(h, "%q\n", rel)
			return nil
		}
		target, _ := os.Readlink(filepath.Join(b.root, rel)) // "" for a file
		fmt.Fprintf(h, "%q %v %d %d %q\n", rel, info.Mode(), info.Size(), info.ModTime().UnixNano(), target)
		return nil
	})
	return hex.EncodeToString(h.Sum(nil))[:16], err
}

func (b *beside) build(tree string, list *bufio.Writer) error {
	return b.walk(func(rel string, info fs.FileInfo) error {
		from, to := filepath.Join(b.root, rel), filepath.Join(tree, rel)
		var err error
		switch {
		case info.IsDir():
			err = os.Mkdir(to, 0o755)
		case info.Mode()&fs.ModeSymlink != 0:
			var target string
			if target, err = os.Readlink(from); err == nil {
				err = os.Symlink(target, to)
			}
		case info.Mode().IsRegular():
			if err = copyRegular(from, to); err == nil {
				err = keepSetID(info, to)
			}
			if err == nil {
				err = os.Chtimes(to, time.Time{}, info.ModTime()) // Python compares it with that of compiled code
			}
		default:
			return nil
		}
		if err != nil {
			return err
		}
		_, err = list.WriteString(rel + "\n")
		return err
	})
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
