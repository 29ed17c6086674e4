package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/berth-eval/berth/plugins/environment"
)

// Pack writes what the image copies and its folders as a tar archive whose
// names are absolute paths inside. exists says whether a path inside is a
// folder of the base. A source that is a link out of the build folder, or no
// regular file or folder, is an error.
func (im *Image) Pack(w io.Writer, exists func(path string) bool) error {
	if im.dir == "" {
		return nil
	}
	root, err := os.OpenRoot(im.dir)
	if err != nil {
		return fmt.Errorf("%w: %w", environment.ErrBadImage, err)
	}
	defer root.Close()
	p := &packer{root: root, tar: tar.NewWriter(w), exists: exists, made: map[string]bool{"/": true}}
	if p.ignore, err = readIgnore(root, im.file); err != nil {
		return fmt.Errorf("%w: %w", environment.ErrBuildFailed, err)
	}
	folders := 0
	for _, c := range im.copies {
		for ; folders < c.after; folders++ {
			if err := p.folder(im.Folders[folders]); err != nil {
				return err
			}
		}
		if err := p.copy(c); err != nil {
			return fmt.Errorf("%w: %s line %d: %w", environment.ErrBuildFailed, im.file, c.line, err)
		}
	}
	for _, dir := range im.Folders[folders:] {
		if err := p.folder(dir); err != nil {
			return err
		}
	}
	return p.tar.Close()
}

// Empty says whether Pack has nothing to write.
func (im *Image) Empty() bool { return len(im.copies) == 0 && len(im.Folders) == 0 }

// Owners are the users and groups that the files are to belong to, beside root.
func (im *Image) Owners() (users []string) {
	for _, c := range im.copies {
		for _, name := range []string{c.user, c.group} {
			if name != "" && name != "0" && name != "root" && !slices.Contains(users, name) {
				users = append(users, name)
			}
		}
	}
	return users
}

type packer struct {
	root   *os.Root
	tar    *tar.Writer
	ignore ignore
	exists func(string) bool
	made   map[string]bool // folders of the archive
}

func (p *packer) folder(dir string) error {
	if p.made[dir] || p.exists(dir) {
		return nil
	}
	p.made[dir] = true
	return p.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755})
}

func (p *packer) isFolder(dir string) bool {
	if p.made[dir] || p.exists(dir) {
		return true
	}
	for d := range p.made { // made on the way to something
		if strings.HasPrefix(d, strings.TrimSuffix(dir, "/")+"/") {
			return true
		}
	}
	return false
}

