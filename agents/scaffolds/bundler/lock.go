package bundler

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/agent/bundle"
)

// Lock is a small file with all that is needed to rebuild the same bundle later
// or on another machine. It does not contain the packages.
type Lock struct {
	Format   int              `json:"format"` // version of this file's format: 1
	Name     string           `json:"name"`
	Version  string           `json:"version"`
	Arch     string           `json:"arch"`
	Digest   string           `json:"digest"` // of the bundle
	Recipe   bundle.Recipe    `json:"recipe"`
	Packages []bundle.Package `json:"packages"`
	// NPM are npm's own files, byte by byte, because they are part of the
	// bundle: package.json and package-lock.json. It is empty if the bundle has
	// no npm packages.
	NPM map[string]string `json:"npm,omitempty"`
}

// npmFiles are the names in Lock.NPM.
var npmFiles = []string{"package.json", "package-lock.json"}

// LockOf returns the lock of an existing bundle.
func LockOf(b bundle.Bundle) (Lock, error) {
	l := Lock{Format: 1, Name: b.Name, Version: b.Version, Arch: b.Arch, Digest: b.Digest, Recipe: b.Recipe, Packages: b.Packages}
	for _, name := range npmFiles {
		raw, err := readInside(b.Folder, filepath.Join(bundle.Root, "npm", name))
		if errors.Is(err, fs.ErrNotExist) && len(b.Recipe.NPM) == 0 {
			continue
		}
		if err != nil {
			return l, fmt.Errorf("lock of bundle %s: %w", b.ID(), err)
		}
		if l.NPM == nil {
			l.NPM = map[string]string{}
		}
		l.NPM[name] = string(raw)
	}
	return l, nil
}

// maxLock is the largest size of a lock, in bytes.
const maxLock = 64 << 20

// ReadLock reads a lock as JSON.
func ReadLock(r io.Reader) (l Lock, err error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxLock))
	if err == nil {
		err = json.Unmarshal(raw, &l)
	}
	if err != nil {
		return l, fmt.Errorf("lock of a bundle: %w: make one with berth agent lock NAME@VERSION", err)
	}
	switch {
	case l.Format != 1:
		return l, errors.New("the file is not a lock of a bundle, or was written by another version of Berth: write one with berth agent lock NAME@VERSION")
	case l.Arch != runtime.GOARCH:
		return l, fmt.Errorf("lock of bundle %s@%s: it is for %s, this machine is %s", l.Name, l.Version, l.Arch, runtime.GOARCH)
	}
	if err = l.check(); err != nil {
		return l, fmt.Errorf("lock of bundle %q: %w: what a lock names is given to npm, pip and apt, so anything else is refused", l.Name+"@"+l.Version, err)
	}
	return l, nil
}

// unpack writes npm's files to dir unchanged, because they are part of the
// bundle.
func (l *Lock) unpack(dir string) error {
	for _, name := range npmFiles {
		raw, ok := l.NPM[name]
		if !ok {
			return fmt.Errorf("the lock has no %s", name)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(raw), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// versions returns the packages of a registry with their versions. with stands
// between name and version.
func (l *Lock) versions(from, with string) (out []string) {
	for _, p := range l.Packages {
		if p.From == from {
			out = append(out, p.Name+with+p.Version)
		}
	}
	return out
}

// holds returns an error that lists packages which differ from the lock.
func (l *Lock) holds(ps []bundle.Package) error {
	key := func(p bundle.Package) string { return p.From + " " + p.Name + " " + p.Version }
	by := func(list []bundle.Package) map[string]string { // a package may occur several times
		m := map[string]string{}
		for _, p := range list {
			m[key(p)] = p.Integrity
		}
		return m
	}
	before, now := by(l.Packages), by(ps)
	var wrong []string
	for _, k := range slices.Sorted(maps.Keys(before)) {
		if is, ok := now[k]; !ok {
			wrong = append(wrong, k+" is missing")
		} else if is != before[k] {
			wrong = append(wrong, fmt.Sprintf("%s is %s, and was %s", k, is, before[k]))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(now)) {
		if _, ok := before[k]; !ok {
			wrong = append(wrong, k+" is not in the lock")
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("the packages are not those of the lock: %s", strings.Join(wrong[:min(len(wrong), 5)], "; "))
	}
	return nil
}
