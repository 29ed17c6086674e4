package engine

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/moby/patternmatcher"

	"github.com/berth-eval/berth/environments/internal/dockerfile"
	"github.com/berth-eval/berth/plugins/environment"
)

// contextOf is the build context of an image as an archive, without what its
// .dockerignore leaves out. The reader ends with the first error of the folder;
// the caller closes it.
func contextOf(im environment.Image) io.ReadCloser {
	r, w := io.Pipe()
	go func() { w.CloseWithError(pack(w, im)) }()
	return r
}

// pack writes the archive. Owners and times are not in it: the same content is
// the same archive.
func pack(w io.Writer, im environment.Image) error {
	root, err := os.OpenRoot(im.Build)
	if err != nil {
		return err
	}
	defer root.Close()
	skip, err := dockerfile.Ignored(root, fileOf(im))
	if err != nil {
		return err
	}
	t := tar.NewWriter(w)
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		switch out, whole, err := leftOut(im, skip, name); {
		case err != nil:
			return err
		case out && whole && d.IsDir():
			return fs.SkipDir
		case out:
			return nil
		}
		return entry(t, root, name, d)
	})
	for _, name := range slices.Sorted(maps.Keys(im.Files)) {
		if err == nil {
			err = added(t, name, im.Files[name])
		}
	}
	return errors.Join(err, t.Close())
}

// leftOut reports whether a file of the folder is not in the archive; whole, whether the
// same holds for everything below it.
func leftOut(im environment.Image, skip *patternmatcher.PatternMatcher, name string) (out, whole bool, err error) {
	file := fileOf(im)
	_, added := im.Files[name]
	switch {
	case slices.Contains(im.Exclude, name):
		return true, true, nil
	case added:
		return true, false, nil
	case name == ".dockerignore", name == file+".dockerignore":
		return len(im.Files) > 0, false, nil // it was applied here: an engine would apply it to the added files, too
	case name == file:
		return false, false, nil
	}
	out, err = skip.MatchesOrParentMatches(filepath.FromSlash(name))
	return out, !skip.Exclusions(), err
}

// added writes a file that is not in the folder.
func added(t *tar.Writer, name string, data []byte) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data)), ModTime: time.Unix(0, 0)}
	if bytes.HasPrefix(data, []byte("#!")) {
		h.Mode = 0o755
	}
	err := t.WriteHeader(h)
	if err == nil {
		_, err = t.Write(data)
	}
	return err
}

func entry(t *tar.Writer, root *os.Root, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	h := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()), ModTime: time.Unix(0, 0)}
	switch mode := info.Mode(); {
	case mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	case mode&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = root.Readlink(name); err != nil {
			return err
		}
	case mode.IsRegular():
		h.Typeflag, h.Size = tar.TypeReg, info.Size()
	default:
		return fmt.Errorf("%s is neither file, folder nor link: a build context holds nothing else", path.Clean(name))
	}
	if err = t.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
		return err
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.CopyN(t, f, h.Size); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// digestOf is the digest of a build context.
func digestOf(im environment.Image) (string, error) {
	h := sha256.New()
	if err := pack(h, im); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}
