package view

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/sandbox/system"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// Bounds of an archive of files.
const (
	maxUnpacked = 1 << 30 // bytes of the archive, unpacked
	maxWindow   = 64 << 20
	maxEntries  = 2000 // that are listed
)

// changedFile is a path of the sandbox that differed from the image.
type changedFile struct {
	Name, What string
	Size       int64
	Text       bool // it has a content that can be shown
}

// changedPage shows what differed from the image when the agent had finished, if it
// was kept, or one file of it.
func (s *Server) changedPage(r *request) error {
	a, err := s.attempt(r)
	if err != nil {
		return err
	}
	data := map[string]any{"A": a}
	if name := r.FormValue("name"); name != "" {
		text, size, missing := contentOf(a.dir, name)
		if missing != nil {
			return missing
		}
		data["File"], data["Text"], data["Size"], data["Cut"] = name, plain(string(text)), size, size-int64(len(text))
		return r.show("changed", name, data)
	}
	var all []changedFile
	more := 0
	err = entries(a.dir, func(h *tar.Header, _ io.Reader) bool {
		if h.PAXRecords[system.Same] != "" || h.Name == "/" {
			return true
		}
		if len(all) == maxEntries {
			more++
			return true
		}
		all = append(all, changedOf(h))
		return true
	})
	if err != nil && len(all) == 0 {
		return err
	}
	if err != nil {
		data["Wrong"] = err.Error()
	}
	data["All"], data["More"] = all, more
	return r.show("changed", "Files that differ from the image", data)
}

func changedOf(h *tar.Header) changedFile {
	c := changedFile{Name: h.Name, Size: h.Size}
	switch {
	case h.Typeflag == tar.TypeDir:
		c.What = "folder"
	case h.Typeflag == tar.TypeSymlink:
		c.What = "link to " + h.Linkname
	case h.Typeflag == tar.TypeLink:
		c.What = "the same file as " + h.Linkname
	case h.Typeflag == tar.TypeReg:
		c.What, c.Text = "file", true
	default:
		c.What = "special file"
	}
	return c
}

// entries calls each with the entries of the archive of an attempt, until it returns
// false.
func entries(dir string, each func(h *tar.Header, content io.Reader) bool) error {
	f, err := untrusted.Open(dir, record.FilesFile, maxFile)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return err
	}
	defer z.Close()
	limited := &io.LimitedReader{R: z, N: maxUnpacked}
	in := tar.NewReader(limited)
	for {
		h, err := in.Next()
		switch {
		case limited.N <= 0:
			return fmt.Errorf("%s: only its first %d MiB are read", record.FilesFile, maxUnpacked>>20)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", record.FilesFile, err)
		}
		if !each(h, in) {
			return nil
		}
	}
}

// contentOf returns the beginning of a file of the archive, and its size.
func contentOf(dir, name string) (text []byte, size int64, err error) {
	found := false
	var readErr error
	err = entries(dir, func(h *tar.Header, content io.Reader) bool {
		if found = h.Name == name && h.Typeflag == tar.TypeReg; !found {
			return true
		}
		size = h.Size
		text, readErr = io.ReadAll(io.LimitReader(content, maxChunk))
		return false
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: %s has no file %q", errMissing, record.FilesFile, strings.ToValidUTF8(name, "?"))
	}
	return text, size, errors.Join(err, readErr)
}
