// Package copying copies bytes with buffers that are used again: most files of
// an attempt are smaller than the buffer that io.Copy makes for each.
//
// It must not know what is copied.
package copying

import (
	"errors"
	"io"
	"sync"
)

const bufferBytes = 32 << 10

var buffers = sync.Pool{New: func() any { return new([bufferBytes]byte) }}

// Copy is io.Copy. What is longer than a buffer is left to io.Copy, which can
// have the kernel copy from file to file.
func Copy(to io.Writer, from io.Reader) (int64, error) {
	buf, ok := buffers.Get().(*[bufferBytes]byte)
	if !ok {
		return io.Copy(to, from)
	}
	defer buffers.Put(buf)
	n, err := io.ReadFull(from, buf[:])
	short := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	written, writeErr := to.Write(buf[:n])
	if writeErr == nil && written < n {
		writeErr = io.ErrShortWrite
	}
	switch {
	case writeErr != nil:
		return int64(written), writeErr
	case short:
		return int64(written), nil
	case err != nil:
		return int64(written), err
	}
	rest, err := io.Copy(to, from)
	return int64(written) + rest, err
}
