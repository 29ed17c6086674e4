package bundler

import (
	"bytes"
	"context"
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

	"github.com/berth-eval/berth/plugins/agent/bundle"
)

// python is the Python version of the suite, which bundles with PyPI packages
// contain.
const python = "3.13"

// pypi installs wheels into python/. Only the recipe's sources are built: pip
// refuses any other package without a wheel.
func (k *kitchen) pypi(ctx context.Context, r bundle.Recipe) ([]bundle.Package, error) {
	if len(r.PyPI) == 0 {
		return nil, nil
	}
	built, err := k.sources(ctx, r)
	if err != nil {
		return nil, err
	}
	report, dir := filepath.Join(k.work, "pip.json"), filepath.Join(k.root, "python")
	argv := []string{
		"python3", "-m", "pip", "install", "--quiet", "--no-input", "--no-compile", "--target", dir, "--report", report, "--find-links", filepath.Join(k.work, wheels),
		"--only-binary=:all:", "--implementation", "cp", "--python-version", python,
	}
	if len(r.AnyPython) > 0 {
		argv = append(argv, "--ignore-requires-python")
	}
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	for _, p := range []string{"manylinux2014", "manylinux_2_28", "manylinux_2_34", "manylinux_2_17", "manylinux_2_39"} {
		argv = append(argv, "--platform", p+"_"+arch)
	}
	if _, err = k.run(ctx, k.work, quietPip(), append(append(argv, "--"), r.PyPI...)...); err != nil {
		return nil, unansweredPyPI(err)
	}
	if err = k.rightPython(ctx, r, report); err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(report)
	if err != nil {
		return nil, err
	}
	ps, err := reported(raw)
	if err != nil {
		return nil, err
	}
	for _, b := range built { // the report names the built wheel; record the source archive instead
		ps = slices.DeleteFunc(ps, func(p bundle.Package) bool { return b.From == "source" && plain(p.Name) == plain(b.Name) })
	}
	return append(ps, built...), ownScripts(dir)
}

