// Package bundle stores the programs of agents that run inside a sandbox. A
// bundle is one folder with everything that a command-line agent needs,
// including the loader and the C library, so that it runs in any image. It is
// built once per machine, named by a digest of its content, shared by all
// trials, and mounted read-only at Place.
//
//	b, err := bundle.Open(bundle.Dir(os.Getenv), "claude-code", "2.1.329")
//	needs.Bundles = append(needs.Bundles, b.Mount())
//
// It must not download anything: agents/scaffolds/bundler does that when a user
// asks for it. A trial never does.
package bundle

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/berth-eval/berth/plugins/agent"
)

// Place is the path of the bundle in every sandbox. The programs of a bundle
// refer to their loader by this path, which must not be longer than the usual
// path of the loader.
const Place = "/opt/berth/agent"

// Names of a bundle's folder.
const (
	ManifestFile = "bundle.json"
	Root         = "root" // what is mounted
)

// ErrMissing means that the bundle has not been built on this machine.
var ErrMissing = errors.New("bundle is not on this machine")

// Recipe describes the content of a bundle. {version} in it stands for the
// requested version.
type Recipe struct {
	Version string   `json:"version,omitempty"` // the default version
	NPM     []string `json:"npm,omitempty"`     // packages of the npm registry: "name@version"
	PyPI    []string `json:"pypi,omitempty"`    // packages of PyPI: "name==version"
	Debian  []string `json:"debian,omitempty"`  // packages of Debian; their dependencies must be listed as well
	// Sources are pure Python packages of PyPI that have no wheel:
	// "name==version". The bundler builds a wheel of each with only the
	// packages in BuildWith. This runs code of these packages when the bundle
	// is built, never in a trial.
	Sources   []string `json:"sources,omitempty"`
	BuildWith []string `json:"build_with,omitempty"` // "name==version"; not in the bundle
	// AnyPython are names of PyPI packages that are installed although their
	// metadata excludes the bundle's version of Python.
	AnyPython []string `json:"any_python,omitempty"`
	// Links maps names in bin/ to their targets, relative to the bundle.
	Links map[string]string `json:"links,omitempty"`
	// Drop are globs of files to leave out, relative to the bundle; ** matches
	// any number of folders.
	Drop []string `json:"drop,omitempty"`
}

// Package is one package in a bundle, with the registry's data.
type Package struct {
	// From is npm, pypi or debian; source for a PyPI package built from its
	// source archive; build for a package used only to build another, which is
	// not in the bundle.
	From      string `json:"from"`
	Name      string `json:"name"`
	Version   string `json:"version"`
	Integrity string `json:"integrity,omitempty"` // "sha512-…" of npm, "sha256:…" of the others
}

// Manifest describes a bundle.
type Manifest struct {
	Format   int       `json:"format"` // of this file: 1
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	Arch     string    `json:"arch"`   // as Go calls it
	Digest   string    `json:"digest"` // "sha256:…" of names, modes and content of all files
	Place    string    `json:"place"`
	Files    int64     `json:"files"`
	Bytes    int64     `json:"bytes"`
	Made     time.Time `json:"made"`
	Recipe   Recipe    `json:"recipe"`
	Packages []Package `json:"packages"`
}

// Bundle is a bundle on this machine.
type Bundle struct {
	Manifest
	Folder string `json:"folder"` // on the host
}

// ID is "name@version".
func (m Manifest) ID() string { return m.Name + "@" + m.Version }

// Mount returns the bundle in the form of agent.Needs.
func (b Bundle) Mount() agent.Bundle {
	return agent.Bundle{Source: filepath.Join(b.Folder, Root), Target: Place, Digest: b.Digest, Name: b.ID()}
}

// EnvDir is the variable that sets the folder of all bundles.
const EnvDir = "BERTH_BUNDLES"

// Dir returns the folder of all bundles: $BERTH_BUNDLES, or berth/bundles in
// the user's data folder ($XDG_DATA_HOME or ~/.local/share). Empty when neither
// is known.
func Dir(getenv func(string) string) string {
	if d := getenv(EnvDir); d != "" {
		if abs, err := filepath.Abs(d); err == nil {
			return abs
		}
		return ""
	}
	data := getenv("XDG_DATA_HOME")
	if !filepath.IsAbs(data) && getenv("HOME") != "" {
		data = filepath.Join(getenv("HOME"), ".local", "share")
	}
	if !filepath.IsAbs(data) {
		return ""
	}
	return filepath.Join(data, "berth", "bundles")
}

