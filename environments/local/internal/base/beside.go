package base

import (
	"bufio"
	"errors"
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