// quietPip turns off pip's check for a newer version of itself. An index that does
// not answer is given up after half a minute, unless the user says otherwise.
func quietPip() []string {
	env := []string{"PIP_DISABLE_PIP_VERSION_CHECK=1"}
	for name, value := range map[string]string{"PIP_DEFAULT_TIMEOUT": "10", "PIP_RETRIES": "2"} {
		if _, set := os.LookupEnv(name); !set {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func unansweredPyPI(err error) error {
	index := "the index of pip's configuration (without one https://pypi.org/simple)"
	if i := os.Getenv("PIP_INDEX_URL"); i != "" {
		index = i
	}
	return unanswered(err, index, "PIP_INDEX_URL")
}

// wheels is the folder in work for the wheels that were built.
const wheels = "wheels"

// sources builds wheels of packages that PyPI has only as source archives. It
// returns the archives and the packages used for the build. The code of these
// packages runs with few environment variables, in a temporary folder, and
// without a compiler.
func (k *kitchen) sources(ctx context.Context, r bundle.Recipe) (ps []bundle.Package, err error) {
	tools, archives, tmp := filepath.Join(k.work, "tools"), filepath.Join(k.work, "archives"), filepath.Join(k.work, "tmp")
	for _, dir := range []string{tools, archives, tmp, filepath.Join(k.work, wheels)} {
		if err = os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
	}
	if len(r.Sources) == 0 {
		return nil, nil
	}
	for _, p := range slices.Concat(r.Sources, r.BuildWith) {
		if !strings.Contains(p, "==") || strings.HasPrefix(p, "-") {
			return nil, fmt.Errorf("package %q of PyPI, for a wheel that is built: write NAME==VERSION, so that it is the same each time", p)
		}
	}
	pip := []string{"python3", "-m", "pip"}
	report := filepath.Join(k.work, "tools.json")
	argv := append(slices.Clone(pip), "install", "--quiet", "--no-input", "--no-deps", "--no-compile", "--only-binary=:all:", "--target", tools, "--report", report, "--")
	if _, err = k.run(ctx, k.work, quietPip(), append(argv, r.BuildWith...)...); err != nil {
		return nil, unansweredPyPI(err)
	}
	raw, err := os.ReadFile(report)
	if err != nil {
		return nil, err
	}
	if ps, err = reported(raw); err != nil {
		return nil, err
	}
	for i := range ps {
		ps[i].From = "build"
	}
	env := append(buildEnv(os.Environ()), "PYTHONPATH="+tools, "TMPDIR="+tmp)
	for _, s := range r.Sources {
		p, err := k.source(ctx, s, archives, env)
		if err != nil {
			return nil, err
		}
		ps = append(ps, p)
	}
	return ps, nil
}

// source builds the wheel of one package.
func (k *kitchen) source(ctx context.Context, spec, archives string, env []string) (p bundle.Package, err error) {
	name, version, _ := strings.Cut(spec, "==")
	dir := filepath.Join(archives, plain(name))
	common := []string{"--quiet", "--no-input", "--no-deps", "--no-build-isolation", "--no-cache-dir"}
	argv := append(append([]string{"python3", "-m", "pip", "download"}, common...), "--no-binary=:all:", "--dest", dir, "--", spec)
	if _, err = k.runWith(ctx, k.work, env, argv...); err != nil {
		return p, unansweredPyPI(err)
	}
	archive, err := only(dir)
	if err != nil {
		return p, fmt.Errorf("source archive of %s: %w", spec, err)
	}
	if p.Integrity, err = sha256Of(archive); err != nil {
		return p, err
	}
	made := filepath.Join(dir, "made")
	argv = append(append([]string{"python3", "-m", "pip", "wheel"}, common...), "--no-index", "--wheel-dir", made, "--", archive)
	if _, err = k.runWith(ctx, k.work, env, argv...); err != nil {
		return p, fmt.Errorf("build a wheel of %s: %w", spec, err)
	}
	wheel, err := only(made)
	if err != nil {
		return p, fmt.Errorf("wheel of %s: %w", spec, err)
	}
	if !strings.HasSuffix(wheel, "-none-any.whl") {
		return p, fmt.Errorf("of the source archive of %s came %s, which is for one kind of machine: only wheels of pure Python are built", spec, filepath.Base(wheel))
	}
	p.From, p.Name, p.Version = "source", name, version
	return p, os.Rename(wheel, filepath.Join(k.work, wheels, filepath.Base(wheel)))
}

// only returns the one file in a folder.
func only(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(entries) != 1 {
		return "", fmt.Errorf("pip made %d files, want one", len(entries))
	}
	return filepath.Join(dir, entries[0].Name()), nil
}

// seen matches the variables that the code of a package sees while it is built:
// those that pip and Python need to work and to find their registry.
var seen = regexp.MustCompile(`(?i)^(PATH|HOME|LANG|LC_[A-Z]+|PIP_[A-Z_]+|PYENV_[A-Z_]+|[A-Z]+_PROXY|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE)=`)

// buildEnv returns the environment for a build. It sets the same time for all
// files and no compiler.
func buildEnv(environ []string) []string {
	env := slices.DeleteFunc(slices.Clone(environ), func(v string) bool { return !seen.MatchString(v) })
	return append(env, "SOURCE_DATE_EPOCH=315532800", "CC=false", "CXX=false", "PYTHONHASHSEED=0", "PYTHONDONTWRITEBYTECODE=1", "PIP_DISABLE_PIP_VERSION_CHECK=1")
}

// foreign is a Python program. It prints the packages of a report that declare
// that they are for another Python.
const foreign = `import json, sys
from pip._vendor.packaging.specifiers import SpecifierSet
for p in json.load(open(sys.argv[1]))["install"]:
    m = p["metadata"]
    if m.get("requires_python") and not SpecifierSet(m["requires_python"]).contains(sys.argv[2]):
        print(m["name"], m["version"], m["requires_python"], sep="\t")
`

// rightPython refuses packages that declare that they are for another Python,
// except those that the recipe names.
func (k *kitchen) rightPython(ctx context.Context, r bundle.Recipe, report string) error {
	if len(r.AnyPython) == 0 {
		return nil // pip has checked that
	}
	out, err := k.run(ctx, k.work, nil, "python3", "-c", foreign, report, python)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(out)) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if !slices.ContainsFunc(r.AnyPython, func(n string) bool { return plain(n) == plain(name) }) {
			return fmt.Errorf("package %s %s is not for Python %s: name another version, or add it to the recipe's any_python if it works all the same", name, strings.ReplaceAll(rest, "\t", " of Python "), python)
		}
		k.order.Log(fmt.Sprintf("%s %s is taken for Python %s, as the recipe says", name, strings.ReplaceAll(rest, "\t", " of Python "), python))
	}
	return nil
}

var between = regexp.MustCompile(`[-_.]+`)

// plain returns a package's name in the form in which PyPI compares names.
func plain(name string) string { return between.ReplaceAllString(strings.ToLower(name), "-") }

// reported returns the packages of a report of pip.
func reported(raw []byte) ([]bundle.Package, error) {
	var list struct {
		Install []struct {
			Metadata struct {
				Name    string `json:"name"`
				Version string `json:"version"`
			} `json:"metadata"`
			From struct {
				Archive struct {
					Hashes map[string]string `json:"hashes"`
				} `json:"archive_info"`
			} `json:"download_info"`
		} `json:"install"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("report of pip: %w", err)
	}
	var out []bundle.Package
	for _, p := range list.Install {
		q := bundle.Package{From: "pypi", Name: p.Metadata.Name, Version: p.Metadata.Version}
		if h := p.From.Archive.Hashes["sha256"]; h != "" {
			q.Integrity = "sha256:" + h
		}
		out = append(out, q)
	}
	slices.SortFunc(out, func(a, b bundle.Package) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// ownScripts removes the scripts that pip wrote for the Python that it runs in.
func ownScripts(dir string) error {
	scripts, err := os.ReadDir(filepath.Join(dir, "bin"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, s := range scripts {
		path := filepath.Join(dir, "bin", s.Name())
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if first, _, _ := bytes.Cut(raw, []byte("\n")); bytes.HasPrefix(first, []byte("#!")) && bytes.Contains(first, []byte("python")) {
			if err = os.Remove(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// ownLists corrects the lists of installed files in dir: it removes dropped
// files and fixes the paths, because pip writes them for another folder than
// the one given.
func ownLists(dir string) error {
	lists, err := filepath.Glob(filepath.Join(dir, "*.dist-info", "RECORD"))
	if err != nil {
		return err
	}
	for _, list := range lists {
		raw, err := os.ReadFile(list)
		if err != nil {
			return err
		}
		var out strings.Builder
		for line := range strings.Lines(string(raw)) {
			line = strings.TrimPrefix(line, "../../")
			name, _, _ := strings.Cut(line, ",")
			if _, err = os.Lstat(filepath.Join(dir, filepath.FromSlash(name))); err == nil || strings.HasPrefix(line, `"`) { // such a line has a comma in its name
				out.WriteString(line)
			} else if !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if err = os.WriteFile(list, []byte(out.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