func (p *packer) copy(c copying) error {
	var found []string
	for _, source := range c.sources {
		// As in Docker: a leading slash and leading .. mean the build folder.
		pattern := strings.TrimPrefix(path.Join("/", source), "/")
		if pattern == "" {
			pattern = "."
		}
		some, err := p.glob(pattern)
		if err != nil {
			return fmt.Errorf("%q: %w", source, err)
		}
		if len(some) == 0 {
			return fmt.Errorf("%q: there is no such file in the build folder, or .dockerignore leaves it out", source)
		}
		found = append(found, some...)
	}
	to, intoFolder := strings.CutSuffix(c.to, "/")
	if to == "" {
		to = "/"
	}
	intoFolder = intoFolder || len(found) > 1 || p.isFolder(to)
	for _, name := range found {
		info, err := p.root.Stat(name) // through links, but never out of the folder
		if err != nil {
			return err
		}
		switch {
		case info.IsDir():
			err = p.tree(name, to, c)
		case intoFolder:
			err = p.file(name, path.Join(to, path.Base(name)), info, c)
		default:
			err = p.file(name, to, info, c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// glob finds the files that a pattern names and .dockerignore leaves in.
func (p *packer) glob(pattern string) (found []string, err error) {
	if !strings.ContainsAny(pattern, `*?[\`) {
		switch _, err = p.root.Lstat(pattern); {
		case errors.Is(err, fs.ErrNotExist):
			return nil, nil
		case err != nil:
			return nil, err
		}
		if pattern != "." && p.ignore.match(pattern) && !p.ignore.exceptions {
			return nil, nil
		}
		return []string{pattern}, nil
	}
	all, err := doublestar.Glob(p.root.FS(), pattern, doublestar.WithNoFollow())
	if err != nil {
		return nil, err
	}
	for _, name := range all {
		if !p.ignore.match(name) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found, nil
}

// tree copies what is in a folder.
func (p *packer) tree(name, to string, c copying) error {
	if !p.exists(to) && !p.made[to] {
		p.made[to] = true
		if err := p.header(&tar.Header{Typeflag: tar.TypeDir, Name: to, Mode: 0o755}, c); err != nil {
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
		from, at := path.Join(name, e.Name()), path.Join(to, e.Name())
		ignored := p.ignore.match(from)
		if ignored && (!e.IsDir() || !p.ignore.exceptions) {
			continue
		}
		info, err := p.root.Lstat(from)
		if err != nil {
			return err
		}
		switch {
		case info.IsDir() && ignored:
			err = p.treeOfExceptions(from, at, c)
		case info.IsDir():
			p.made[at] = true
			if err = p.header(&tar.Header{Typeflag: tar.TypeDir, Name: at, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime()}, c); err == nil {
				err = p.tree(from, at, c)
			}
		case info.Mode()&fs.ModeSymlink != 0:
			var target string
			if target, err = p.root.Readlink(from); err == nil {
				err = p.header(&tar.Header{Typeflag: tar.TypeSymlink, Name: at, Linkname: target, Mode: 0o777, ModTime: info.ModTime()}, c)
			}
		default:
			err = p.file(from, at, info, c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// treeOfExceptions copies what an exception (!name) brings back from a folder
// that is left out; the folder itself comes only with something in it.
func (p *packer) treeOfExceptions(from, at string, c copying) error {
	some := false
	err := fs.WalkDir(p.root.FS(), from, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !p.ignore.match(name) {
			some = true
			return fs.SkipAll
		}
		return err
	})
	if err != nil || !some {
		return err
	}
	return p.tree(from, at, c)
}

// file copies one regular file.
func (p *packer) file(from, at string, info fs.FileInfo, c copying) error {
	if !info.Mode().IsRegular() {
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
	if !now.Mode().IsRegular() {
		return fmt.Errorf("%q is no file any more", from)
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: at, Size: now.Size(), Mode: int64(now.Mode().Perm()), ModTime: now.ModTime()}
	if err := p.header(h, c); err != nil {
		return err
	}
	p.made[path.Dir(at)] = true
	if _, err := io.CopyN(p.tar, f, now.Size()); err != nil {
		return fmt.Errorf("%q changed while it was copied: %w", from, err)
	}
	return nil
}

// header writes h with the owner and mode that c asks for.
func (p *packer) header(h *tar.Header, c copying) error {
	if c.mode >= 0 && h.Typeflag != tar.TypeSymlink {
		h.Mode = c.mode
	}
	for _, w := range []struct {
		name string
		id   *int
		as   *string
	}{{c.user, &h.Uid, &h.Uname}, {c.group, &h.Gid, &h.Gname}} {
		if n, err := strconv.Atoi(w.name); err == nil {
			*w.id = n
		} else if w.name != "root" {
			*w.as = w.name
		}
	}
	switch c.group {
	case "": // as in Docker: the group of the same number; of a name that is known inside only
		h.Gid = h.Uid
	case "0", "root":
		h.Gname = "root"
	}
	return p.tar.WriteHeader(h)
}

// ignore is a .dockerignore: the last pattern that matches decides.
type ignore struct {
	patterns   []string
	exceptions bool
}

func readIgnore(root *os.Root, dockerfile string) (ig ignore, err error) {
	text, err := root.ReadFile(dockerfile + ".dockerignore")
	if errors.Is(err, fs.ErrNotExist) {
		text, err = root.ReadFile(".dockerignore")
	}
	if errors.Is(err, fs.ErrNotExist) {
		return ig, nil
	}
	if err != nil {
		return ig, err
	}
	s := bufio.NewScanner(bytes.NewReader(text))
	for s.Scan() {
		line := strings.TrimSpace(s.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		body, not := strings.CutPrefix(line, "!")
		body = strings.TrimPrefix(path.Join("/", strings.TrimSpace(body)), "/")
		if body == "" {
			continue
		}
		if !doublestar.ValidatePattern(body) {
			return ig, fmt.Errorf(".dockerignore: %q is not a pattern", line)
		}
		if not {
			body = "!" + body
			ig.exceptions = true
		}
		ig.patterns = append(ig.patterns, body)
	}
	return ig, s.Err()
}

// match says whether name, or a folder above it, is left out.
func (ig ignore) match(name string) bool {
	out := false
	for _, pattern := range ig.patterns {
		body, not := strings.CutPrefix(pattern, "!")
		for p := name; p != "."; p = path.Dir(p) {
			if ok, err := doublestar.Match(body, p); err == nil && ok {
				out = !not
				break
			}
		}
	}
	return out
}