// MakeFolder makes the folder of all bundles if it is missing.
func MakeFolder(dir string) error {
	if dir == "" {
		return fmt.Errorf("no folder for bundles is known: set HOME or %s", EnvDir)
	}
	return Denied(os.MkdirAll(dir, 0o755)) //nolint:gosec // sandboxes of other ids read the bundles
}

// Denied adds what to do to an error about a folder of bundles that this user may not
// use, such as one in a home that is read-only or another user's.
func Denied(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w: set %s to your own folder", err, EnvDir)
	}
	return err
}

var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,99}$`)

// Parse reads "name@version"; without a version it is empty.
func Parse(id string) (name, version string, err error) {
	name, version, has := strings.Cut(id, "@")
	if !word.MatchString(name) || has && !word.MatchString(version) {
		return "", "", fmt.Errorf("bundle %q: write NAME or NAME@VERSION, of letters, digits and . _ + -", id)
	}
	return name, version, nil
}

// folder returns the path of a bundle in dir.
func folder(dir, name, version string) string {
	return filepath.Join(dir, name+"@"+version)
}

// Open finds a bundle. A missing bundle is ErrMissing, with the command that
// builds it.
func Open(dir, name, version string) (Bundle, error) {
	id := name + "@" + version
	if _, _, err := Parse(id); err != nil {
		return Bundle{}, err
	}
	if dir == "" {
		return Bundle{}, fmt.Errorf("%w: %s: no folder for bundles is known: set HOME or %s", ErrMissing, id, EnvDir)
	}
	b, err := read(folder(dir, name, version))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return b, fmt.Errorf("%w: %s: build it with `berth agent bundle %s` (searched %s)", ErrMissing, id, id, dir)
	case err != nil:
		return b, again(id, err)
	case b.Arch != runtime.GOARCH:
		return b, fmt.Errorf("bundle %s is for %s, this machine is %s", id, b.Arch, runtime.GOARCH)
	}
	return b, nil
}

func again(id string, err error) error {
	return fmt.Errorf("bundle %s: %w: make it again, with `berth agent bundle %s --again`", id, err, id)
}

func read(folder string) (b Bundle, err error) {
	b.Folder = folder
	raw, err := os.ReadFile(filepath.Join(folder, ManifestFile))
	if err != nil {
		return b, err
	}
	if err = json.Unmarshal(raw, &b.Manifest); err != nil {
		return b, fmt.Errorf("%s: %w", ManifestFile, err)
	}
	if b.Format != 1 || b.Place != Place {
		return b, fmt.Errorf("%s is of another version of Berth", ManifestFile)
	}
	if filepath.Base(folder) != b.ID() {
		return b, fmt.Errorf("%s says that it is %s, and its folder has another name", ManifestFile, b.ID())
	}
	return b, nil
}

// Find opens the bundle NAME@VERSION in dir, or the only bundle NAME if id has
// no version.
func Find(dir, id string) (Bundle, error) {
	name, version, err := Parse(id)
	if err != nil {
		return Bundle{}, err
	}
	if version != "" {
		return Open(dir, name, version)
	}
	all, err := List(dir)
	if err != nil {
		return Bundle{}, err
	}
	var ids []string
	for _, b := range all {
		if b.Name == name {
			ids, version = append(ids, b.ID()), b.Version
		}
	}
	switch len(ids) {
	case 0:
		return Bundle{}, fmt.Errorf("%w: %s: no version is in %s. Build one: berth agent bundle %s", ErrMissing, name, dir, name)
	case 1:
		return Open(dir, name, version)
	default:
		return Bundle{}, fmt.Errorf("bundle %q: which version? Installed are %s", name, strings.Join(ids, ", "))
	}
}

// List returns the usable bundles in dir, sorted by name and version. Broken
// returns the others.
func List(dir string) (out []Bundle, err error) {
	err = each(dir, func(b Bundle, wrong error) {
		if wrong == nil {
			out = append(out, b)
		}
	})
	slices.SortFunc(out, func(a, b Bundle) int { return strings.Compare(a.ID(), b.ID()) })
	return out, err
}

// Broken returns the folders in dir that are named like a bundle but cannot be
// used, with the reason for each name.
func Broken(dir string) (map[string]error, error) {
	out := map[string]error{}
	err := each(dir, func(b Bundle, wrong error) {
		id := filepath.Base(b.Folder)
		if _, version, notOne := Parse(id); wrong != nil && notOne == nil && version != "" {
			out[id] = again(id, wrong)
		}
	})
	return out, err
}

// each calls f for every bundle in dir.
func each(dir string, f func(b Bundle, wrong error)) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || dir == "" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list bundles: %w", Denied(err))
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			f(read(filepath.Join(dir, e.Name())))
		}
	}
	return nil
}
