package uniclaw

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/task"
)

// maxFiles bounds the files of one task.
const maxFiles = 100_000

// files are the files of a task.
type files struct {
	root     *os.Root
	top      string // their folder, relative to the dataset
	nodes    []node // sorted by path
	byPath   map[string]*node
	problems []task.Problem
	pointers []task.Problem // files whose content is elsewhere
}

// node is a file, a folder or a link.
type node struct {
	path string // relative to top
	mode fs.FileMode
	size int64
	link string
}

// scan lists the files of a task. A task without files has none.
func scan(ctx context.Context, root *os.Root, top string) (*files, error) {
	f := &files{root: root, top: top, byPath: map[string]*node{}}
	if fi, err := root.Lstat(top); errors.Is(err, fs.ErrNotExist) || err == nil && !fi.IsDir() {
		return f, nil
	}
	err := fs.WalkDir(root.FS(), top, func(p string, _ fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil || p == top {
			return err
		}
		if len(f.nodes) >= maxFiles {
			return fmt.Errorf("%s has more than %d files", top, maxFiles)
		}
		return f.add(p)
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(f.nodes, func(a, b node) int { return strings.Compare(a.path, b.path) })
	for i := range f.nodes {
		f.byPath[f.nodes[i].path] = &f.nodes[i]
	}
	return f, nil
}

func (f *files) add(p string) error {
	fi, err := f.root.Lstat(p)
	if err != nil {
		return err
	}
	n := node{path: strings.TrimPrefix(p, f.top+"/"), mode: fi.Mode()}
	switch {
	case fi.Mode().IsRegular():
		n.size = fi.Size()
	case fi.IsDir():
	case fi.Mode()&fs.ModeSymlink != 0:
		if n.link, err = f.root.Readlink(p); err != nil {
			return err
		}
		// A resource is one of the folders in top, or below it, so a link has to
		// stay in the folder that it is in.
		to := path.Join(path.Dir(n.path), n.link)
		folder, _, _ := strings.Cut(n.path, "/")
		if path.IsAbs(n.link) || !strings.HasPrefix(to, folder+"/") {
			f.bad(p, "Link leaves its folder", fmt.Sprintf("It leads to %q. Copy the file, or link to it by a relative path.", n.link))
			return nil
		}
	default:
		f.bad(p, "Not a regular file", fmt.Sprintf("It is of type %s. A task has files, folders and links only.", fi.Mode().Type()))
		return nil
	}
	f.nodes = append(f.nodes, n)
	return nil
}

func (f *files) bad(p, summary, detail string) {
	f.problems = append(f.problems, task.Problem{File: p, Severity: task.Error, Summary: summary, Detail: detail})
}

func (f *files) isDir(p string) bool { return f.byPath[p] != nil && f.byPath[p].mode.IsDir() }

// whole is the folder of all files.
const whole = "."

// below returns what is in a folder, at any depth.
func (f *files) below(dir string) []node {
	if dir == whole {
		return f.nodes
	}
	by := func(n node, p string) int { return strings.Compare(n.path, p) }
	from, _ := slices.BinarySearchFunc(f.nodes, dir+"/", by)
	to, _ := slices.BinarySearchFunc(f.nodes, dir+"0", by) // "0" follows "/"
	return f.nodes[from:to]
}

// entries returns what a resource has of a folder: files, links that stay in it,
// and empty folders.
func (f *files) entries(dir string, wanted func(rel string) bool) []task.Entry {
	var out []task.Entry
	prefix := strings.TrimPrefix(dir+"/", whole+"/")
	for _, n := range f.below(dir) {
		rel := strings.TrimPrefix(n.path, prefix)
		switch {
		case !wanted(rel):
		case n.mode.IsDir():
			if len(f.below(n.path)) == 0 {
				out = append(out, task.Entry{Path: rel, Folder: true, Mode: uint32(n.mode.Perm())})
			}
		case n.link == "":
			out = append(out, task.Entry{Path: rel, Mode: uint32(n.mode.Perm()), Size: n.size})
		case strings.HasPrefix(path.Join(path.Dir(n.path), n.link), prefix):
			out = append(out, task.Entry{Path: rel, Link: n.link, Mode: 0o777})
		default:
			f.bad(path.Join(f.top, n.path), "Link leaves its folder", fmt.Sprintf("It leads to %q, which is not in %s. Copy the file.", n.link, dir))
		}
	}
	return out
}

// pointer begins a file that stands for one that git-LFS holds; such a file is
// small.
var pointer = []byte("version https://git-lfs.github.com/spec/")

const maxPointer = 1024

// digest is over the file of the task and all of its files: names, whether they
// can be executed, link targets and contents. It notes the files that are
// pointers.
func (f *files) digest(ctx context.Context, file string, text []byte) (string, error) {
	h := sha256.New()
	own := sha256.Sum256(text)
	fmt.Fprintf(h, "%s\x00%s\n", file, hex.EncodeToString(own[:]))
	for _, n := range f.nodes {
		switch {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case n.mode.IsDir():
			fmt.Fprintf(h, "d %s\x00\n", n.path)
		case n.link != "":
			fmt.Fprintf(h, "l %s\x00%s\n", n.path, n.link)
		default:
			s, err := f.sum(&n)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(h, "f %t %s\x00%s\n", n.mode&0o111 != 0, n.path, s)
		}
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// sum returns the hex SHA-256 of a file, and notes it if it is a pointer.
func (f *files) sum(n *node) (string, error) {
	p := path.Join(f.top, n.path)
	file, err := f.root.Open(p)
	if err != nil {
		return "", err
	}
	defer file.Close()
	h := sha256.New()
	var head bytes.Buffer
	if _, err = io.Copy(h, io.TeeReader(file, limited{&head, len(pointer)})); err != nil {
		return "", err
	}
	if n.size <= maxPointer && bytes.Equal(head.Bytes(), pointer) {
		f.pointers = append(f.pointers, task.Problem{
			File: p, Line: 1, Severity: task.Error, Summary: "File is a pointer of git-LFS",
			Detail: "Its content was not downloaded: run `git lfs pull` in the dataset.",
		})
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// limited keeps the first bytes that are written to it.
type limited struct {
	b *bytes.Buffer
	n int
}

func (l limited) Write(p []byte) (int, error) {
	l.b.Write(p[:min(len(p), max(0, l.n-l.b.Len()))])
	return len(p), nil
}
