package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/berth-eval/berth/plugins/untrusted"
)

// tail reads a file of lines in the folder of an attempt while it grows.
type tail struct {
	dir, name string

	f    *os.File // nil before the file exists, and after it cannot be read further
	over bool
	read int64
	rest []byte // the beginning of a line that is still being written
	long bool   // rest is part of a line that is too long
}

// more calls each with the lines that were added since the last call. The lines
// are valid until each returns. An error means that no more is read, and is
// returned once.
func (t *tail) more(each func(line []byte)) error {
	if t.over {
		return nil
	}
	if t.f == nil {
		f, err := untrusted.Open(t.dir, t.name, maxLog)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			t.over = true
			return err
		}
		t.f = f
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := t.f.Read(buf)
		t.read += int64(n)
		t.take(buf[:n], each)
		if err == nil && t.read > maxLog {
			err = fmt.Errorf("%s: only its first %d MiB are shown", t.name, maxLog>>20)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			t.over = true
			return errors.Join(err, t.close())
		}
	}
}

// take splits what was read into lines. It skips lines of more than maxLine bytes.
func (t *tail) take(b []byte, each func(line []byte)) {
	for len(b) > 0 {
		part, after, whole := bytes.Cut(b, []byte("\n"))
		b = after
		if t.long = t.long || len(t.rest)+len(part) > maxLine; !t.long {
			t.rest = append(t.rest, part...)
		}
		if !whole {
			return
		}
		if !t.long && len(t.rest) > 0 {
			each(t.rest)
		}
		t.rest, t.long = t.rest[:0], false
	}
}

func (t *tail) close() error {
	if t.f == nil {
		return nil
	}
	f := t.f
	t.f = nil
	return f.Close()
}
