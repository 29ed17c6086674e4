package bundler

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-eval/berth/plugins/agent/bundle"
)

// loaderName is the loader in a bundle: what its programs name instead of the
// one that they were linked for.
const loaderName = "ld.so"

// machine is what differs between processors.
type machine struct {
	multiarch string // Debian's name
	loader    string // file of the loader in Debian
}

var machines = map[string]machine{
	"amd64": {multiarch: "x86_64-linux-gnu", loader: "ld-linux-x86-64.so.2"},
	"arm64": {multiarch: "aarch64-linux-gnu", loader: "ld-linux-aarch64.so.1"},
}

// fit gives every program of the bundle the bundle's own loader, and modes that
// let everybody read it. So a program runs in any image: it uses nothing of the
// image, neither its loader nor its libraries, and what it starts finds those of
// the image as ever, since no variable is set for it. A program still knows by
// /proc/self/exe who it is, which one that is started through the loader
// ("ld.so program") would not.
func fit(ctx context.Context, root string) error {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if d.Type() == fs.ModeSymlink {
			return linkInside(root, path)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if d.IsDir() || info.Mode()&0o111 != 0 {
			mode = 0o755
		}
		if info.Mode() != mode|info.Mode().Type() {
			if err = os.Chmod(path, mode); err != nil {
				return err
			}
		}
		if d.IsDir() || mode == 0o644 {
			return nil
		}
		return ownLoader(root, path)
	})
	if err != nil {
		return err
	}
	return linksInside(root)
}

// linkInside removes a link that leads out of the bundle: it would lead into
// the image. An absolute one that stays is made relative.
func linkInside(root, path string) error {
	to, err := os.Readlink(path)
	if err != nil {
		return err
	}
	at := filepath.Join(filepath.Dir(path), to)
	if filepath.IsAbs(to) {
		at = filepath.Join(root, to)
	}
	rel, err := filepath.Rel(root, at)
	if err != nil || !filepath.IsLocal(rel) {
		return os.Remove(path)
	}
	if _, err = os.Lstat(at); errors.Is(err, fs.ErrNotExist) {
		return os.Remove(path)
	}
	if !filepath.IsAbs(to) {
		return nil
	}
	if to, err = filepath.Rel(filepath.Dir(path), at); err != nil {
		return err
	}
	return errors.Join(os.Remove(path), os.Symlink(to, path))
}

// ownLoader puts the bundle's loader into a program that names the C library's
// usual one. The name is overwritten where it stands: nothing moves, so that
// programs which carry data behind their end are left whole.
func ownLoader(root, path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	magic := make([]byte, 4)
	if _, err = io.ReadFull(f, magic); err != nil || string(magic) != elf.ELFMAG {
		return nil //nolint:nilerr // not a program of this kind
	}
	e, err := elf.NewFile(f)
	if err != nil {
		return nil //nolint:nilerr // a program for another kind of machine, or test data
	}
	for _, p := range e.Progs {
		if p.Type != elf.PT_INTERP || p.Filesz == 0 || p.Filesz > 4096 {
			continue
		}
		name := make([]byte, p.Filesz)
		if _, err = f.ReadAt(name, int64(p.Off)); err != nil { //nolint:gosec // checked by debug/elf
			return fmt.Errorf("loader of %s: %w", path, err)
		}
		if !strings.Contains(string(name), "ld-linux") {
			return nil // of another C library, which it does not get from us
		}
		own := bundle.Place + "/" + loaderName
		if len(own) >= len(name) {
			return fmt.Errorf("program %s has room for a loader's path of %d bytes, %s has %d", path, len(name)-1, own, len(own))
		}
		if _, err = os.Stat(filepath.Join(root, loaderName)); err != nil {
			return fmt.Errorf("program %s needs a C library: add libc6 to the recipe's packages of Debian", path)
		}
		copy(name, own)
		clear(name[len(own):])
		_, err = f.WriteAt(name, int64(p.Off)) //nolint:gosec // as above
		return err
	}
	return nil
}

// fitLoader makes a C library's loader look for libraries in the bundle alone:
// not in the image's folders, whose libraries belong to another version, and
// not in the image's cache of them.
func fitLoader(root string, m machine) error {
	lib := "/usr/lib/" + m.multiarch
	path := filepath.Join(root, lib, m.loader)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a bundle of static programs
	}
	if err != nil {
		return err
	}
	from, to := "/lib/"+m.multiarch+"/", bundle.Place+"/lib"
	if len(to) >= len(from) {
		return fmt.Errorf("the loader has room for a path of %d bytes, %s/ has more", len(from), to)
	}
	to += strings.Repeat("/", len(from)-len(to))
	if !bytes.Contains(b, []byte(from)) {
		return fmt.Errorf("the loader %s does not name %s: it is of another kind than this Berth knows", m.loader, from)
	}
	for _, pair := range [][2]string{
		{from, to},
		{"\x00/lib/\x00", "\x00/.no/\x00"},
		{"/usr/lib/\x00", "/usr/.no/\x00"},
		{"/etc/ld.so.cache", "/etc/ld.so.berth"},
		{"/etc/ld.so.preload", "/etc/ld.so.nothing"},
	} {
		b = bytes.ReplaceAll(b, []byte(pair[0]), []byte(pair[1]))
	}
	if err = os.WriteFile(path, b, 0o755); err != nil {
		return err
	}
	if err = os.Symlink(strings.TrimPrefix(lib, "/"), filepath.Join(root, "lib")); err != nil {
		return err
	}
	return os.Symlink(strings.TrimPrefix(lib, "/")+"/"+m.loader, filepath.Join(root, loaderName))
}
