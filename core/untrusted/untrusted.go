// Package untrusted reads folders that somebody else may have written, such as the
// run folder of a stranger. It opens regular files of bounded size only, and follows
// no link. A pipe would block for ever, a device would fill the memory, and a link
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

// ErrNotPlain means that something is neither a regular file nor, on the way to
// one, a folder.
var ErrNotPlain = errors.New("not a regular file")

// Open opens the file of that slash-separated name below dir for reading. dir
// itself may be reached by links; below it they are refused, as is a file of
// more than limit bytes. Fails with fs.ErrNotExist and ErrNotPlain.
func Open(dir, name string, limit int64) (*os.File, error) {
	f, size, err := open(dir, name)
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, errors.Join(fmt.Errorf("%s: it has %d bytes, at most %d are read", filepath.Join(dir, name), size, limit), f.Close())
	}
	return f, nil
}

func open(dir, name string) (f *os.File, size int64, err error) {
	whole := filepath.Join(dir, filepath.FromSlash(name))
	root, err := openRoot(dir)
	if err != nil {
		return nil, 0, at(whole, err)
	}
	defer root.Close()
	for i, c := range name + "/" {
		if c != '/' {
			continue
		}
		fi, lookErr := root.Lstat(filepath.FromSlash(name[:i]))
		if lookErr != nil {
			return nil, 0, at(whole, lookErr)
		}
		if ok := fi.Mode().IsRegular() || fi.IsDir() && i < len(name); !ok {
			return nil, 0, fmt.Errorf("%s: %w: %s", whole, ErrNotPlain, kind(fi.Mode()))
		}
	}
	// O_NONBLOCK: it may have become a pipe since, which is not waited for.
	f, err = root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, at(whole, err)
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%s: %w: %s", whole, ErrNotPlain, kind(fi.Mode()))
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, fi.Size(), nil
}

// openRoot opens the folder dir. The name ends so that the kernel opens nothing
// but a folder: os.OpenRoot looks at what it has opened, and would wait for a pipe.
func openRoot(dir string) (*os.Root, error) {
	return os.OpenRoot(dir + string(filepath.Separator) + ".")
}

// at is err with the whole path, instead of the part of it that a root knows.
func at(whole string, err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	return fmt.Errorf("read %s: %w", whole, err)
}

// kind says in a word what something is that is no regular file.
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

// Read is all of a file that Open would open.
func Read(dir, name string, limit int64) ([]byte, error) {
	f, err := Open(dir, name, limit)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit { // it grew since
		err = fmt.Errorf("%s: it has more than %d bytes", filepath.Join(dir, name), limit)
	}
	return b, err
}

// Lines calls each with the lines of a file, without their ends; the bytes are
// valid until each returns. Only the first limit bytes are read, and a line of
// more than longest bytes is left out: cut says that one of them was needed.
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

// ErrLong means that a line was longer than it may be, and was skipped.
var ErrLong = errors.New("line is too long")

// Line returns the next line without its end, and io.EOF with the last one if
// that has no end. Of a line of more than longest bytes the rest is skipped, and
// the error wraps ErrLong, and io.EOF at the end.
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

// Bounds of what List looks at.
const (
	maxDepth = 64 // folders in folders
	batch    = 1000
)

// List lists what is below dir and is no folder, slash-separated, in order,
// without following links, folders above their content. At most limit names
// are returned, and ten times as many looked at; more says that some are
// missing, also those of a folder that cannot be read.
func List(dir string, limit int) (names []string, more bool, err error) {
	root, err := openRoot(dir)
	if err != nil {
		return nil, false, at(dir, err)
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

// read is what a folder holds, in order, or limit entries of it.
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

// Dir is what the folder of that name below dir holds, in order. It is an error
// if it is no folder, or a link to one, or holds more than limit entries.
func Dir(dir, name string, limit int) ([]fs.DirEntry, error) {
	root, err := openRoot(dir)
	if err != nil {
		return nil, at(dir, err)
	}
	defer root.Close()
	fi, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !fi.IsDir() {
		return nil, fmt.Errorf("%s is no folder: %s", filepath.Join(dir, name), kind(fi.Mode()))
	}
	entries, whole := read(root, name, limit+1)
	switch {
	case len(entries) > limit:
		return nil, fmt.Errorf("%s holds more than %d files", filepath.Join(dir, name), limit)
	case !whole:
		return nil, fmt.Errorf("%s cannot be read", filepath.Join(dir, name))
	}
	return entries, nil
}
