package archive

import (
	"bytes"
	"os"
)

// hole is how many zero bytes, from a multiple of it on in one Write, become a hole.
const hole = 4 << 10

var zero [hole]byte

// Sparse writes to a new file and leaves holes where there are zeros, so that a file
// takes no more room than it did where it comes from. Call End after the last Write.
type Sparse struct {
	File *os.File
	at   int64
}

// Write writes what is not zero.
func (s *Sparse) Write(b []byte) (n int, err error) {
	for n < len(b) {
		end := n
		for end < len(b) && !bytes.Equal(b[end:min(end+hole, len(b))], zero[:min(hole, len(b)-end)]) {
			end = min(end+hole, len(b))
		}
		if end > n {
			written, err := s.File.WriteAt(b[n:end], s.at)
			n, s.at = n+written, s.at+int64(written)
			if err != nil {
				return n, err
			}
			continue
		}
		size := min(hole, len(b)-n)
		n, s.at = n+size, s.at+int64(size)
	}
	return n, nil
}

// End gives the file its size, which the last hole does not.
func (s *Sparse) End() error { return s.File.Truncate(s.at) }
