package engine

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// contextOf is the build context in folder as an archive, without what its
// .dockerignore leaves out. The reader ends with the first error of the folder;
// the caller closes it.
func contextOf(folder, dockerfile string) io.ReadCloser {
	r, w := io.Pipe()
	go func() { w.CloseWithError(pack(w, folder, dockerfile)) }()
	return r
}

// pack writes the archive. Owners and times are not in it: the same content is
// the same archive.
func pack(w io.Writer, folder, dockerfile string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	skip, err := ignored(root, dockerfile)
	if err != nil {
		return err
	}
	t := tar.NewWriter(w)
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if name != dockerfile && name != ".dockerignore" && name != dockerfile+".dockerignore" {
			out, err := skip.MatchesOrParentMatches(filepath.FromSlash(name))
			if err != nil {
				return err
			}
			if out {
				if d.IsDir() && !skip.Exclusions() {
					return fs.SkipDir
				}
				return nil
			}
		}
		return entry(t, root, name, d)
	})
	return errors.Join(err, t.Close())
}

func ignored(root *os.Root, dockerfile string) (*patternmatcher.PatternMatcher, error) {
	f, err := root.Open(dockerfile + ".dockerignore")
	if errors.Is(err, fs.ErrNotExist) {
		f, err = root.Open(".dockerignore")
	}
	if errors.Is(err, fs.ErrNotExist) {
		return patternmatcher.New(nil)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	patterns, err := ignorefile.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf(".dockerignore: %w", err)
	}
	return patternmatcher.New(patterns)
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
func digestOf(folder, dockerfile string) (string, error) {
	h := sha256.New()
	if err := pack(h, folder, dockerfile); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}
