package bundler

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/agent/bundle"
)

// The package names that a lock may contain. A registry's client must not take
// them for an option, an address, a path or a further line.
var (
	pypiName    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	pypiVersion = regexp.MustCompile(`^[0-9][0-9A-Za-z.!+_-]*$`)
	pypiSpec    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]+\])?((==|>=|<=|~=|!=|<|>)[0-9][0-9A-Za-z.!+*_-]*(,(==|>=|<=|~=|!=|<|>)[0-9][0-9A-Za-z.!+*_-]*)*)?$`)
	npmName     = regexp.MustCompile(`^(@[A-Za-z0-9._~-]+/)?[A-Za-z0-9._~-]+$`)
	npmVersion  = regexp.MustCompile(`^[\^~]?[0-9][0-9A-Za-z.+-]*$`)
	debianName  = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]*$`)
	debianIs    = regexp.MustCompile(`^[0-9][0-9A-Za-z.+:~-]*$`)
	integrity   = regexp.MustCompile(`^[A-Za-z0-9+/=:., -]*$`)
)

// check returns an error for a name in the lock that is not a package name.
func (l *Lock) check() error {
	if _, _, err := bundle.Parse(l.Name + "@" + l.Version); err != nil || l.Version == "" {
		return fmt.Errorf("%q is not a name of a bundle", l.Name+"@"+l.Version)
	}
	k := kitchen{order: Order{Version: l.Version}}
	r := k.fill(l.Recipe)
	for _, p := range slices.Concat(r.PyPI, r.Sources, r.BuildWith, r.AnyPython) {
		if !pypiSpec.MatchString(p) {
			return fmt.Errorf("%q is not a package of PyPI", p)
		}
	}
	for _, p := range r.NPM {
		name, version := p, ""
		if at := strings.LastIndex(p, "@"); at > 0 {
			name, version = p[:at], p[at+1:]
		}
		if !npmName.MatchString(name) || version != "" && !npmVersion.MatchString(version) {
			return fmt.Errorf("%q is not a package of npm", p)
		}
	}
	for _, p := range r.Debian {
		name, version, has := strings.Cut(p, "=")
		if !debianName.MatchString(name) || has && !debianIs.MatchString(version) {
			return fmt.Errorf("%q is not a package of Debian", p)
		}
	}
	for _, p := range l.Packages {
		names, versions := pypiName, pypiVersion
		switch p.From {
		case "pypi", "source", "build":
		case "npm":
			names, versions = npmName, npmVersion
		case "debian":
			names, versions = debianName, debianIs
		default:
			return fmt.Errorf("%q is not a registry", p.From)
		}
		if !names.MatchString(p.Name) || !versions.MatchString(p.Version) || !integrity.MatchString(p.Integrity) {
			return fmt.Errorf("%q %q (%q) is not a package of %s", p.Name, p.Version, p.Integrity, p.From)
		}
	}
	return l.checkNPM()
}

// checkNPM checks npm's own files: packages may come only from npm's registry.
func (l *Lock) checkNPM() error {
	for name := range l.NPM {
		if !slices.Contains(npmFiles, name) {
			return fmt.Errorf("%q is not a file of npm's", name)
		}
	}
	if len(l.NPM) == 0 {
		return nil
	}
	if err := checkWants(l.NPM[npmFiles[0]]); err != nil {
		return fmt.Errorf("%s: %w", npmFiles[0], err)
	}
	var has struct {
		Packages map[string]struct {
			Resolved string `json:"resolved"`
			Link     bool   `json:"link"`
		} `json:"packages"`
	}
	if err := json.Unmarshal([]byte(l.NPM[npmFiles[1]]), &has); err != nil {
		return fmt.Errorf("%s: %w", npmFiles[1], err)
	}
	for _, path := range slices.Sorted(maps.Keys(has.Packages)) {
		p := has.Packages[path]
		local := path == "" || strings.HasPrefix(path, "node_modules/") && !slices.Contains(strings.Split(path, "/"), "..")
		if !local || p.Link || p.Resolved != "" {
			return fmt.Errorf("%s: %q does not come from npm's registry", npmFiles[1], path)
		}
	}
	return nil
}

// checkWants checks a package.json: it may name only packages of the registry.
func checkWants(text string) error {
	var wants map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &wants); err != nil {
		return err
	}
	for _, member := range slices.Sorted(maps.Keys(wants)) {
		if member != "private" && member != "dependencies" {
			return fmt.Errorf("it has %q, which Berth does not write", member)
		}
	}
	var of map[string]string
	if raw := wants["dependencies"]; raw != nil {
		if err := json.Unmarshal(raw, &of); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if !npmName.MatchString(name) || !npmVersion.MatchString(of[name]) {
			return fmt.Errorf("%q %q is not a package of npm", name, of[name])
		}
	}
	return nil
}
