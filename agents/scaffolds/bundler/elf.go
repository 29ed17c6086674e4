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

// loaderName is the loader in a bundle, which its programs use instead of the
// one they were linked with.
const loaderName = "ld.so"

// machine describes a kind of processor.
type machine struct {
	multiarch string // Debian's name
	loader    string // file of the loader in Debian
}

var machines = map[string]machine{
	"amd64": {multiarch: "x86_64-linux-gnu", loader: "ld-linux-x86-64.so.2"},
	"arm64": {multiarch: "aarch64-linux-gnu", loader: "ld-linux-aarch64.so.1"},
}

// fit makes every program of the bundle use the bundle's own loader, and sets
// modes that let every user read it. The program then runs in any image because
// it uses neither the image's loader nor its libraries. Programs that it starts
// still find those of the image, because no variable is set. /proc/self/exe
// still names the program, which it would not if it were started through the
// loader ("ld.so program").
func fit(ctx context.Context, root string) error {
	if err := forEverybody(root); err != nil {
		return err
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if d.Type() == fs.ModeSymlink {
			return relative(root, path)
		}
		if info, err := d.Info(); err != nil || d.IsDir() || info.Mode()&0o111 == 0 {
			return err
		}
		return ownLoader(root, path)
	})
	if err != nil {
		return err
	}
	return linksInside(root)
}

// relative makes an absolute link lead to the same file of the bundle.
func relative(root, path string) error {
	to, err := os.Readlink(path)
	if err != nil || !filepath.IsAbs(to) {
		return err
	}
	if to, err = filepath.Rel(filepath.Dir(path), filepath.Join(root, to)); err != nil {
		return err
	}
	return errors.Join(os.Remove(path), os.Symlink(to, path))
}

// linksInside removes links that lead to nothing, or out of the bundle, also through
// other links: they would lead into the image.
func linksInside(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.Type() != fs.ModeSymlink {
			return err
		}
		if _, err = root.Stat(filepath.FromSlash(name)); err == nil {
			return nil
		}
		return root.Remove(filepath.FromSlash(name))
	})
}

// ownLoader makes a program that uses the standard loader use the bundle's
// loader. It overwrites the path in place, so that programs with data appended
// to them stay intact.
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
			return nil // uses another C library, which the bundle does not provide
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

// fitLoader makes the loader search libraries only in the bundle, not in the
// image's folders or its library cache, which belong to another version.
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
