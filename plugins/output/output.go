// Package output limits the output of an external program: it keeps the
// beginning and the end, in a file or in memory, however long the output is.
//
// It must not know what the output means, nor where it comes from.
package output

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// File is a writer that keeps the first Head and the last Tail bytes, and
// writes a line between them that says how many bytes were left out. It accepts
// any amount of data, and fails only if the underlying file fails. Safe for
// concurrent use.
type File struct {
	mu    sync.Mutex
	path  string         // of the file that Create will make
	file  io.WriteCloser // nil: nothing was written yet
	head  int64
	total int64
	size  int    // of the ring, in bytes
	tail  []byte // ring of the last bytes after the head, allocated when needed
	full  bool   // the ring has wrapped around
	next  int    // where the ring continues
	err   error
}

// Limits for the output of a test suite, in bytes.
const (
	DefaultHead = 8 << 20
	DefaultTail = 1 << 20
)

// Create returns a File with the default limits. It replaces a file with that
// name and follows no link. The file is created with the first byte, so a
// program that prints nothing leaves none.
func Create(path string) (*File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return &File{path: path, head: DefaultHead, size: DefaultTail}, nil
}

// open creates the file for Create.
func (f *File) open() {
	if f.file != nil || f.err != nil {
		return
	}
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if f.err = err; err == nil {
		f.file = file
	}
}

// New makes a File that writes to w. Close closes w. head and tail are in
// bytes.
func New(w io.WriteCloser, head, tail int) *File {
	return &File{file: w, head: int64(head), size: tail}
}

// Write keeps the bytes that belong to the head or the tail. It returns len(p).
func (f *File) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(p)
	if n == 0 {
		return 0, f.err
	}
	f.open()
	if room := f.head - f.total; room > 0 {
		part := p[:min(int64(len(p)), room)]
		if f.err == nil {
			_, f.err = f.file.Write(part)
		}
		p = p[len(part):]
	}
	f.total += int64(n)
	f.ring(p)
	return n, f.err
}

func (f *File) ring(p []byte) {
	size := f.size
	if size == 0 || len(p) == 0 {
		return
	}
	if f.tail == nil {
		f.tail = make([]byte, 0, size)
	}
	if len(p) > size {
		p, f.full = p[len(p)-size:], true
	}
	if room := size - len(f.tail); room > 0 {
		part := p[:min(len(p), room)]
		f.tail = append(f.tail, part...)
		p = p[len(part):]
	}
	for len(p) > 0 {
		n := copy(f.tail[f.next:], p)
		f.next, f.full = (f.next+n)%size, true
		p = p[n:]
	}
}

// rest returns the contents of the ring, in order.
func (f *File) rest() []byte {
	if !f.full {
		return f.tail
	}
	return append(append([]byte{}, f.tail[f.next:]...), f.tail[:f.next]...)
}

// Total returns how many bytes were written.
func (f *File) Total() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.total
}

// Close writes the tail and closes the file.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return f.err
	}
	rest := f.rest()
	if left := f.total - f.head - int64(len(rest)); left > 0 {
		if _, err := fmt.Fprintf(f.file, "\n[%d bytes left out]\n", left); f.err == nil {
			f.err = err
		}
	}
	if len(rest) > 0 {
		if _, err := f.file.Write(rest); f.err == nil {
			f.err = err
		}
	}
	return errors.Join(f.err, f.file.Close())
}

// Tail is a writer that keeps the last bytes. Safe for concurrent use.
type Tail struct{ file File }

// NewTail makes a Tail of size bytes.
func NewTail(size int) *Tail { return &Tail{File{size: size}} }

// Write returns len(p) and never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.file.mu.Lock()
	defer t.file.mu.Unlock()
	t.file.total += int64(len(p))
	t.file.ring(p)
	return len(p), nil
}

// String returns the kept bytes as valid UTF-8, with a note if there were more.
func (t *Tail) String() string {
	t.file.mu.Lock()
	defer t.file.mu.Unlock()
	rest := t.file.rest()
	text := strings.ToValidUTF8(string(rest), "\uFFFD")
	if left := t.file.total - int64(len(rest)); left > 0 {
		return fmt.Sprintf("[%d bytes before this left out]\n%s", left, text)
	}
	return text
}

// Middle shortens s if it is longer than limit bytes. It keeps half of limit
// from the beginning and half from the end, in whole characters, with a line
// between them that says how many bytes were left out. It replaces invalid
// UTF-8.
func Middle(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	half := limit / 2
	head, tail := strings.ToValidUTF8(s[:half], ""), strings.ToValidUTF8(s[len(s)-half:], "")
	return fmt.Sprintf("%s\n[… %d bytes in the middle are left out …]\n%s", head, len(s)-len(head)-len(tail), tail)
}

// First shortens s to at most limit bytes, in whole characters, and a mark. It replaces
// invalid UTF-8.
func First(s string, limit int) string {
	if s = strings.ToValidUTF8(s, "\uFFFD"); len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}
