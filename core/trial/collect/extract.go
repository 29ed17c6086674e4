package collect

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/plugins/sandbox/archive"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// extraction is the state of writing one archive.
type extraction struct {
	c       *Collector
	e       *Entry
	to      string // below Into
	implied bool
	seen    bool // the first entry, the source itself, was read
}

func (x *extraction) run(r *tar.Reader) error {
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read archive: %w", err)
		}
		if x.c.files++; x.c.files > x.c.MaxFiles {
			return fmt.Errorf("more than %d files and folders", x.c.MaxFiles)
		}
		if err := x.entry(h, r); err != nil {
			return err
		}
	}
}

func (x *extraction) entry(h *tar.Header, r io.Reader) error {
	rel := ""
	if x.seen {
		var err error
		if rel, err = below(h.Name); err != nil {
			x.drop(h.Name, err.Error())
			return nil
		}
	}
	x.seen = true
	if rel != "" && excluded(x.e.Exclude, rel) {
		return nil
	}
	name := filepath.Join(x.to, filepath.FromSlash(rel))
	switch h.Typeflag {
	case tar.TypeDir:
		if rel == "" {
			x.e.Type = "directory"
		}
		if rel == "" && x.implied || x.c.Known != "" { // created only with content
			return nil
		}
		return x.folder(name)
	case tar.TypeReg:
		if rel == "" {
			x.e.Type = "file"
		}
		if left := x.c.MaxBytes - x.c.bytes; h.Size > left { // copy none of it, even if it is sparse
			return x.tooMuch()
		}
		mode := 0o644 | h.FileInfo().Mode()&0o111
		return x.unlessKnown(rel, h.Size, r, func(r io.Reader) error { return x.file(name, mode, r) })
	default:
		if rel == "" {
			x.e.Type = "other"
			return fmt.Errorf("it is a %s, not a file or folder", kind(h.Typeflag))
		}
		x.drop(rel, kind(h.Typeflag))
		return nil
	}
}

// below returns a name of an archive relative to the source, "" for the source
// itself. It refuses names that are too long or too deep for one of the places
// that artifacts are copied to, because an agent chooses them.
func below(name string) (string, error) {
	name, err := archive.CheckName(name, archive.Limits{Name: archive.HostName, Depth: archive.HostDepth})
	if name == "." {
		name = ""
	}
	if err == nil && name != "" && !filepath.IsLocal(filepath.FromSlash(name)) {
		err = errors.New("its name is not below the source")
	}
	return name, err
}

func (x *extraction) folder(name string) error {
	root, err := x.c.open()
	if err == nil {
		err = x.unplaced(name, root.MkdirAll(name, 0o755))
	}
	return err
}

// unplaced returns an error of the host. If another entry, or the file system, does not
// let name be there, it drops the entry and returns nil.
func (x *extraction) unplaced(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTDIR):
		x.drop(name, "its place, or that of its folder, is taken")
	case untrusted.RefusesName(err):
		x.drop(name, "this host's file system refuses the name")
	default:
		return hostError{err}
	}
	return nil
}

func (x *extraction) file(name string, mode fs.FileMode, r io.Reader) error {
	root, err := x.c.open()
	if err != nil {
		return err
	}
	if name == ManifestFile {
		x.drop(name, "the name of the manifest")
		return nil
	}
	const fresh = os.O_CREATE | os.O_EXCL | os.O_WRONLY
	f, err := root.OpenFile(name, fresh, mode)
	if errors.Is(err, fs.ErrNotExist) { // usually an earlier entry has created its folder
		if err = root.MkdirAll(filepath.Dir(name), 0o755); err == nil {
			f, err = root.OpenFile(name, fresh, mode)
		}
	}
	if err != nil {
		return x.unplaced(name, err)
	}
	left := x.c.MaxBytes - x.c.bytes
	w := x.c.Redactor.Writer(f)
	var found []secret
	if x.c.Unmasked != "" {
		w.Found = func(at int64, value string) {
			if len(found) < maxSecrets {
				found = append(found, secret{at, value})
			}
		}
	}
	n, err := io.Copy(markHost{w}, io.LimitReader(r, left+1))
	err = errors.Join(err, hostly(w.Close()), hostly(f.Close()))
	x.c.bytes += n
	x.e.Files++
	x.e.Bytes += n
	x.e.Secrets += w.Hits()
	if err == nil && n > left {
		return errors.Join(hostly(root.Remove(name)), x.tooMuch())
	}
	if err == nil && len(found) > 0 {
		err = hostly(unmask(root, name, x.c.Unmasked, found))
	}
	return err
}

func (x *extraction) tooMuch() error {
	return fmt.Errorf("more than %d bytes%s", x.c.MaxBytes, x.c.full)
}

// markHost distinguishes write failures from read failures.
type markHost struct{ w io.Writer }

func (m markHost) Write(p []byte) (int, error) {
	n, err := m.w.Write(p)
	return n, hostly(err)
}

func hostly(err error) error {
	if err == nil {
		return nil
	}
	return hostError{err}
}

func (x *extraction) drop(name, why string) {
	if len(x.e.Dropped) >= limits.ArtifactDropped {
		x.e.DroppedMore++
		return
	}
	if len(name) > 200 {
		name = name[:200] + "…"
	}
	x.e.Dropped = append(x.e.Dropped, strings.ToValidUTF8(fmt.Sprintf("%q: %s", name, why), "?"))
}

func kind(flag byte) string {
	switch flag {
	case tar.TypeSymlink, tar.TypeLink:
		return "link"
	case tar.TypeChar, tar.TypeBlock:
		return "device"
	case tar.TypeFifo:
		return "pipe or socket"
	default:
		return "special file"
	}
}

// excluded reports whether a pattern excludes rel. A pattern without a slash
// matches a name at any depth, one with a slash the path from the source. If a
// folder is excluded, so is its content.
func excluded(patterns []string, rel string) bool {
	parts := strings.Split(rel, "/")
	for _, p := range patterns {
		p = strings.TrimSuffix(strings.TrimPrefix(p, "./"), "/")
		if !strings.Contains(p, "/") {
			for _, part := range parts {
				if ok, err := path.Match(p, part); err == nil && ok {
					return true
				}
			}
			continue
		}
		p = strings.TrimPrefix(p, "/")
		for i := range parts {
			if ok, err := path.Match(p, strings.Join(parts[:i+1], "/")); err == nil && ok {
				return true
			}
		}
	}
	return false
}

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

// secret is one that was masked in a file.
type secret struct {
	at    int64
	value string
}

// maxSecrets is how many secrets of one file are put back, so that an agent that
// writes nothing else cannot use up the memory. The others stay masked.
const maxSecrets = 1 << 20

// unmask copies a file of root to the same path in another folder, with its secrets.
func unmask(root *os.Root, name, folder string, found []secret) error {
	in, err := root.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	to := filepath.Join(folder, name)
	if err = os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	for _, s := range found {
		if err == nil {
			_, err = out.WriteAt([]byte(s.value), s.at)
		}
	}
	return errors.Join(err, out.Close())
}
