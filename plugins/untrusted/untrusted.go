// Package untrusted reads folders that others may have written, such as the
// files of an agent or the run folder of a stranger. It opens regular files of bounded size only, and follows
// no link. A pipe would block forever, a device would fill the memory, and a link
// would lead to another file.
//
// It never writes, and does not know what the files contain.
package untrusted

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// ErrNotPlain means that a path is not a regular file, or that a part of the
// path is not a folder.
var ErrNotPlain = errors.New("not a regular file")

// Open opens the file with that slash-separated name below dir for reading. The
// path of dir itself may contain links; below dir they are refused, as is a
// file of more than limit bytes. Fails with fs.ErrNotExist and ErrNotPlain.
func Open(dir, name string, limit int64) (*os.File, error) {
	f, size, err := open(dir, name)
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, errors.Join(at(dir, name, fmt.Errorf("it has %d bytes, at most %d are read", size, limit)), f.Close())
	}
	return f, nil
}

func open(dir, name string) (f *os.File, size int64, err error) {
	root, err := openRoot(dir)
	if err != nil {
		return nil, 0, at(dir, name, err)
	}
	defer root.Close()
	for i, c := range name + "/" {
		if c != '/' {
			continue
		}
		fi, lookErr := root.Lstat(filepath.FromSlash(name[:i]))
		if lookErr != nil {
			return nil, 0, at(dir, name, lookErr)
		}
		if ok := fi.Mode().IsRegular() || fi.IsDir() && i < len(name); !ok {
			return nil, 0, at(dir, name, fmt.Errorf("%w: %s", ErrNotPlain, kind(fi.Mode())))
		}
	}
	// O_NONBLOCK: if the file has become a pipe in the meantime, do not block.
	f, err = root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, at(dir, name, err)
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s", ErrNotPlain, kind(fi.Mode()))
	}
	if err != nil {
		return nil, 0, errors.Join(at(dir, name, err), f.Close())
	}
	return f, fi.Size(), nil
}

// openRoot opens the folder dir. The "/." at the end makes the kernel refuse
// anything but a folder: os.OpenRoot checks the type only after opening, and
// would block on a pipe.
func openRoot(dir string) (*os.Root, error) {
	return os.OpenRoot(dir + string(filepath.Separator) + ".")
}

// unread is why a file below a folder cannot be read.
type unread struct {
	dir, name string
	err       error // names no path
}

func (u *unread) Error() string {
	return fmt.Sprintf("read %s: %s", filepath.Join(u.dir, filepath.FromSlash(u.name)), u.err)
}

func (u *unread) Unwrap() error { return u.err }

// at says which file an error of the part below the root is about.
func at(dir, name string, err error) error { return &unread{dir, name, bare(err)} }

// bare is err without a path.
func bare(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

// Below returns an error of this package with the name of the file below its folder,
// for those who must not learn where the folder is on this machine.
func Below(err error) error {
	if u, ok := errors.AsType[*unread](err); ok {
		return fmt.Errorf("%q: %w", u.name, u.err)
	}
	return bare(err)
}

// kind names the type of something that is not a regular file.
func kind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a folder"
	case m&fs.ModeSymlink != 0:
		return "a link, which is not followed"
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	case m&fs.ModeDevice != 0:
		return "a device"
	case m&fs.ModeSocket != 0:
		return "a socket"
	default:
		return m.String()
	}
}

// Read returns the content of a file that Open would open.
func Read(dir, name string, limit int64) ([]byte, error) {
	f, err := Open(dir, name, limit)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit { // it grew in the meantime
		err = at(dir, name, fmt.Errorf("it has more than %d bytes", limit))
	}
	return b, err
}

// Lines calls each with the lines of a file, without their line ends; the bytes
// are valid until each returns. It reads only the first limit bytes and skips
// lines of more than longest bytes; cut reports that one of these bounds
// applied.
func Lines(dir, name string, longest int, limit int64, each func(line []byte)) (cut bool, err error) {
	f, size, err := open(dir, name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	r := bufio.NewReaderSize(io.LimitReader(f, limit), 64<<10)
	cut = size > limit
	for {
		line, err := Line(r, longest)
		switch {
		case errors.Is(err, ErrLong):
			cut = true
		case err != nil && !errors.Is(err, io.EOF):
			return cut, err
		case len(line) > 0:
			each(line)
		}
		if errors.Is(err, io.EOF) {
			return cut, nil
		}
	}
}

// ErrLong means that a line was longer than allowed, and was skipped.
var ErrLong = errors.New("line is too long")

// Line returns the next line without its line end, and io.EOF with the last
// line if that has no line end. It skips the rest of a line of more than
// longest bytes and returns an error that wraps ErrLong, and io.EOF at the end
// of the file.
func Line(r *bufio.Reader, longest int) ([]byte, error) {
	var line []byte
	long := false
	for {
		b, err := r.ReadSlice('\n')
		if long = long || len(line)+len(b) > longest; !long {
			line = append(line, b...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case long && err == nil:
			return line, ErrLong
		case long:
			return line, errors.Join(ErrLong, err)
		case err == nil:
			line = line[:len(line)-1]
		}
		return line, err
	}
}

// Bounds of List.
const (
	maxDepth = 64 // folders in folders
	batch    = 1000
)

// List returns the slash-separated names of everything below dir except
// folders, sorted. It does not follow links, and lists a folder before its
// content. It returns at most limit names and looks at ten times as many; more
// reports that some are missing, also when a folder cannot be read.
func List(dir string, limit int) (names []string, more bool, err error) {
	root, err := openRoot(dir)
	if err != nil {
		return nil, false, at(dir, "", err)
	}
	defer root.Close()
	left := 10 * limit
	for folders := []string{"."}; len(folders) > 0; folders = folders[1:] {
		entries, whole := read(root, folders[0], left)
		more = more || !whole
		left -= len(entries)
		for _, e := range entries {
			name := path.Join(folders[0], e.Name())
			switch {
			case !e.IsDir() && len(names) < limit:
				names = append(names, name)
			case e.IsDir() && strings.Count(name, "/") < maxDepth:
				folders = append(folders, name)
			default:
				more = true
			}
		}
	}
	slices.Sort(names)
	return names, more, nil
}

// read returns the sorted content of a folder, or limit entries of it.
func read(root *os.Root, name string, limit int) (entries []fs.DirEntry, whole bool) {
	fi, err := root.Lstat(name)
	if err != nil || !fi.IsDir() {
		return nil, false
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	for len(entries) < limit {
		some, err := f.ReadDir(min(batch, limit-len(entries)))
		entries = append(entries, some...)
		if err != nil {
			whole = errors.Is(err, io.EOF)
			break
		}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, whole
}

// Dir returns the sorted content of the folder with that name below dir. It
// fails if the name is not a folder, is a link to one, or has more than limit
// entries.
func Dir(dir, name string, limit int) ([]fs.DirEntry, error) {
	root, err := openRoot(dir)
	if err != nil {
		return nil, at(dir, "", err)
	}
	defer root.Close()
	fi, err := root.Lstat(name)
	if err != nil {
		return nil, at(dir, name, err)
	}
	if !fi.IsDir() {
		return nil, at(dir, name, fmt.Errorf("it is not a folder: %s", kind(fi.Mode())))
	}
	entries, whole := read(root, name, limit+1)
	switch {
	case len(entries) > limit:
		return nil, at(dir, name, fmt.Errorf("it holds more than %d files", limit))
	case !whole:
		return nil, at(dir, name, errors.New("not all of it can be read"))
	}
	return entries, nil
}
