package view

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// Bounds of what one answer holds.
const (
	maxFile  = 64 << 30 // bytes of a file of which a part is read
	maxText  = 16 << 10 // bytes of one text of a step
	maxChunk = 64 << 10 // bytes of a part of a file
	maxShown = 1000     // entries of a list of one attempt
)

// skip returns where the line with that number begins, counted from 0, or the end
// of the last line if there are fewer, and how many lines were skipped.
func skip(dir, name string, n int64) (at, skipped int64, err error) {
	for skipped < n {
		lines, next, err := report.ReadPart(dir, name, at, int(min(n-skipped, 1000)))
		if err != nil || len(lines) == 0 {
			return at, skipped, err
		}
		at, skipped = next, skipped+int64(len(lines))
	}
	return at, skipped, nil
}

// chunk reads a part of a file as text.
func chunk(dir, name string, at int64) (text string, size, next int64, err error) {
	f, err := untrusted.Open(dir, name, maxFile)
	if err != nil {
		return "", 0, at, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return "", 0, at, err
	}
	b := make([]byte, maxChunk)
	n, err := f.ReadAt(b, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", 0, at, fmt.Errorf("read %s: %w", name, err)
	}
	b = b[:n]
	return plain(string(b)), fi.Size(), at + int64(len(b)), nil
}

// lastBytes returns whole lines at the end of a file: at most that many bytes. It
// returns nothing if the file cannot be read.
func lastBytes(dir, name string, most int64) []byte {
	f, err := untrusted.Open(dir, name, maxFile)
	if err != nil {
		return nil
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil
	}
	at := max(0, fi.Size()-most)
	b, err := io.ReadAll(io.NewSectionReader(f, at, most))
	if err != nil {
		return nil
	}
	if at > 0 {
		b = b[cmp.Or(bytes.IndexByte(b, '\n')+1, len(b)):]
	}
	return b
}
