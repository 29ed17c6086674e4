package views

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/berth-eval/berth/plugins/task"
)

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
