package report

import (
	"bufio"
	"errors"
	"io"

	"github.com/berth-eval/berth/plugins/untrusted"
)

// Bounds of a part of a file.
const (
	maxFile     = 64 << 30 // bytes of a file of which a part is read
	maxPartLine = 8 << 20  // bytes of one line that is shown
	maxPart     = 4 << 20  // bytes of lines after which a part ends
)

// NumberedLine is a line of a file of JSON lines.
type NumberedLine struct {
	At   int64 // where it begins
	Size int64
	Text []byte // nil: it is too long
}

// ReadPart reads at most that many whole lines, beginning at a byte. next is where
// the following part begins. A last line without its end is left out, because it
// is still being written.
func ReadPart(dir, name string, at int64, most int) (lines []NumberedLine, next int64, err error) {
	f, err := untrusted.Open(dir, name, maxFile)
	if err != nil {
		return nil, at, err
	}
	defer f.Close()
	if _, err = f.Seek(at, io.SeekStart); err != nil {
		return nil, at, err
	}
	in := lineReader{bufio.NewReaderSize(f, 64<<10)}
	next = at
	for kept := 0; len(lines) < most && kept < maxPart; {
		l := NumberedLine{At: next}
		l.Text, l.Size, err = in.next()
		if errors.Is(err, io.EOF) {
			return lines, next, nil
		}
		if err != nil {
			return lines, next, err
		}
		next += l.Size
		kept += len(l.Text)
		lines = append(lines, l)
	}
	return lines, next, nil
}

// AtEnd reports whether ReadPart returned fewer lines than it may because there are
// no more.
func AtEnd(lines []NumberedLine, most int) bool {
	kept := 0
	for i := range lines {
		kept += len(lines[i].Text)
	}
	return len(lines) < most && kept < maxPart
}

// lineReader reads lines and counts their bytes.
type lineReader struct{ r *bufio.Reader }

// next returns the next line without its end, and its size with it; no line, but
// its size, if it is too long.
func (c *lineReader) next() (line []byte, size int64, err error) {
	for {
		b, err := c.r.ReadSlice('\n')
		size += int64(len(b))
		if size <= maxPartLine {
			line = append(line, b...)
		} else {
			line = nil
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return nil, size, err
		case line == nil:
			return nil, size, nil
		}
		return line[:len(line)-1], size, nil
	}
}
