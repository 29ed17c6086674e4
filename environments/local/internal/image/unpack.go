package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// unpack copies the contents of an archive, like ADD, and reports whether name
// was an archive. The owner of the files becomes root or that of --chown,
// because the ids of the user who packed the archive have no meaning here.
func (p *packer) unpack(name, to string) (done bool, err error) {
	f, err := p.root.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	r, err := archiveOf(f)
	if r == nil || err != nil {
		return false, err
	}
	if err := p.folder(to); err != nil {
		return true, err
	}
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err == nil {
			err = p.member(h, to, t)
		}
		if err != nil {
			return true, fmt.Errorf("archive %q: %w", name, err)
		}
	}
}

// member writes one entry of an archive.
func (p *packer) member(h *tar.Header, to string, r io.Reader) error {
	n := &tar.Header{
		Typeflag: h.Typeflag, Name: path.Join(to, path.Join("/", h.Name)), // .. cannot leave the folder
		Mode: h.Mode & 0o7777, ModTime: h.ModTime, Size: h.Size, Linkname: h.Linkname,
	}
	switch h.Typeflag {
	case tar.TypeDir:
		p.note(n.Name)
		return p.header(n)
	case tar.TypeSymlink:
		return p.header(n)
	case tar.TypeLink:
		n.Linkname, n.Size = path.Join(to, path.Join("/", h.Linkname)), 0
		return p.header(n)
	case tar.TypeReg:
		return p.write(n, r)
	case tar.TypeXGlobalHeader:
		return nil
	default:
		return fmt.Errorf("%q is neither file, folder nor link", h.Name)
	}
}

// archiveOf returns the tar archive in f, or nil if f contains none.
func archiveOf(f io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(f, 64<<10)
	head, err := b.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var r io.Reader = b
	switch {
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		r, err = gzip.NewReader(b)
	case bytes.HasPrefix(head, []byte("BZh")):
		r, err = bzip2.NewReader(b), nil
	case bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")):
		r, err = zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20))
	case bytes.HasPrefix(head, []byte("\xfd7zXZ\x00")):
		return nil, errors.New("archives packed with xz are not unpacked here: pack it with gzip or zstd, or COPY it")
	default:
		err = nil
	}
	if err != nil {
		return nil, nil //nolint:nilerr // not a valid archive: copied as a file, as in Docker
	}
	b = bufio.NewReaderSize(r, 64<<10)
	head, err = b.Peek(263)
	if err != nil || !strings.HasPrefix(string(head[257:]), "ustar") {
		return nil, nil //nolint:nilerr // too short, or not a tar archive
	}
	return b, nil
}
