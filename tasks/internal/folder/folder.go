// Package folder reads the files of a task, and lists them for its resources and
// its digest. What must not be carried into a sandbox is a problem: links that leave
// their folder, pipes and devices, and files that are pointers of git-LFS.
//
// It must not know any task format.
package folder

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
	"syscall"

	"github.com/berth-eval/berth/plugins/task"
)

// maxFiles bounds the files of one task.
const maxFiles = 1_000_000

// Read returns a regular file of at most limit bytes, which are whole MiB. It
// follows links that stay in root. Fails for a pointer of git-LFS.
func Read(root *os.Root, name string, limit int64) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not block
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, &refused{name, "is not a regular file"}
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	switch {
	case err != nil:
	case int64(len(data)) > limit:
		err = &refused{name, fmt.Sprintf("is larger than %d MiB", limit>>20)}
	default:
		err = NoPointer(name, data)
	}
	return data, err
}

// pointerText begins a file that stands for one that Git LFS holds; such a file has at
// most maxPointer bytes.
const (
	pointerText = "version https://git-lfs.github.com/spec/"
	maxPointer  = 1024
)

// NoPointer fails like [Read] if the content of a file stands for one that Git LFS
// holds.
func NoPointer(name string, data []byte) error {
	if len(data) <= maxPointer && bytes.HasPrefix(data, []byte(pointerText)) {
		return &refused{name, "is a pointer of git-LFS, and its content was not downloaded: run `git lfs pull` in the dataset"}
	}
	return nil
}

// mark is the byte order mark that some editors write at the beginning of a text.
const mark = "\ufeff"

// Unmarked returns a text without a byte order mark, and the problem of a text that has
// one; nil: it has none. The file itself stays as it is.
func Unmarked(name string, data []byte) ([]byte, *task.Problem) {
	rest, found := bytes.CutPrefix(data, []byte(mark))
	if !found {
		return data, nil
	}
	return rest, &task.Problem{
		File: name, Line: 1, Column: 1, Severity: task.Warning, Summary: "Byte order mark",
		Detail: "The file begins with a byte order mark (BOM), which was left out. Save it as UTF-8 without BOM.",
	}
}

// NUL returns the line of the first NUL byte of a text; 0: it has none.
func NUL(data []byte) int {
	before, _, found := bytes.Cut(data, []byte{0})
	if !found {
		return 0
	}
	return bytes.Count(before, []byte("\n")) + 1
}

// script returns the problem of the first bytes of a script with a line #!; nil: it has
// none, or is not a script. Linux looks for an interpreter whose name ends with a
// carriage return, and finds none.
func script(name string, head []byte) *task.Problem {
	p := &task.Problem{File: name, Line: 1, Severity: task.Warning}
	text := bytes.TrimPrefix(head, []byte(mark))
	first, _, _ := bytes.Cut(text, []byte("\n"))
	switch {
	case !bytes.HasPrefix(text, []byte("#!")):
		return nil
	case len(text) < len(head):
		p.Summary, p.Detail = "Script begins with a byte order mark", "Linux does not find its #! behind the mark (BOM), and another shell may run it. Save it as UTF-8 without BOM."
	case bytes.HasSuffix(first, []byte("\r")):
		p.Summary = "Script has line ends of Windows"
		p.Detail = fmt.Sprintf("Its first line is %q: Linux finds no interpreter of that name, and a shell takes the carriage returns for parts of commands. Save it with LF.", first)
	case bytes.Contains(text, []byte("\r\n")):
		p.Line += bytes.Count(text[:bytes.Index(text, []byte("\r\n"))], []byte("\n"))
		p.Summary, p.Detail = "Script has line ends of Windows", "A shell takes the carriage return at the end of this line for a part of the command. Save it with LF."
	default:
		return nil
	}
	return p
}

// refused is why the content of a file is not read.
type refused struct{ file, why string }

func (r *refused) Error() string { return r.file + " " + r.why }

// Result is what Load returns of a task that was read, or not, from a file or folder:
// no task if it is broken.
func Result(file string, t *task.Task, ps []task.Problem, err error) (*task.Task, []task.Problem, error) {
	if p, ok := Problem(err); ok {
		return nil, append(ps, p), nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read task %s: %w", file, err)
	}
	if t != nil && !task.Broken(ps) {
		ps = append(ps, t.Validate()...)
	}
	if task.Broken(ps) {
		t = nil
	}
	return t, ps, nil
}

