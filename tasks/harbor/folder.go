package harbor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/task"
	taskfolder "github.com/berth-eval/berth/tasks/internal/folder"
)

// Names in a task's folder.
const (
	fileConfig      = "task.toml"
	fileInstruction = "instruction.md"
	fileReadme      = "README.md"
	filePrior       = "trajectory.json"
	dirEnvironment  = "environment"
	dirTests        = "tests"
	dirSolution     = "solution"
	fileActions     = "actions.jsonl"
	dirSteps        = "steps"
	dirWorkdir      = "workdir"
)

// maxText bounds the files that are read whole: configuration, instructions
// and ignore files.
const maxText = 4 << 20

// node is one file, folder or link below a task's folder.
type node struct {
	path string // slash-separated, relative to the task's folder
	mode fs.FileMode
	size int64
	// link is the target of a symbolic link as written, and target the resolved
	// path relative to the task's folder; empty for a broken link.
	link, target string
	toFile       bool // the link leads to a regular file
	// leaves is a sentence that says how the link leads out of the task's
	// folder.
	leaves string
}

// folder is the content of a task's folder. Nothing outside of it is ever
// opened: os.Root refuses links that leave it.
type folder struct {
	root     *os.Root
	nodes    []node // sorted by path
	byPath   map[string]*node
	sums     map[string]string // hex SHA-256 by path
	problems []task.Problem
}

func (f *folder) bad(file, summary, format string, args ...any) {
	f.problems = append(f.problems, task.Problem{
		File: file, Severity: task.Error, Summary: summary, Detail: fmt.Sprintf(format, args...),
	})
}

// unread reports a file that cannot be read.
func (f *folder) unread(file string, err error) {
	p, refused := taskfolder.Problem(err)
	if !refused {
		p = task.Problem{File: file, Severity: task.Error, Summary: "File cannot be read", Detail: err.Error() + "."}
	}
	f.problems = append(f.problems, p)
}

func (f *folder) warn(file, summary, format string, args ...any) {
	f.problems = append(f.problems, task.Problem{
		File: file, Severity: task.Warning, Summary: summary, Detail: fmt.Sprintf(format, args...),
	})
}

// scan lists the parts of the folder that belong to a task, and ignores
// everything else.
func scan(ctx context.Context, root *os.Root) (*folder, error) {
	f := &folder{root: root, byPath: map[string]*node{}, sums: map[string]string{}}
	parts := []string{fileConfig, fileInstruction, fileReadme, filePrior, dirEnvironment, dirTests, dirSolution, dirSteps}
	for _, part := range parts {
		if _, err := root.Lstat(part); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		err := fs.WalkDir(root.FS(), part, func(p string, _ fs.DirEntry, err error) error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				return err
			}
			return f.add(p)
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(f.nodes, func(a, b node) int { return strings.Compare(a.path, b.path) })
	for i := range f.nodes {
		f.byPath[f.nodes[i].path] = &f.nodes[i]
	}
	return f, nil
}

func (f *folder) add(p string) error {
	fi, err := f.root.Lstat(p)
	if err != nil {
		return err
	}
	n := node{path: p, mode: fi.Mode()}
	switch {
	case fi.Mode().IsRegular():
		n.size = fi.Size()
	case fi.IsDir():
	case fi.Mode()&fs.ModeSymlink != 0:
		if n.link, err = f.root.Readlink(p); err != nil {
			return err
		}
		f.follow(&n)
	default:
		f.bad(p, "Not a regular file", "It is of type %s. A task holds files, folders and links only.", fi.Mode().Type())
		return nil
	}
	f.nodes = append(f.nodes, n)
	return nil
}

// follow resolves a link.
func (f *folder) follow(n *node) {
	to := path.Join(path.Dir(n.path), n.link)
	if path.IsAbs(n.link) || to == ".." || strings.HasPrefix(to, "../") {
		n.leaves = fmt.Sprintf("It leads to %q. Copy the file, or link to it by a relative path.", n.link)
		return
	}
	fi, err := f.root.Stat(n.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		n.leaves = fmt.Sprintf("It leads to %q by way of another link: %v.", n.link, err)
	default:
		n.target, n.toFile = to, fi.Mode().IsRegular()
	}
}

// isFile reports whether p is a regular file, or a link to one.
func (f *folder) isFile(p string) bool {
	n := f.byPath[p]
	return n != nil && (n.mode.IsRegular() || n.toFile)
}

func (f *folder) isDir(p string) bool {
	n := f.byPath[p]
	return n != nil && n.mode.IsDir()
}

// below returns the nodes under a folder, without the folder itself.
// The result is part of f and must not be changed.
func (f *folder) below(dir string) []node {
	if dir == "." {
		return f.nodes
	}
	by := func(n node, p string) int { return strings.Compare(n.path, p) }
	from, _ := slices.BinarySearchFunc(f.nodes, dir+"/", by)
	to, _ := slices.BinarySearchFunc(f.nodes, dir+"0", by) // "0" follows "/"
	return f.nodes[from:to]
}

// read returns a file of at most maxText bytes, without a byte order mark.
func (f *folder) read(p string) ([]byte, error) {
	data, err := taskfolder.Read(f.root, p, maxText)
	data, marked := taskfolder.Unmarked(p, data)
	if marked != nil && !bytes.HasPrefix(data, []byte("#!")) && !slices.Contains(f.problems, *marked) {
		f.problems = append(f.problems, *marked)
	}
	return data, err
}

// sum returns the hex SHA-256 of a file's content.
func (f *folder) sum(ctx context.Context, p string) (string, error) {
	if s, ok := f.sums[p]; ok {
		return s, nil
	}
	s, bad, err := taskfolder.Sum(ctx, f.root, p)
	if err != nil {
		return "", err
	}
	if bad != nil {
		f.problems = append(f.problems, *bad)
	}
	f.sums[p] = s
	return s, nil
}
