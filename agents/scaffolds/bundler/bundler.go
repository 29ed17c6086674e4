// Package bundler builds bundles, and exports and imports them.
//
// Packages come from the registries through their own clients: npm, pip, and
// apt with a private configuration, so that the machine is not changed and root
// is not needed. It must not know any agent: the recipe says what a bundle
// contains.
package bundler

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/agent/bundle"
)

// Order describes a bundle to build.
type Order struct {
	Dir     string // folder of all bundles
	Name    string
	Version string // empty: the recipe's; Latest: the newest one of the registry
	Recipe  bundle.Recipe
	Again   bool // build it even if it exists
	// Log receives progress, one line at a time; may be nil.
	Log func(line string)
}

// Make builds a bundle or returns the existing one. Concurrent calls for the
// same bundle, also in different processes, wait for each other. An existing
// bundle stays until the new one is complete.
func Make(ctx context.Context, o Order) (bundle.Bundle, error) {
	if o.Version == "" {
		o.Version = o.Recipe.Version
	}
	if o.Version == "" {
		return bundle.Bundle{}, fmt.Errorf("bundle %q: which version? Write %s@VERSION", o.Name, o.Name)
	}
	if o.Log == nil {
		o.Log = func(string) {}
	}
	if o.Version == Latest {
		newest, err := o.newest(ctx)
		if err != nil {
			return bundle.Bundle{}, fmt.Errorf("bundle %s@%s: %w", o.Name, Latest, err)
		}
		o.Log(fmt.Sprintf("the newest version is %s@%s", o.Name, newest))
		o.Version = newest
	}
	id := o.Name + "@" + o.Version
	if _, _, err := bundle.Parse(id); err != nil {
		return bundle.Bundle{}, err
	}
	if !o.Again && ctx.Err() == nil { // the folder may belong to another user
		if b, missing := bundle.Open(o.Dir, o.Name, o.Version); missing == nil {
			return b, nil
		}
	}
	unlock, err := lock(ctx, o.Dir, id)
	if err != nil {
		return bundle.Bundle{}, fmt.Errorf("make bundle %s: %w", id, err)
	}
	defer unlock()
	if !o.Again {
		if b, missing := bundle.Open(o.Dir, o.Name, o.Version); missing == nil {
			return b, nil
		}
	}
	b, err := build(ctx, o)
	if err != nil {
		return b, fmt.Errorf("make bundle %s: %w", id, err)
	}
	return b, nil
}

// lock locks one name in a folder of bundles.
func lock(ctx context.Context, dir, id string) (unlock func(), err error) {
	if err = bundle.MakeFolder(dir); err != nil {
		return nil, err
	}
	l := flock.New(filepath.Join(dir, ".lock-"+id))
	ok, err := l.TryLockContext(ctx, 200*time.Millisecond)
	if err != nil || !ok {
		return nil, errors.Join(bundle.Denied(err), ctx.Err())
	}
	return func() { _ = l.Unlock() }, nil
}

// build builds the bundle in a temporary folder next to its own and renames it.
func build(ctx context.Context, o Order) (b bundle.Bundle, err error) {
	work, done, err := workIn(o.Dir)
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, done()) }()
	root := filepath.Join(work, "whole", bundle.Root)
	if err = os.MkdirAll(root, 0o755); err != nil {
		return b, err
	}
	k := kitchen{order: o, root: root, work: work}
	m := bundle.Manifest{
		Format: 1, Name: o.Name, Version: o.Version, Arch: runtime.GOARCH, Place: bundle.Place, Recipe: k.fill(o.Recipe), Packages: []bundle.Package{},
	}
	for _, from := range []func(context.Context, bundle.Recipe) ([]bundle.Package, error){k.debian, k.npm, k.pypi} {
		ps, fromErr := from(ctx, m.Recipe)
		if fromErr != nil {
			return b, fromErr
		}
		m.Packages = append(m.Packages, ps...)
	}
	if err = k.finish(ctx, m.Recipe); err != nil {
		return b, err
	}
	if err = ctx.Err(); err != nil {
		return b, err
	}
	return k.place(m)
}

// fill puts the version into a recipe.
func (k *kitchen) fill(r bundle.Recipe) bundle.Recipe {
	each := func(list []string) []string {
		out := slices.Clone(list)
		for i := range out {
			out[i] = strings.ReplaceAll(out[i], "{version}", k.order.Version)
		}
		return out
	}
	r.NPM, r.PyPI, r.Debian, r.Sources = each(r.NPM), each(r.PyPI), each(r.Debian), each(r.Sources)
	r.Version = k.order.Version
	return r
}

// place moves work/whole to its final name and adds the manifest.
func (k *kitchen) place(m bundle.Manifest) (bundle.Bundle, error) {
	whole := filepath.Join(k.work, "whole")
	sum, err := bundle.Measure(filepath.Join(whole, bundle.Root))
	if err != nil {
		return bundle.Bundle{}, err
	}
	m.Digest, m.Files, m.Bytes, m.Made = sum.Digest, sum.Files, sum.Bytes, time.Now().UTC().Truncate(time.Second)
	raw, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return bundle.Bundle{}, err
	}
	if err = os.WriteFile(filepath.Join(whole, bundle.ManifestFile), append(raw, '\n'), 0o644); err != nil {
		return bundle.Bundle{}, err
	}
	return settle(k.order.Dir, k.work, m)
}

