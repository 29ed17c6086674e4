package collect

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// unlessKnown calls take with the content of a file, unless the earlier copy has a
// file of that name, size and content. What was masked in the copy counts as
// changed.
func (x *extraction) unlessKnown(rel string, size int64, r io.Reader, take func(io.Reader) error) error {
	f := x.c.known(rel, size)
	if f == nil {
		return take(r)
	}
	defer f.Close()
	now, before := make([]byte, 64<<10), make([]byte, 64<<10)
	for same := int64(0); same < size; {
		n, err := io.ReadFull(r, now[:min(int64(len(now)), size-same)])
		if err != nil {
			return fmt.Errorf("read archive: %w", err)
		}
		if _, err = io.ReadFull(f, before[:n]); err != nil || !bytes.Equal(now[:n], before[:n]) {
			return take(io.MultiReader(io.NewSectionReader(f, 0, same), bytes.NewReader(now[:n]), r))
		}
		same += int64(n)
	}
	return nil
}

// known opens the earlier copy of a file; nil if there is none of that size. The
// caller closes it.
func (c *Collector) known(rel string, size int64) *os.File {
	if c.Known == "" || rel == "" {
		return nil
	}
	root, err := os.OpenRoot(c.Known)
	if err != nil {
		return nil
	}
	defer root.Close()
	f, err := root.Open(filepath.FromSlash(rel))
	if err != nil {
		return nil
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() || fi.Size() != size {
		_ = f.Close()
		return nil
	}
	return f
}
