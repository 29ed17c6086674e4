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
	items, err := e.plan(i, f)
	if err != nil {
		return err
	}
	from, err := os.OpenRoot(i.Build)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer to.Close()
	for _, it := range items {
		if err := it.place(from, to); err != nil {
			return err
		}
	}
	return nil
}

// plan lists what COPY copies, or says why it cannot be placed.
func (e Plain) plan(i Image, f plainFile) ([]item, error) {
	if len(f.copies) == 0 {
		return nil, nil
	}
	from, err := os.OpenRoot(i.Build)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	for _, name := range []string{".dockerignore", cmp.Or(i.File, "Dockerfile") + ".dockerignore"} {
		if _, err = from.Lstat(filepath.FromSlash(name)); err == nil {
			return nil, fmt.Errorf("the Dockerfile copies files, with a %s", name)
		}
	}
	p := &planner{from: from, hidden: e.Hidden, folders: map[string]bool{f.facts.Workdir: true}, made: map[string]bool{"/": true}}
	for _, c := range f.copies {
		for _, source := range c.sources {
			if err := p.source(source, c); err != nil {
				return nil, fmt.Errorf("%s: %w", c.text, err)
			}
		}
	}
	return p.items, nil
}

// item is a file, folder or link that is to be placed.
type item struct {
	from, at string      // from is relative to the folder of the build, at absolute in the sandbox
	mode     fs.FileMode // with the type
}

// planner is the state between two COPY instructions.
type planner struct {
	from    *os.Root
	hidden  []string        // folders of the sandbox in which nothing can be placed
	folders map[string]bool // of the sandbox, which need not be made yet
	made    map[string]bool // folders in items
	items   []item
}

// source plans what one source of a COPY copies. A link that it names is followed.
func (p *planner) source(source string, c copied) error {
	info, err := p.from.Stat(filepath.FromSlash(source))
	if err != nil {
		return err
	}
	if !info.IsDir() {
		at := c.to
		if c.folder || at == "/" || p.folders[at] || p.made[at] {
			at = path.Join(at, path.Base(source))
		}
		return p.add(source, at, info.Mode(), c)
	}
	return fs.WalkDir(p.from.FS(), source, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name == source {
			return p.folder(c.to)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return p.add(name, path.Join(c.to, strings.TrimPrefix("/"+name, path.Join("/", source))), info.Mode(), c)
	})
}

// add plans one file, folder or link.
func (p *planner) add(from, at string, mode fs.FileMode, c copied) error {
	if mode.Type() != 0 && !mode.IsDir() && mode.Type() != fs.ModeSymlink {
		return fmt.Errorf("%s is neither a file nor a folder", from)
	}
	for _, h := range p.hidden {
		if at == h || strings.HasPrefix(at, strings.TrimSuffix(h, "/")+"/") {
			return fmt.Errorf("nothing can be placed in %s of the sandbox", h)
		}
	}
	if err := p.folder(path.Dir(at)); err != nil {
		return err
	}
	if c.changed {
		mode = mode.Type() | c.mode
	}
	if mode.IsDir() {
		p.made[at] = true
	}
	p.items = append(p.items, item{from, at, mode})
	return nil
}

// folder plans a folder and those above it, unless they are planned already.
func (p *planner) folder(at string) error {
	if p.made[at] {
		return nil
	}
	return p.add("", at, fs.ModeDir|0o755, copied{})
}

// place makes an item.
func (it item) place(from, to *os.Root) error {
	name, source := filepath.FromSlash(it.at[1:]), filepath.FromSlash(it.from)
	switch {
	case it.mode.IsDir():
		if err := to.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return to.Chmod(name, it.mode.Perm()|0o700) // more is placed in it; root, whose it is, needs no permission
	case it.mode.Type() == fs.ModeSymlink:
		text, err := from.Readlink(source)
		if err != nil {
			return err
		}
		return to.Symlink(text, name)
	}
	in, err := from.OpenFile(source, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := to.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err = io.Copy(out, in); err == nil {
		err = out.Chmod(it.mode.Perm())
	}
	return errors.Join(err, out.Close())
}