// settle renames work/whole to its final name. An existing bundle with the same
// content stays, because trials may be using it. A different one is exchanged
// atomically if the file system supports it, and is removed together with work.
func settle(dir, work string, m bundle.Manifest) (bundle.Bundle, error) {
	if old, err := bundle.Open(dir, m.Name, m.Version); err == nil && old.Digest == m.Digest && old.Verify() == nil {
		return old, nil
	}
	from, to := filepath.Join(work, "whole"), filepath.Join(dir, m.ID())
	// Other users of the machine use the bundle, so the umask must not count.
	if err := errors.Join(os.Chmod(from, 0o755), os.Chmod(filepath.Join(from, bundle.ManifestFile), 0o644)); err != nil { //nolint:gosec // that is wanted
		return bundle.Bundle{}, err
	}
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE)
	if err != nil { // there is no bundle, or this file system does not support it
		if err = os.Rename(to, filepath.Join(work, "before")); err == nil || errors.Is(err, fs.ErrNotExist) {
			err = os.Rename(from, to)
		}
	}
	return bundle.Bundle{Manifest: m, Folder: to}, err
}

// remove removes a tree, also one with read-only folders.
func remove(dir string) error {
	if err := os.RemoveAll(dir); err == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(path, 0o755)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// kitchen is the state of building one bundle.
type kitchen struct {
	order Order
	root  string // of the bundle
	work  string // our temporary folder
}

// run runs a client of a registry in dir, with our environment and env.
func (k *kitchen) run(ctx context.Context, dir string, env []string, argv ...string) ([]byte, error) {
	return k.runWith(ctx, dir, append(os.Environ(), env...), argv...)
}

// runWith runs a client of a registry in dir, with only env as its environment,
// and writes to the log.
func (k *kitchen) runWith(ctx context.Context, dir string, env []string, argv ...string) ([]byte, error) {
	if _, err := exec.LookPath(argv[0]); err != nil {
		return nil, fmt.Errorf("%s is not on this machine, but is needed to build the bundle: install it, or build the bundle on another machine and copy it with `berth agent export` and `berth agent import`", argv[0])
	}
	k.order.Log(strings.Join(argv, " "))
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.Dir, c.Env, c.WaitDelay = dir, env, 10*time.Second
	var out strings.Builder
	c.Stdout = &out
	errs, err := c.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err = c.Start(); err != nil {
		return nil, err
	}
	var last []string
	for lines := bufio.NewScanner(errs); lines.Scan(); {
		last = append(last[max(0, len(last)-9):], lines.Text())
	}
	_, _ = io.Copy(io.Discard, errs)
	if err = c.Wait(); err != nil {
		said := strings.TrimSpace(strings.Join(last, "\n"))
		if said == "" {
			said = strings.TrimSpace(out.String())
		}
		return nil, fmt.Errorf("%s: %w: %s", argv[0], err, said)
	}
	return []byte(out.String()), nil
}

// finish prepares the tree for use in a sandbox: it drops unneeded files, adds
// the links in bin, makes programs use the bundle's loader, and sets modes.
func (k *kitchen) finish(ctx context.Context, r bundle.Recipe) error {
	root, err := os.OpenRoot(k.root) // links in packages cannot lead out of it
	if err != nil {
		return err
	}
	defer root.Close()
	for _, glob := range append(slices.Clone(r.Drop), usual...) {
		found, err := doublestar.Glob(root.FS(), glob, doublestar.WithNoFollow())
		if err != nil {
			return fmt.Errorf("drop %q: %w", glob, err)
		}
		for _, name := range found {
			if err := root.RemoveAll(name); err != nil {
				return err
			}
		}
	}
	if err := ownLists(filepath.Join(k.root, "python")); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(k.root, "bin"), 0o755); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(r.Links)) {
		if !filepath.IsLocal(name) || !filepath.IsLocal(r.Links[name]) {
			return fmt.Errorf("link %q to %q leads out of the bundle", name, r.Links[name])
		}
		info, err := root.Stat(r.Links[name])
		if err != nil {
			return fmt.Errorf("link %q: the packages have no file %s", name, r.Links[name])
		}
		if !info.IsDir() { // some packages do not mark their programs as executable
			if err = root.Chmod(r.Links[name], 0o755); err != nil {
				return err
			}
		}
		if err := root.Symlink(filepath.Join("..", r.Links[name]), filepath.Join("bin", name)); err != nil {
			return err
		}
	}
	if err := fit(ctx, k.root); err != nil {
		return err
	}
	return k.compile(ctx)
}

// usual are globs of files that no bundle needs.
var usual = []string{
	"usr/share/{doc,man,info,lintian,bash-completion,menu,applications,pixmaps}", "usr/include", "usr/lib/*/gconv", "etc",
	"usr/sbin", "var", "npm/node_modules/.package-lock.json", "npm/node_modules/.bin",
}
