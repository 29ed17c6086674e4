// Package bundle keeps the programs of agents that run inside a sandbox: a
// bundle is one folder with all that a command-line agent needs, down to the
// loader and the C library, so that it runs in any image. It is made once a
// machine, named by a digest of its content, shared by all trials, and mounted
// read-only at Place.
//
//	b, err := bundle.Open(bundle.Dir(os.Getenv), "claude-code", "2.1.329")
//	needs.Bundles = append(needs.Bundles, b.Mount())
//
// It must not download anything: agents/scaffolds/bundler does that, when a user asks for
// it, and never a trial.
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
	"time"

	"github.com/berth-eval/berth/plugins/agent"
)

// Place is where a bundle is in every sandbox. Programs of a bundle name their
// loader by this path, which has to be as short as the usual one.
const Place = "/opt/berth/agent"

// Names of a bundle's folder.
const (
	ManifestFile = "bundle.json"
	Root         = "root" // what is mounted
)

// ErrMissing means that a bundle has not been made on this machine.
var ErrMissing = errors.New("bundle is not on this machine")

// Recipe says what a bundle is made of. {version} in it stands for the version
// that is asked for.
type Recipe struct {
	Version string   `json:"version,omitempty"` // the one that is made when nobody says another
	NPM     []string `json:"npm,omitempty"`     // packages of the npm registry: "name@version"
	PyPI    []string `json:"pypi,omitempty"`    // packages of PyPI: "name==version"
	Debian  []string `json:"debian,omitempty"`  // packages of Debian; what they depend on has to be named, too
	// Sources are packages of PyPI that have no wheel: "name==version". One is
	// built of each, of pure Python, with nothing but the packages in BuildWith.
	// That runs code of theirs, when the bundle is made and never in a trial.
	Sources   []string `json:"sources,omitempty"`
	BuildWith []string `json:"build_with,omitempty"` // "name==version"; not in the bundle
	// AnyPython are names of packages of PyPI that are taken although they say
	// that they are not for the bundle's version of Python.
	AnyPython []string `json:"any_python,omitempty"`
	// Links are names in bin/ and what they lead to, relative to the bundle.
	Links map[string]string `json:"links,omitempty"`
	// Drop are globs of what is not needed, relative to the bundle; ** is any
	// number of folders.
	Drop []string `json:"drop,omitempty"`
}

// Package is one package in a bundle, as the registry knows it.
type Package struct {
	// From is npm, pypi or debian; source for one of PyPI whose source archive was
	// built; build for what that was built with, which is not in the bundle.
	From      string `json:"from"`
	Name      string `json:"name"`
	Version   string `json:"version"`
	Integrity string `json:"integrity,omitempty"` // "sha512-…" of npm, "sha256:…" of the others
}

// Manifest says what a bundle is.
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

// Bundle is one that is there.
type Bundle struct {
	Manifest
	Folder string `json:"folder"` // on the host
}

// ID is "name@version".
func (m Manifest) ID() string { return m.Name + "@" + m.Version }

// Mount is the bundle as an agent asks for it.
func (b Bundle) Mount() agent.Bundle {
	return agent.Bundle{Source: filepath.Join(b.Folder, Root), Target: Place, Digest: b.Digest, Name: b.ID()}
}

// EnvDir names the folder of all bundles, instead of the usual one.
const EnvDir = "BERTH_BUNDLES"

// Dir is the folder of all bundles: $BERTH_BUNDLES, or berth/bundles in the
// user's data ($XDG_DATA_HOME, ~/.local/share). Empty when neither is known.
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

var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,99}$`)

// Parse reads "name@version"; without a version it is empty.
func Parse(id string) (name, version string, err error) {
	name, version, has := strings.Cut(id, "@")
	if !word.MatchString(name) || has && !word.MatchString(version) {
		return "", "", fmt.Errorf("bundle %q: write NAME or NAME@VERSION, of letters, digits and . _ + -", id)
	}
	return name, version, nil
}

// folder is where a bundle is in dir.
func folder(dir, name, version string) string {
	return filepath.Join(dir, name+"@"+version)
}

// Open finds a bundle. It fails with ErrMissing, and says what to do.
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

// List is all bundles in dir, by name and version. One that cannot be used is
// not among them: Broken says why.
func List(dir string) (out []Bundle, err error) {
	err = each(dir, func(b Bundle, wrong error) {
		if wrong == nil {
			out = append(out, b)
		}
	})
	slices.SortFunc(out, func(a, b Bundle) int { return strings.Compare(a.ID(), b.ID()) })
	return out, err
}

// Broken are the folders in dir that have the name of a bundle and are none that
// can be used, by that name, with why.
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

// each hands over what is in dir.
func each(dir string, f func(b Bundle, wrong error)) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || dir == "" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list bundles: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			f(read(filepath.Join(dir, e.Name())))
		}
	}
	return nil
}
