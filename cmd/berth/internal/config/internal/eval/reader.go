package eval

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/bmatcuk/doublestar/v4"
)

// Limits of reading.
const (
	maxFile = MaxValue // bytes
	maxGlob = 10_000   // names that glob looks at
)

// errOutside says that a path is not one that the experiment may read.
var errOutside = errors.New("outside the experiment's folder")

// Reader reads files for functions, from a few folders and from nowhere else:
// a symbolic link that leads out of them is refused. Not safe for concurrent use.
type Reader struct {
	// Kept is where the copy of a file lies, by its name as in Files; nil: files
	// are read where they are. Then nothing else is read.
	Kept func(name string) string

	dir   string // relative paths start here
	roots []root
	read  map[string][]byte // by the path as given
	names int               // that Glob looks at
}

type root struct{ name, real string } // both absolute; links are resolved in real

// NewReader makes a reader of the folder that relative paths start from, and of
// further folders. If kept is set, only copies are read (see [Reader.Kept]), and the
// folders may be missing.
func NewReader(dir string, allow []string, kept func(name string) string) (*Reader, error) {
	r := &Reader{dir: dir, read: map[string][]byte{}, names: maxGlob, Kept: kept}
	for _, d := range append([]string{dir}, allow...) {
		abs, err := filepath.Abs(d)
		if err != nil {
			return nil, fmt.Errorf("folder %q: %w", d, err)
		}
		resolved, err := filepath.EvalSymlinks(abs)
		if kept != nil && errors.Is(err, fs.ErrNotExist) {
			resolved, err = abs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("folder %q: %w", d, err)
		}
		r.roots = append(r.roots, root{abs, resolved})
	}
	return r, nil
}

// Read is the content of a regular file of at most [MaxValue] bytes.
func (r *Reader) Read(path string) ([]byte, error) {
	var content []byte
	err := r.openKept(path, func(f *os.File) error {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return errors.New("not a regular file")
		}
		content, err = io.ReadAll(io.LimitReader(f, maxFile+1))
		if err == nil && len(content) > maxFile {
			err = fmt.Errorf("larger than %d MiB", maxFile>>20)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	r.read[path] = content
	return content, nil
}

// Exists says whether path is a regular file. A path that may not be read is an
// error, not false.
func (r *Reader) Exists(path string) (bool, error) {
	if r.Kept != nil {
		if info, err := os.Lstat(r.Kept(r.name(path))); err == nil && info.Mode().IsRegular() {
			return true, nil
		}
	}
	regular := false
	err := r.open(path, func(f *os.File) error {
		info, err := f.Stat()
		regular = err == nil && info.Mode().IsRegular()
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return regular, err
}

// Files are what was read, by slash-separated path relative to the folder of
// the experiment, or absolute.
func (r *Reader) Files() map[string][]byte {
	out := map[string][]byte{}
	for path, content := range r.read {
		out[r.name(path)] = content
	}
	return out
}

// name is that of a file in Files.
func (r *Reader) name(path string) string {
	if abs := r.abs(path); within(r.roots[0].name, abs) {
		path, _ = filepath.Rel(r.roots[0].name, abs)
	}
	return filepath.ToSlash(path)
}

// Place is where the file is that Read reads for a path.
func (r *Reader) Place(path string) string {
	if r.Kept != nil {
		return r.Kept(r.name(path))
	}
	return r.abs(path)
}

// openKept is open for the copy of a file, where there are copies.
func (r *Reader) openKept(path string, use func(*os.File) error) error {
	if r.Kept == nil {
		return r.open(path, use)
	}
	f, err := os.OpenFile(r.Kept(r.name(path)), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%q was not read when the run was made, so the run has no copy of it", path)
	}
	if err != nil {
		return fmt.Errorf("%q: %w", path, cause(err))
	}
	defer f.Close()
	return use(f)
}

// shown is a folder as the user would name it.
func (r *Reader) shown(dir string) string {
	if filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(r.dir, dir)
}

func (r *Reader) abs(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(r.roots[0].name, path)
}

// open opens path where it leads to, if that is in one of the roots.
func (r *Reader) open(path string, use func(*os.File) error) error {
	abs := r.abs(path)
	inside := func(at string) bool {
		return slices.ContainsFunc(r.roots, func(ro root) bool { return within(ro.name, at) || within(ro.real, at) })
	}
	where, err := filepath.EvalSymlinks(abs)
	switch {
	case !inside(abs) && (err != nil || !inside(where)):
		return fmt.Errorf("%q is %w: give --allow-read %s to read there", path, errOutside, r.shown(filepath.Dir(path)))
	case errors.Is(err, fs.ErrNotExist):
		return err
	case err != nil:
		return fmt.Errorf("%q: %w", path, cause(err))
	case !inside(where):
		return fmt.Errorf("%q leads to %q, which is %w: give --allow-read %s to read there", path, where, errOutside, filepath.Dir(where))
	}
	// O_NONBLOCK: opening a FIFO must not wait for a writer.
	f, err := os.OpenFile(where, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("%q: %w", path, cause(err))
	}
	defer f.Close()
	if err = use(f); err != nil {
		return fmt.Errorf("%q: %w", path, cause(err))
	}
	return nil
}

// cause is an error without the operation and path that os puts before it.
func cause(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// Glob lists the regular files that match a pattern (*, ?, [a-z], {a,b}, ** for
// folders), sorted. Links to files are listed, links to folders are not followed.
func (r *Reader) Glob(pattern string) ([]string, error) {
	if len(pattern) > 1000 || strings.Count(pattern, "{") > 4 || !doublestar.ValidatePattern(pattern) {
		return nil, fmt.Errorf("%q is not a pattern: use *, ?, [a-z], {a,b} and **", pattern)
	}
	base, _ := doublestar.SplitPattern(filepath.ToSlash(r.absPattern(pattern)))
	given, _ := doublestar.SplitPattern(pattern)
	i := slices.IndexFunc(r.roots, func(ro root) bool { return within(ro.name, base) })
	if i < 0 || slices.Contains(strings.Split(pattern, "/"), "..") {
		return nil, fmt.Errorf("%q is %w: give --allow-read %s to read there", pattern, errOutside, r.shown(given))
	}
	top, err := os.OpenRoot(r.roots[i].real)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	rel := strings.TrimPrefix(strings.TrimPrefix(r.absPattern(pattern), r.roots[i].name), "/")
	names, err := doublestar.Glob(&counted{FS: top.FS(), left: r.names, limit: r.names}, rel,
		doublestar.WithFilesOnly(), doublestar.WithNoFollow(), doublestar.WithFailOnIOErrors())
	if err != nil {
		return nil, fmt.Errorf("%q: %w", pattern, err)
	}
	if filepath.IsAbs(pattern) || i > 0 {
		for j := range names {
			names[j] = filepath.Join(r.roots[i].name, names[j])
		}
	}
	slices.Sort(names)
	return names, nil
}

func (r *Reader) absPattern(pattern string) string {
	if filepath.IsAbs(pattern) {
		return pattern
	}
	return r.roots[0].name + "/" + strings.TrimPrefix(pattern, "./")
}

// counted is a file system that lists so many names and no more.
type counted struct {
	fs.FS

	left, limit int
}

// ReadDir fails once too many names have been listed.
func (c *counted) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(c.FS, name)
	c.left -= len(entries) + 1
	if c.left < 0 {
		return nil, fmt.Errorf("more than %d files to look at: use a narrower pattern", c.limit)
	}
	return entries, err
}

// Stat is that of the file system.
func (c *counted) Stat(name string) (fs.FileInfo, error) { return fs.Stat(c.FS, name) }