// Problem returns the problem of the file that [Read] refused with an error; ok is
// false for any other error.
func Problem(err error) (p task.Problem, ok bool) {
	r, ok := errors.AsType[*refused](err)
	if !ok {
		return p, false
	}
	return task.Problem{File: r.file, Line: 1, Severity: task.Error, Summary: "File cannot be read", Detail: "It " + r.why + "."}, true
}

// Files are the files of a folder.
type Files struct {
	Root     *os.Root
	Top      string // the folder, relative to the root
	ByPath   map[string]*Node
	Problems []task.Problem
	Contents []task.Problem // of what the files hold; Sum finds them

	nodes []Node            // sorted by path
	sums  map[string]string // by path
}

// Node is a file, a folder or a link.
type Node struct {
	Path string // relative to Files.Top
	Mode fs.FileMode
	Size int64 // bytes
	// Link is the target of a link as written, and Target its path relative to
	// Files.Top; empty for a broken link.
	Link, Target string
	ToFile       bool   // the link leads to a regular file
	Leaves       string // a sentence: how the link leads out of the folder
}

// Scan lists the files of a folder, which is one resource, and reports the links that
// lead out of it.
func Scan(ctx context.Context, root *os.Root, top string) (*Files, error) {
	f, err := List(ctx, root, top)
	if err == nil {
		f.Leaving(func(*Node) bool { return false })
	}
	return f, err
}

// ScanParts is Scan for a folder whose own folders are resources: a link has to
// stay in the one that it is in.
func ScanParts(ctx context.Context, root *os.Root, top string) (*Files, error) {
	f, err := List(ctx, root, top)
	if err != nil {
		return nil, err
	}
	for i := range f.nodes {
		n := &f.nodes[i]
		part, _, _ := strings.Cut(n.Path, "/")
		if n.Link != "" && !strings.HasPrefix(path.Join(path.Dir(n.Path), n.Link), part+"/") {
			n.Leaves = leaves(n.Link)
		}
	}
	f.Leaving(func(*Node) bool { return false })
	return f, nil
}

