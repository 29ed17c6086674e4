package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Sum is the digest and the size of a tree.
type Sum struct {
	Digest string
	Files  int64
	Bytes  int64
}

// Measure computes the digest of a tree. It covers, in order, the name, kind,
// executable bit and content of every file, but no owners or times, so that a
// copy of the tree has the same digest.
func Measure(root string) (s Sum, err error) {
	h := sha256.New()
	buf := make([]byte, 1<<20)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil || name == "." {
			return err
		}
		switch {
		case d.IsDir():
			fmt.Fprintf(h, "d %d:%s\n", len(name), name)
			return nil
		case d.Type() == fs.ModeSymlink:
			to, linkErr := os.Readlink(path)
			fmt.Fprintf(h, "l %d:%s %d:%s\n", len(name), name, len(to), to)
			s.Files++
			return linkErr
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is a %s: a bundle holds files, folders and links", name, d.Type())
		}
		n, err := addFile(h, path, name, buf)
		s.Files++
		s.Bytes += n
		return err
	})
	if err != nil {
		return s, fmt.Errorf("digest of %s: %w", root, err)
	}
	s.Digest = "sha256:" + hex.EncodeToString(h.Sum(nil))
	return s, nil
}

func addFile(h hash.Hash, path, name string, buf []byte) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	kind := "f"
	if info.Mode()&0o111 != 0 {
		kind = "x"
	}
	fmt.Fprintf(h, "%s %d:%s %d\n", kind, len(name), name, info.Size())
	n, err := io.CopyBuffer(struct{ io.Writer }{h}, f, buf)
	if err == nil && n != info.Size() {
		err = fmt.Errorf("%s changed while it was read", name)
	}
	return n, err
}

// Verify returns an error if the content of the bundle differs from its
// manifest.
func (b Bundle) Verify() error {
	s, err := Measure(filepath.Join(b.Folder, Root))
	if err != nil {
		return err
	}
	if s.Digest != b.Digest {
		return fmt.Errorf("bundle %s has been changed: its content is %s, and was %s: make it again, with `berth agent bundle %s --again`", b.ID(), s.Digest, b.Digest, b.ID())
	}
	return nil
}
