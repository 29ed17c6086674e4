package environment

import (
	"cmp"
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
	"syscall"
)

// copied is one COPY of a Dockerfile.
type copied struct {
	text    string // the line, for errors
	sources []string
	to      string // absolute
	folder  bool   // to is a folder, whether it exists or not
	mode    fs.FileMode
	changed bool // mode is that of --chmod
}

// readCopy reads the words after COPY.
func readCopy(words []string, workdir string) (c copied, ok bool) {
	for len(words) > 0 && strings.HasPrefix(words[0], "--") {
		name, value, _ := strings.Cut(words[0], "=")
		switch {
		case name == "--chown" && slices.Contains([]string{"root", "0", "root:root", "0:0"}, value):
		case name == "--chmod":
			mode, err := strconv.ParseUint(value, 8, 32)
			if err != nil || mode > 0o777 {
				return c, false
			}
			c.mode, c.changed = fs.FileMode(mode), true
		default:
			return c, false
		}
		words = words[1:]
	}
	if len(words) < 2 || strings.ContainsAny(strings.Join(words, ""), "*?[<") {
		return c, false
	}
	for _, s := range words[:len(words)-1] {
		s = path.Clean(strings.TrimLeft(s, "/"))
		if !fs.ValidPath(s) {
			return c, false
		}
		c.sources = append(c.sources, s)
	}
	to := words[len(words)-1]
	c.folder = strings.HasSuffix(to, "/") || path.Base(to) == "."
	if c.to = path.Clean(to); !path.IsAbs(to) {
		c.to = path.Join("/", workdir, to)
	}
	return c, c.folder || len(c.sources) == 1
}

// Files places what COPY copies from the folder of a build in root, an empty
// folder on the host: a file for /app/x of the sandbox is app/x there. It does
// nothing for an image without a COPY. The caller shows the files in the
// sandbox, where they belong to root.
//
// A symbolic link is placed as it is, and never followed out of either folder.
func (e Plain) Files(i Image, root string) error {
	if err := os.Chmod(root, 0o755); err != nil || i.Build == "" { //nolint:gosec // it becomes the root of the sandbox
		return err
	}
	f, err := e.read(i)
	if err != nil || len(f.copies) == 0 {
		return err
	}
	to, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer to.Close()
	return e.place(i, f, to)
}

// place places what COPY copies in to; nil only checks whether that is possible.
func (e Plain) place(i Image, f plainFile, to *os.Root) error {
	if len(f.copies) == 0 {
		return nil
	}
	from, err := os.OpenRoot(i.Build)
	if err != nil {
		return err
	}
	defer from.Close()
	for _, name := range []string{".dockerignore", cmp.Or(i.File, "Dockerfile") + ".dockerignore"} {
		if _, err = from.Lstat(filepath.FromSlash(name)); err == nil {
			return fmt.Errorf("the Dockerfile copies files, with a %s", name)
		}
	}
	p := &placing{from: from, to: to, hidden: e.Hidden, folders: map[string]bool{"/": true}}
	if f.facts.Workdir != "" {
		p.folders[f.facts.Workdir] = true
	}
	for _, c := range f.copies {
		if err := p.copy(c); err != nil {
			return fmt.Errorf("%s: %w", c.text, err)
		}
	}
	return nil
}

// placing is the state between two COPY instructions.
type placing struct {
	from    *os.Root
	to      *os.Root        // nil: nothing is written
	hidden  []string        // folders of the sandbox in which nothing can be placed
	folders map[string]bool // of the sandbox that exist, absolute
}

func (p *placing) copy(c copied) error {
	for _, s := range c.sources {
		info, err := p.from.Stat(filepath.FromSlash(s)) // a link in the folder is followed
		switch {
		case err != nil:
			return err
		case info.IsDir():
			err = p.tree(s, c)
		case c.folder || p.folders[c.to]:
			err = p.file(s, path.Join(c.to, path.Base(s)), c)
		default:
			err = p.file(s, c.to, c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tree places the content of a folder.
func (p *placing) tree(source string, c copied) error {
	return fs.WalkDir(p.from.FS(), source, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		at := path.Join(c.to, strings.TrimPrefix(name, source))
		if source == "." {
			at = path.Join(c.to, name)
		}
		switch {
		case name == source:
			return p.parents(path.Join(at, "x"))
		case d.IsDir():
			info, wrong := d.Info()
			if wrong != nil {
				return wrong
			}
			mode := info.Mode().Perm()
			if c.changed {
				mode = c.mode
			}
			return p.mkdir(at, mode)
		case d.Type() == fs.ModeSymlink:
			return p.link(name, at)
		default:
			return p.file(name, at, c)
		}
	})
}

// mkdir makes a folder of the sandbox, and those that it is in.
func (p *placing) mkdir(at string, mode fs.FileMode) error {
	if at == "/" {
		return nil
	}
	if err := p.parents(at); err != nil {
		return err
	}
	if err := p.seen(at); err != nil {
		return err
	}
	p.folders[at] = true
	if p.to == nil {
		return nil
	}
	name := filepath.FromSlash(at[1:])
	if err := p.to.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return p.to.Chmod(name, mode|0o700) // more is placed in it; root, whose it is, needs no permission
}

// parents makes the folders that at is in.
func (p *placing) parents(at string) error {
	dir := path.Dir(at)
	if dir == "/" {
		return nil
	}
	if p.folders[dir] && p.to == nil {
		return p.seen(dir)
	}
	if p.to != nil {
		if info, err := p.to.Stat(filepath.FromSlash(dir[1:])); err == nil && info.IsDir() {
			return nil
		}
	}
	return p.mkdir(dir, 0o755)
}

// seen returns an error if a path would be hidden in the sandbox.
func (p *placing) seen(at string) error {
	for _, h := range p.hidden {
		if at == h || strings.HasPrefix(at, strings.TrimSuffix(h, "/")+"/") {
			return fmt.Errorf("nothing can be placed in %s of the sandbox", h)
		}
	}
	return nil
}

func (p *placing) file(source, at string, c copied) (err error) {
	if err = errors.Join(p.seen(at), p.parents(at)); err != nil {
		return err
	}
	in, err := p.from.OpenFile(filepath.FromSlash(source), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is neither a file nor a folder", source)
	}
	if p.to == nil {
		return nil
	}
	mode := info.Mode().Perm()
	if c.changed {
		mode = c.mode
	}
	out, err := p.to.OpenFile(filepath.FromSlash(at[1:]), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err = io.Copy(out, in); err == nil {
		err = out.Chmod(mode)
	}
	return err
}

func (p *placing) link(source, at string) error {
	if err := errors.Join(p.seen(at), p.parents(at)); err != nil {
		return err
	}
	text, err := p.from.Readlink(filepath.FromSlash(source))
	if err != nil || p.to == nil {
		return err
	}
	return p.to.Symlink(text, filepath.FromSlash(at[1:]))
}
