package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/moby/patternmatcher"

	"github.com/berth-eval/berth/environments/internal/dockerfile"
	"github.com/berth-eval/berth/plugins/environment"
)

// Pack writes the files that the image copies and its folders as a tar archive
// with absolute paths. exists reports whether a path inside is a folder of the
// base. A source that is a link out of the build folder, or neither a regular
// file nor a folder, is an error (environment.ErrBuildFailed).
func (im *Image) Pack(w io.Writer, exists func(path string) bool) error {
	if im.Build.Build == "" {
		return nil
	}
	root, err := os.OpenRoot(im.Build.Build)
	if err != nil {
		return fmt.Errorf("%w: %w", environment.ErrBadImage, err)
	}
	defer root.Close()
	p := &packer{root: root, tar: tar.NewWriter(w), exists: exists, made: map[string]bool{"/": true}}
	if p.ignored, err = dockerfile.Ignored(root, im.Build.File); err != nil {
		return fmt.Errorf("%w: %w", environment.ErrBuildFailed, err)
	}
	p.without = im.Build.Exclude
	for _, s := range im.steps {
		if s.Copy == nil {
			if err := p.folder(s.Folder); err != nil {
				return err
			}
			continue
		}
		if err := p.copy(s.Copy); err != nil {
			return fmt.Errorf("%w: %s line %d: %w", environment.ErrBuildFailed, im.path(), s.Copy.Line, err)
		}
	}
	return p.tar.Close()
}

type packer struct {
	root    *os.Root
	tar     *tar.Writer
	ignored *patternmatcher.PatternMatcher
	without []string // files and folders that are not part of the build folder
	exists  func(string) bool
	made    map[string]bool // folders that are in the archive

	c *dockerfile.Copy // the current instruction
}

// folder adds a folder of WORKDIR.
func (p *packer) folder(dir string) error {
	if p.made[dir] || p.exists(dir) {
		return nil
	}
	p.note(dir)
	return p.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755})
}

// note records a folder and those above it.
func (p *packer) note(dir string) {
	for ; !p.made[dir]; dir = path.Dir(dir) {
		p.made[dir] = true
	}
}

func (p *packer) copy(c *dockerfile.Copy) error {
	p.c = c
	var found []string
	for _, source := range c.Sources {
		some, err := p.glob(clean(source))
		if err != nil {
			return fmt.Errorf("%q: %w", source, err)
		}
		if len(some) == 0 {
			return fmt.Errorf("%q: there is no such file in the build folder, or .dockerignore leaves it out", source)
		}
		found = append(found, some...)
	}
	to, isFolder := strings.CutSuffix(c.To, "/")
	if to == "" {
		to = "/"
	}
	isFolder = isFolder || len(found)+len(c.Inline) > 1 || p.made[to] || p.exists(to)
	for _, name := range found {
		if err := p.source(name, to, isFolder); err != nil {
			return err
		}
	}
	for _, in := range c.Inline {
		at := to
		if isFolder {
			at = path.Join(to, path.Base(path.Join("/", in.Name)))
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: at, Size: int64(len(in.Data)), Mode: 0o644}
		if err := p.write(h, strings.NewReader(in.Data)); err != nil {
			return err
		}
	}
	return nil
}

// clean returns a path in the build folder. As in Docker, a leading slash and
// leading .. mean the folder itself.
func clean(p string) string {
	if p = strings.TrimPrefix(path.Join("/", p), "/"); p == "" {
		return "."
	}
	return p
}

// source copies one file or folder that an instruction names.
func (p *packer) source(name, to string, isFolder bool) error {
	at, err := filepath.EvalSymlinks(filepath.Join(p.root.Name(), name))
	if err == nil {
		at, err = filepath.Rel(p.root.Name(), at)
	}
	if len(p.without) > 0 && (err != nil || p.excluded(at)) {
		return fmt.Errorf("%q: the build does not see the tests and the solution of its task", name)
	}
	info, err := p.root.Stat(name) // follows links, but never out of the folder
	if err != nil {
		return err
	}
	if info.IsDir() {
		return p.tree(name, to)
	}
	if isFolder {
		to = path.Join(to, path.Base(name))
	}
	return p.file(name, to, info)
}