// List lists the files of a folder, or the named parts of it. A folder that does not
// exist has none. Nothing outside of root is ever opened.
func List(ctx context.Context, root *os.Root, top string, parts ...string) (*Files, error) {
	f := &Files{Root: root, Top: top, ByPath: map[string]*Node{}, sums: map[string]string{}}
	if len(parts) == 0 {
		parts = []string{Whole}
	}
	for _, part := range parts {
		part = path.Join(top, part)
		if fi, err := root.Lstat(part); errors.Is(err, fs.ErrNotExist) || err == nil && part == top && !fi.IsDir() {
			continue
		}
		err := fs.WalkDir(root.FS(), part, func(p string, _ fs.DirEntry, err error) error {
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case err != nil || p == top:
				return err
			case len(f.nodes) >= maxFiles:
				return fmt.Errorf("%s has more than %d files", top, maxFiles)
			}
			return f.add(p)
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(f.nodes, func(a, b Node) int { return strings.Compare(a.Path, b.Path) })
	for i := range f.nodes {
		f.ByPath[f.nodes[i].Path] = &f.nodes[i]
	}
	return f, nil
}

func (f *Files) add(p string) error {
	fi, err := f.Root.Lstat(p)
	if err != nil {
		return err
	}
	n := Node{Path: strings.TrimPrefix(p, f.Top+"/"), Mode: fi.Mode()}
	switch {
	case fi.Mode().IsRegular():
		n.Size = fi.Size()
	case fi.IsDir():
	case fi.Mode()&fs.ModeSymlink != 0:
		if n.Link, err = f.Root.Readlink(p); err != nil {
			return err
		}
		f.follow(&n)
	default:
		f.bad(p, "Not a regular file", fmt.Sprintf("It is of type %s. A task has files, folders and links only.", fi.Mode().Type()))
		return nil
	}
	f.nodes = append(f.nodes, n)
	return nil
}

func leaves(link string) string {
	return fmt.Sprintf("It leads to %q. Copy the file, or link to it by a relative path.", link)
}

// follow resolves a link.
func (f *Files) follow(n *Node) {
	to := path.Join(path.Dir(n.Path), n.Link)
	if path.IsAbs(n.Link) || to == ".." || strings.HasPrefix(to, "../") {
		n.Leaves = leaves(n.Link)
		return
	}
	fi, err := f.Root.Stat(path.Join(f.Top, n.Path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		n.Leaves = fmt.Sprintf("It leads to %q by way of another link: %v.", n.Link, err)
	default:
		n.Target, n.ToFile = to, fi.Mode().IsRegular()
	}
}

// Leaving reports the links that lead out of the folder, without those that nobody
// will look at.
func (f *Files) Leaving(ignored func(*Node) bool) {
	for i := range f.nodes {
		if n := &f.nodes[i]; n.Leaves != "" && !ignored(n) {
			f.bad(path.Join(f.Top, n.Path), "Link leaves its folder", n.Leaves)
		}
	}
}

func (f *Files) bad(p, summary, detail string) {
	f.Problems = append(f.Problems, task.Problem{File: p, Severity: task.Error, Summary: summary, Detail: detail})
}

// IsFile reports whether a path is that of a regular file, or of a link to one.
func (f *Files) IsFile(p string) bool {
	n := f.ByPath[p]
	return n != nil && (n.Mode.IsRegular() || n.ToFile)
}

// IsDir reports whether a path is that of a folder.
func (f *Files) IsDir(p string) bool { return f.ByPath[p] != nil && f.ByPath[p].Mode.IsDir() }

// Sum returns the hex SHA-256 of a file. It notes a file that stands for one that Git
// LFS holds, or is a script that Linux cannot run. The file may be huge: only its first
// KiB is looked at.
func (f *Files) Sum(ctx context.Context, name string) (string, error) {
	if s, ok := f.sums[name]; ok {
		return s, nil
	}
	full := path.Join(f.Top, name)
	file, err := f.Root.Open(full)
	if err != nil {
		return "", err
	}
	defer file.Close()
	h := sha256.New()
	head := make([]byte, maxPointer+1)
	n, err := io.ReadFull(file, head)
	bad := script(full, head[:n])
	h.Write(head[:n])
	for err == nil && ctx.Err() == nil {
		_, err = io.CopyN(h, file, 16<<20)
	}
	if n <= maxPointer && bytes.HasPrefix(head[:n], []byte(pointerText)) {
		bad = &task.Problem{
			File: full, Line: 1, Severity: task.Error, Summary: "File is a pointer of git-LFS",
			Detail: "Its content was not downloaded: run `git lfs pull` in the dataset.",
		}
	}
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return "", err
	}
	if bad != nil {
		f.Contents = append(f.Contents, *bad)
	}
	f.sums[name] = hex.EncodeToString(h.Sum(nil))
	return f.sums[name], nil
}

// Whole is the folder of all files.
const Whole = "."

// Below returns what is in a folder, at any depth.
func (f *Files) Below(dir string) []Node {
	if dir == Whole {
		return f.nodes
	}
	by := func(n Node, p string) int { return strings.Compare(n.Path, p) }
	from, _ := slices.BinarySearchFunc(f.nodes, dir+"/", by)
	to, _ := slices.BinarySearchFunc(f.nodes, dir+"0", by) // "0" follows "/"
	return f.nodes[from:to]
}

// Entries returns what a resource has of a folder: files, links that stay in it,
// and empty folders.
func (f *Files) Entries(dir string, wanted func(rel string) bool) []task.Entry {
	var out []task.Entry
	prefix := strings.TrimPrefix(dir+"/", Whole+"/")
	for _, n := range f.Below(dir) {
		rel := strings.TrimPrefix(n.Path, prefix)
		switch {
		case !wanted(rel) || n.Leaves != "":
		case n.Mode.IsDir():
			if len(f.Below(n.Path)) == 0 {
				out = append(out, task.Entry{Path: rel, Folder: true, Mode: uint32(n.Mode.Perm())})
			}
		case n.Link == "":
			out = append(out, task.Entry{Path: rel, Mode: uint32(n.Mode.Perm()), Size: n.Size})
		case strings.HasPrefix(path.Join(path.Dir(n.Path), n.Link), prefix):
			out = append(out, task.Entry{Path: rel, Link: n.Link, Mode: 0o777})
		default:
			f.bad(path.Join(f.Top, n.Path), "Link leaves its folder", fmt.Sprintf("It leads to %q, which is not in %s. Copy the file.", n.Link, dir))
		}
	}
	return out
}

// Digest is over a text with the name of its file, and over all files: names, whether they
// can be executed, link targets and contents.
func (f *Files) Digest(ctx context.Context, file string, text []byte) (string, error) {
	h := sha256.New()
	own := sha256.Sum256(text)
	fmt.Fprintf(h, "%s\x00%s\n", file, hex.EncodeToString(own[:]))
	for _, n := range f.nodes {
		switch {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case n.Mode.IsDir():
			fmt.Fprintf(h, "d %s\x00\n", n.Path)
		case n.Link != "":
			fmt.Fprintf(h, "l %s\x00%s\n", n.Path, n.Link)
		default:
			s, err := f.Sum(ctx, n.Path)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(h, "f %t %s\x00%s\n", n.Mode&0o111 != 0, n.Path, s)
		}
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}
