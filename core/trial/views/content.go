package views

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-eval/berth/plugins/task"
)

// item is one file, folder or link of a resource, to be written.
type item struct {
	name   string // slash-separated, below the resource; "" for the resource itself
	mode   fs.FileMode
	size   int64
	folder bool
	link   string
	text   string // the content, if the format made it
	host   string // within the task's folder, for files
}

// items lists a resource in an order in which it can be written: folders come
// before their content.
func items(t *task.Task, r *task.Resource, root *os.Root) ([]item, error) {
	if !r.Folder {
		it, err := fileItem(t, r, nil, root)
		if err != nil {
			return nil, err
		}
		return []item{it}, nil
	}
	out := []item{{folder: true, mode: 0o755}}
	for i := range r.Entries {
		e := &r.Entries[i]
		if !filepath.IsLocal(filepath.FromSlash(e.Path)) {
			return nil, fmt.Errorf("resource %q holds %q, which is not below it", r.Name, e.Path)
		}
		switch {
		case e.Folder:
			out = append(out, item{name: e.Path, folder: true, mode: perm(e.Mode, 0o755)})
		case e.Link != "":
			out = append(out, item{name: e.Path, link: e.Link, mode: 0o777})
		case e.Text != "":
			out = append(out, item{name: e.Path, text: e.Text, mode: perm(e.Mode, 0o644), size: int64(len(e.Text))})
		default:
			it, err := fileItem(t, r, e, root)
			if err != nil {
				return nil, err
			}
			out = append(out, it)
		}
	}
	return out, nil
}

func perm(mode uint32, usual fs.FileMode) fs.FileMode {
	if p := fs.FileMode(mode) & fs.ModePerm; p != 0 {
		return p
	}
	return usual
}

func fileItem(t *task.Task, r *task.Resource, e *task.Entry, root *os.Root) (item, error) {
	rel, err := filepath.Rel(t.Dir, t.HostFile(r, e))
	if err != nil {
		return item{}, fmt.Errorf("resource %q: %w", r.Name, err)
	}
	info, err := root.Stat(rel)
	if err != nil {
		return item{}, fmt.Errorf("resource %q: %w", r.Name, err)
	}
	if !info.Mode().IsRegular() {
		return item{}, fmt.Errorf("resource %q: %s is not a regular file", r.Name, rel)
	}
	it := item{host: rel, size: info.Size(), mode: info.Mode().Perm()}
	if e != nil {
		it.name = e.Path
		it.mode = perm(e.Mode, it.mode)
	}
	return it, nil
}

// write writes a resource below dir, under its name.
func write(t *task.Task, r *task.Resource, root *os.Root, dir string) error {
	its, err := items(t, r, root)
	if err != nil {
		return err
	}
	base := filepath.Join(dir, filepath.FromSlash(r.Name))
	for _, it := range its {
		to := filepath.Join(base, filepath.FromSlash(it.name))
		switch {
		case it.folder:
			err = folder(to)
		case it.link != "":
			err = link(it, to)
		default:
			var in io.ReadCloser
			if in, err = it.open(root); err == nil {
				err = errors.Join(newFile(to, in, it.mode|0o600), in.Close())
			}
		}
		if err != nil {
			return fmt.Errorf("resource %q: %w", r.Name, err)
		}
	}
	return nil
}

func link(it item, to string) error {
	target := it.link
	if path.IsAbs(target) || !filepath.IsLocal(filepath.FromSlash(path.Join(path.Dir(it.name), target))) {
		return fmt.Errorf("link %q points at %q, out of its resource", it.name, target)
	}
	if err := folder(filepath.Dir(to)); err != nil {
		return err
	}
	return os.Symlink(target, to)
}

// open opens the content of a file.
func (it *item) open(root *os.Root) (io.ReadCloser, error) {
	if it.text != "" {
		return io.NopCloser(strings.NewReader(it.text)), nil
	}
	return root.Open(it.host)
}

// folder makes a folder, and missing parent folders.
func folder(path string) error {
	if os.Mkdir(path, 0o700) == nil { // usually the parent exists, so no check is needed
		return nil
	}
	return os.MkdirAll(path, 0o700)
}

// newFile writes a file that must not exist yet, and makes missing parent
// folders.
func newFile(to string, from io.Reader, mode fs.FileMode) (err error) {
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(to), 0o700); err == nil {
			out, err = os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
		}
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	return errors.Join(err, out.Close())
}

// Sums are the SHA-256 sums of regular files in hex, by absolute path in a
// sandbox.
type Sums map[string]string

// Archive writes a resource as a tar archive, to be extracted into the folder
// that Target returns, and returns the sums of its files. The extracting side
// sets the owners. Times are zero, so that equal resources give equal bytes.
func Archive(w io.Writer, t *task.Task, r *task.Resource, place string) (Sums, error) {
	root, err := os.OpenRoot(t.Dir)
	if err != nil {
		return nil, fmt.Errorf("task %s: %w", t.Name, err)
	}
	defer root.Close()
	its, err := items(t, r, root)
	if err != nil {
		return nil, err
	}
	sums := Sums{}
	tw := tar.NewWriter(w)
	for _, it := range its {
		name := it.name
		if !r.Folder {
			name = path.Base(place)
		}
		if name == "" {
			continue // the extracting side makes the folder itself
		}
		sum, err := add(tw, root, it, name)
		if err != nil {
			return nil, fmt.Errorf("archive resource %q: %w", r.Name, err)
		}
		if sum != "" {
			sums[path.Join(Target(r, place), name)] = sum
		}
	}
	return sums, tw.Close()
}

// Target returns the folder in the sandbox into which Archive is to be
// extracted.
func Target(r *task.Resource, place string) string {
	if r.Folder {
		return place
	}
	return path.Dir(place)
}

// add writes one item as name and returns the sum of a file.
func add(tw *tar.Writer, root *os.Root, it item, name string) (string, error) {
	h := &tar.Header{Name: name, Mode: int64(it.mode), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	switch {
	case it.folder:
		h.Typeflag, h.Name = tar.TypeDir, strings.TrimSuffix(name, "/")+"/"
		return "", tw.WriteHeader(h)
	case it.link != "":
		h.Typeflag, h.Linkname = tar.TypeSymlink, it.link
		return "", tw.WriteHeader(h)
	}
	f, err := it.open(root)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h.Typeflag, h.Size = tar.TypeReg, it.size
	if err = tw.WriteHeader(h); err != nil {
		return "", err
	}
	sum := sha256.New()
	if _, err = io.Copy(io.MultiWriter(tw, sum), io.LimitReader(f, it.size)); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// EmptyFolders makes an archive that contains only folders with a mode.
func EmptyFolders(mode int64, names ...string) ([]byte, error) {
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, name := range names {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, Format: tar.FormatPAX}); err != nil {
			return nil, fmt.Errorf("archive folder %q: %w", name, err)
		}
	}
	err := tw.Close()
	return b.Bytes(), err
}