// glob returns the files that match a pattern and are not left out by
// .dockerignore.
func (p *packer) glob(pattern string) (found []string, err error) {
	all := []string{pattern}
	if strings.ContainsAny(pattern, `*?[\`) {
		if all, err = doublestar.Glob(p.root.FS(), pattern, doublestar.WithNoFollow()); err != nil {
			return nil, err
		}
		slices.Sort(all)
	}
	for _, name := range all {
		info, err := p.root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if name == "." || !p.left(name) || info.IsDir() && p.ignored.Exclusions() {
			found = append(found, name)
		}
	}
	return found, nil
}

// left reports whether a file is left out.
func (p *packer) left(name string) bool {
	out, err := p.ignored.MatchesOrParentMatches(name)
	return out || err != nil || p.excluded(name)
}

// excluded reports whether a file is not part of the build folder.
func (p *packer) excluded(name string) bool {
	return slices.ContainsFunc(p.without, func(x string) bool { return name == x || strings.HasPrefix(name, x+"/") })
}

// tree copies the contents of a folder.
func (p *packer) tree(name, to string) error {
	if !p.exists(to) && !p.made[to] {
		p.note(to)
		if err := p.header(&tar.Header{Typeflag: tar.TypeDir, Name: to, Mode: 0o755}); err != nil {
			return err
		}
	}
	f, err := p.root.Open(name)
	if err != nil {
		return err
	}
	entries, err := f.ReadDir(-1)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if err := p.entry(path.Join(name, e.Name()), path.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// entry copies one entry of a folder.
func (p *packer) entry(from, at string) error {
	info, err := p.root.Lstat(from)
	if err != nil {
		return err
	}
	if p.left(from) {
		if !info.IsDir() || !p.ignored.Exclusions() || !p.hasException(from) {
			return nil
		}
	}
	switch {
	case info.IsDir():
		p.note(at)
		h := &tar.Header{Typeflag: tar.TypeDir, Name: at, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime()}
		if err := p.header(h); err != nil {
			return err
		}
		return p.tree(from, at)
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := p.root.Readlink(from)
		if err != nil {
			return err
		}
		return p.header(&tar.Header{Typeflag: tar.TypeSymlink, Name: at, Linkname: target, Mode: 0o777, ModTime: info.ModTime()})
	default:
		return p.file(from, at, info)
	}
}

// hasException reports whether an exception (!name) includes a file of a folder
// that is left out.
func (p *packer) hasException(dir string) bool {
	some := false
	err := fs.WalkDir(p.root.FS(), dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !p.left(name) {
			some = true
			return fs.SkipAll
		}
		return err
	})
	return err == nil && some
}

// file copies one regular file.
func (p *packer) file(from, at string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() { // checked before it is opened, because a FIFO would block
		return fmt.Errorf("%q is neither a file nor a folder (%v)", from, info.Mode().Type())
	}
	f, err := p.root.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	now, err := f.Stat()
	if err != nil {
		return err
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: at, Size: now.Size(), Mode: int64(now.Mode().Perm()), ModTime: now.ModTime()}
	if err := p.write(h, f); err != nil {
		return fmt.Errorf("%q: %w", from, err)
	}
	return nil
}

// write writes a file of h.Size bytes.
func (p *packer) write(h *tar.Header, r io.Reader) error {
	if err := p.header(h); err != nil {
		return err
	}
	p.note(path.Dir(h.Name))
	if _, err := io.CopyN(p.tar, r, h.Size); err != nil {
		return fmt.Errorf("changed while it was copied: %w", err)
	}
	return nil
}

// header writes h with the owner and mode that the instruction sets.
func (p *packer) header(h *tar.Header) error {
	if h.Typeflag != tar.TypeSymlink && p.c.Mode != "" {
		mode, err := strconv.ParseUint(p.c.Mode, 8, 12)
		if err != nil {
			return fmt.Errorf("--chmod=%s: write octal digits, at most 7777", p.c.Mode)
		}
		h.Mode = int64(mode)
	}
	for _, w := range []struct {
		name string
		id   *int
		as   *string
	}{{p.c.User, &h.Uid, &h.Uname}, {p.c.Group, &h.Gid, &h.Gname}} {
		if n, err := strconv.Atoi(w.name); err == nil {
			*w.id = n
		} else {
			*w.as = w.name
		}
	}
	switch p.c.Group {
	case "": // as in Docker: the group with the user's number; for a name, only the sandbox knows it
		h.Gid = h.Uid
	case "0":
		h.Gname = "root"
	}
	return p.tar.WriteHeader(h)
}
