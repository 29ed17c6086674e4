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
const maxFiles = 100_000

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

// Sum returns the hex SHA-256 of a file, and the problem of one that stands for a file
// that Git LFS holds, or is a script that Linux cannot run; nil: it has none. The file
// may be huge: only its first KiB is looked at.
func Sum(ctx context.Context, root *os.Root, name string) (sum string, bad *task.Problem, err error) {
	f, err := root.Open(name)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	h := sha256.New()
	head := make([]byte, maxPointer+1)
	n, err := io.ReadFull(f, head)
	bad = script(name, head[:n])
	if err == nil {
		h.Write(head)
		for err == nil && ctx.Err() == nil {
			_, err = io.CopyN(h, f, 16<<20)
		}
	} else if h.Write(head[:n]); n <= maxPointer && bytes.HasPrefix(head[:n], []byte(pointerText)) {
		bad = &task.Problem{
			File: name, Line: 1, Severity: task.Error, Summary: "File is a pointer of git-LFS",
			Detail: "Its content was not downloaded: run `git lfs pull` in the dataset.",
		}
	}
	switch {
	case ctx.Err() != nil:
		return "", nil, context.Cause(ctx)
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return "", nil, err
	}
	return hex.EncodeToString(h.Sum(nil)), bad, nil
}

// refused is why the content of a file is not read.
type refused struct{ file, why string }

func (r *refused) Error() string { return r.file + " " + r.why }

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
	Top      string // the folder, relative to the dataset
	ByPath   map[string]*Node
	Problems []task.Problem
	Contents []task.Problem // of what the files hold; Digest finds them

	root  *os.Root
	parts bool
	nodes []Node // sorted by path
}

// Node is a file, a folder or a link.
type Node struct {
	Path string // relative to Files.Top
	Mode fs.FileMode
	Size int64  // bytes
	Link string // the target of a link
}

// Scan lists the files of a folder, which is one resource. A folder that does not
// exist has none.
func Scan(ctx context.Context, root *os.Root, top string) (*Files, error) {
	return scan(ctx, root, top, false)
}

// ScanParts is Scan for a folder whose own folders are resources: a link has to
// stay in the one that it is in.
func ScanParts(ctx context.Context, root *os.Root, top string) (*Files, error) {
	return scan(ctx, root, top, true)
}

func scan(ctx context.Context, root *os.Root, top string, parts bool) (*Files, error) {
	f := &Files{root: root, parts: parts, Top: top, ByPath: map[string]*Node{}}
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
	slices.SortFunc(f.nodes, func(a, b Node) int { return strings.Compare(a.Path, b.Path) })
	for i := range f.nodes {
		f.ByPath[f.nodes[i].Path] = &f.nodes[i]
	}
	return f, nil
}

func (f *Files) add(p string) error {
	fi, err := f.root.Lstat(p)
	if err != nil {
		return err
	}
	n := Node{Path: strings.TrimPrefix(p, f.Top+"/"), Mode: fi.Mode()}
	switch {
	case fi.Mode().IsRegular():
		n.Size = fi.Size()
	case fi.IsDir():
	case fi.Mode()&fs.ModeSymlink != 0:
		if n.Link, err = f.root.Readlink(p); err != nil {
			return err
		}
		to := path.Join(path.Dir(n.Path), n.Link)
		folder, _, _ := strings.Cut(n.Path, "/")
		if path.IsAbs(n.Link) || to == ".." || strings.HasPrefix(to, "../") || f.parts && !strings.HasPrefix(to, folder+"/") {
			f.bad(p, "Link leaves its folder", fmt.Sprintf("It leads to %q. Copy the file, or link to it by a relative path.", n.Link))
			return nil
		}
	default:
		f.bad(p, "Not a regular file", fmt.Sprintf("It is of type %s. A task has files, folders and links only.", fi.Mode().Type()))
		return nil
	}
	f.nodes = append(f.nodes, n)
	return nil
}

func (f *Files) bad(p, summary, detail string) {
	f.Problems = append(f.Problems, task.Problem{File: p, Severity: task.Error, Summary: summary, Detail: detail})
}

// IsDir reports whether a path is that of a folder.
func (f *Files) IsDir(p string) bool { return f.ByPath[p] != nil && f.ByPath[p].Mode.IsDir() }

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
		case !wanted(rel):
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
// can be executed, link targets and contents. It notes the files that are
// pointers.
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
			s, bad, err := Sum(ctx, f.root, path.Join(f.Top, n.Path))
			if err != nil {
				return "", err
			}
			if bad != nil {
				f.Contents = append(f.Contents, *bad)
			}
			fmt.Fprintf(h, "f %t %s\x00%s\n", n.Mode&0o111 != 0, n.Path, s)
		}
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}
