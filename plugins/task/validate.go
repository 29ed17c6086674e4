package task

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Validate returns what in the task would lead out of a folder, or cannot be carried
// out, with the JSON path of the value as Key, sorted by it. A format must never
// return a task that breaks a rule.
func (t *Task) Validate() []Problem {
	c := &checker{t: t, resources: map[string]*Resource{}}
	if t.Name == "" || strings.ContainsFunc(t.Name, unicode.IsControl) || !utf8.ValidString(t.Name) {
		c.bad("name", "is %q: it must be text without control characters", t.Name)
	}
	if len(t.Stages) == 0 {
		c.bad("stages", "is empty: a task has at least one stage")
	}
	for i := range t.Resources {
		c.resource(fmt.Sprintf("resources[%d]", i), &t.Resources[i])
	}
	c.environment("environment", &t.Environment)
	for i := range t.Services {
		c.command(fmt.Sprintf("services[%d].command", i), t.Services[i].Command)
	}
	for i := range t.Stages {
		c.stage(fmt.Sprintf("stages[%d]", i), i, &t.Stages[i])
	}
	c.servers()
	slices.SortStableFunc(c.ps, func(a, b Problem) int { return strings.Compare(a.Key, b.Key) })
	return c.ps
}

type checker struct {
	t         *Task
	ps        []Problem
	resources map[string]*Resource
}

func (c *checker) bad(key, format string, args ...any) {
	c.ps = append(c.ps, Problem{Key: key, Severity: Error, Summary: key + " " + fmt.Sprintf(format, args...)})
}

// relative checks that a name of a file stays in its folder.
func (c *checker) relative(key, name string) {
	if !inside(name) {
		c.bad(key, "is %q: it must be a relative, clean path", name)
	}
}

func (c *checker) resource(key string, r *Resource) {
	switch {
	case reserved(r.Name):
		c.bad(key+".name", "is %q: task.json and attempt/ are made by the core", r.Name)
	case c.resources[r.Name] != nil:
		c.bad(key+".name", "is %q, which another resource has", r.Name)
	}
	c.relative(key+".name", r.Name)
	c.resources[r.Name] = r
	if r.Path != "" || !r.made() {
		c.relative(key+".path", r.Path)
	}
	if climbs(r.Place) {
		c.bad(key+".place", "is %q: it must not have \"..\" in it", r.Place)
	}
	for i, e := range r.Entries {
		at := fmt.Sprintf("%s.entries[%d]", key, i)
		c.relative(at+".path", e.Path)
		if e.From != "" {
			c.relative(at+".from", e.From)
		}
		if e.Link != "" && !stays(path.Dir(e.Path), e.Link) {
			c.bad(at+".link", "is %q: it leaves the resource", e.Link)
		}
	}
}

func (c *checker) stage(key string, i int, s *Stage) {
	if !folderName(s.Name) {
		c.bad(key+".name", "is %q: it must be safe as the name of a folder", s.Name)
	}
	for _, before := range c.t.Stages[:i] {
		if before.Name == s.Name {
			c.bad(key+".name", "is %q, which another stage has", s.Name)
		}
	}
	c.phase(key+".agent", s.Agent)
	c.phase(key+".verify", s.Verify)
	if !slices.ContainsFunc(s.Verifiers, func(v VerifierUse) bool { return !v.Advisory }) {
		c.bad(key+".verifiers", "are all advisory: one of them has to decide")
	}
	if s.VerifyIn != nil {
		c.environment(key+".verify_in", s.VerifyIn)
	}
	for j, cmd := range s.Setup {
		c.command(fmt.Sprintf("%s.setup[%d]", key, j), cmd)
	}
	for j, cmd := range s.Hooks {
		c.command(fmt.Sprintf("%s.hooks[%d]", key, j), cmd)
	}
	for j, p := range s.Captures {
		if !folderName(p.Name) {
			c.bad(fmt.Sprintf("%s.captures[%d].name", key, j), "is %q: it must be safe as the name of a folder", p.Name)
		}
	}
	for j, a := range s.Artifacts {
		at := fmt.Sprintf("%s.artifacts[%d]", key, j)
		if a.Source == "" || climbs(a.Source) {
			c.bad(at+".source", "is %q: it must be a path without \"..\"", a.Source)
		}
		if a.To != "" {
			c.relative(at+".to", a.To)
		}
		c.sidecar(at+".service", a.Service)
	}
}

func (c *checker) phase(key string, p Phase) {
	c.env(key+".env", p.Env)
	if p.Network != nil {
		c.network(key+".network", *p.Network)
	}
}

func (c *checker) command(key string, cmd Command) {
	if len(cmd.Argv) == 0 || cmd.Argv[0] == "" {
		c.bad(key+".argv", "is empty")
	}
	c.sidecar(key+".service", cmd.Service)
	c.env(key+".env", cmd.Env)
}

// sidecar checks that a sidecar has this name. With a compose file the sidecars
// are not known yet, so it checks nothing.
func (c *checker) sidecar(key, name string) {
	if name == "" || c.t.Environment.Compose != "" {
		return
	}
	if !slices.ContainsFunc(c.t.Environment.Sidecars, func(s Sidecar) bool { return s.Name == name }) {
		c.bad(key, "is %q: there is no such sidecar", name)
	}
}

func (c *checker) env(key string, e Env) {
	for name, v := range e {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(v.Text, 0) {
			c.bad(key, "has the variable %q, which no environment can hold", name)
		}
	}
}

func (c *checker) network(key string, n Network) {
	for _, host := range n.Allow {
		if _, err := NormalHost(host); err != nil {
			c.bad(key+".allow", "has the host %q, which %v", host, err)
		}
	}
}

func (c *checker) environment(key string, e *Environment) {
	c.build(key+".build", e.Build)
	if e.Compose != "" {
		c.relative(key+".compose", e.Compose)
	}
	c.env(key+".env", e.Env)
	c.network(key+".network", e.Network)
	c.containers(key, e)
}

func (c *checker) build(key string, b *Build) {
	if b == nil {
		return
	}
	if b.Context != "." {
		c.relative(key+".context", b.Context)
	}
	if b.File != "" {
		c.relative(key+".file", b.File)
	}
	for _, name := range slices.Concat(b.Exclude, slices.Sorted(maps.Keys(b.Files))) {
		c.relative(key, name)
	}
}

func (c *checker) servers() {
	names := map[string]bool{}
	for i, m := range c.t.MCPServers {
		if m.Name == "" || names[m.Name] {
			c.bad(fmt.Sprintf("mcp_servers[%d].name", i), "is %q: it must be unique and not empty", m.Name)
		}
		names[m.Name] = true
	}
}

// hostForm is a name that a container has in the network of its sandbox.
var hostForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)

// containers checks the main container and the sidecars.
func (c *checker) containers(key string, e *Environment) {
	c.volumes(key, e.Volumes)
	names := map[string]bool{MainContainer: true}
	at := func(i int) string { return fmt.Sprintf("%s.sidecars[%d]", key, i) }
	for i := range e.Sidecars {
		s, k := &e.Sidecars[i], at(i)
		if !hostForm.MatchString(s.Name) || s.Name == "localhost" || names[s.Name] {
			c.bad(k+".name", "is %q: it must be unique, a host name, and neither main nor localhost", s.Name)
		}
		names[s.Name] = true
		if (s.Image == "") == (s.Build == nil) {
			c.bad(k, "must have either an image or a build")
		}
		c.build(k+".build", s.Build)
		c.env(k+".env", s.Env)
		c.volumes(k, s.Volumes)
		for _, p := range s.Expose {
			if p < 1 || p > 0xffff {
				c.bad(k+".expose", "has %d: it must be a port", p)
			}
		}
	}
	main := Sidecar{Name: MainContainer, Hostname: e.Hostname, Aliases: e.Aliases, DependsOn: e.DependsOn}
	c.ps = append(c.ps, CheckRelations(append([]Sidecar{main}, e.Sidecars...), func(i int) string {
		if i == 0 {
			return key
		}
		return at(i - 1)
	})...)
}

// CheckRelations returns what is wrong in the further names of containers, of which
// main is the first, and in what they say of each other. at returns the key of a
// container by its index.
func CheckRelations(all []Sidecar, at func(i int) string) []Problem {
	c := &checker{}
	taken := map[string]bool{"localhost": true}
	for i := range all {
		taken[strings.ToLower(all[i].Name)] = true
	}
	for i := range all {
		s := &all[i]
		c.alias(at(i)+".hostname", s, s.Hostname, taken)
		for j, a := range s.Aliases {
			if a != s.Hostname {
				c.alias(fmt.Sprintf("%s.aliases[%d]", at(i), j), s, a, taken)
			}
		}
	}
	for i := range all {
		for _, other := range slices.Sorted(maps.Keys(all[i].DependsOn)) {
			c.dependsOn(at(i)+".depends_on."+other, &all[i], other, all)
		}
	}
	e := Environment{DependsOn: all[0].DependsOn, Sidecars: all[1:]}
	if _, loop := e.StartOrder(); len(loop) > 0 {
		first := slices.IndexFunc(all, func(s Sidecar) bool { return s.Name == loop[0] })
		c.bad(at(first)+".depends_on", "goes in a circle: none of %s can be the first", strings.Join(loop, ", "))
	}
	return c.ps
}

// alias checks a further name of a container.
func (c *checker) alias(key string, of *Sidecar, name string, taken map[string]bool) {
	low := strings.ToLower(name)
	if name == "" && strings.HasSuffix(key, ".hostname") || low == strings.ToLower(of.Name) {
		return
	}
	if !hostForm.MatchString(name) || taken[low] {
		c.bad(key, "is %q: it must be a host name (letters, digits, -, _ and ., at most 63) that no other container has, and not localhost", name)
	}
	taken[low] = true
}

// dependsOn checks what a container says of another one.
func (c *checker) dependsOn(key string, s *Sidecar, other string, all []Sidecar) {
	i := slices.IndexFunc(all, func(s Sidecar) bool { return s.Name == other })
	switch state := s.DependsOn[other]; {
	case other == s.Name || i < 0:
		c.bad(key, "is not the name of another container")
	case state != StateStarted && state != StateHealthy && state != StateCompleted:
		c.bad(key, "is %q: it must be started, healthy or completed", state)
	case i == 0 && state != StateStarted:
		c.bad(key, "is %q: the main container, which the agent works in, can only be waited for as started", state)
	case i > 0 && state == StateHealthy && all[i].Healthcheck == nil:
		c.bad(key, "is healthy, and %s has no healthcheck: that of its image is not run", other)
	}
}

func (c *checker) volumes(key string, vs []Volume) {
	targets := map[string]bool{}
	for i, v := range vs {
		k := fmt.Sprintf("%s.volumes[%d]", key, i)
		if !folderName(v.Name) {
			c.bad(k+".name", "is %q: it must be safe as the name of a folder", v.Name)
		}
		if !path.IsAbs(v.Target) || path.Clean(v.Target) != v.Target || v.Target == "/" || targets[v.Target] {
			c.bad(k+".target", "is %q: it must be absolute, clean, below / and used once", v.Target)
		}
		targets[v.Target] = true
	}
}

// inside reports whether p is a clean, relative slash path that does not leave
// its folder.
func inside(p string) bool {
	return p != "" && p != "." && !path.IsAbs(p) && path.Clean(p) == p && p != ".." &&
		!strings.HasPrefix(p, "../") && !strings.ContainsRune(p, 0)
}

// reserved reports whether the core itself creates a file of that name in a
// view.
func reserved(name string) bool {
	return name == "task.json" || name == "attempt" || strings.HasPrefix(name, "attempt/")
}

func climbs(p string) bool { return slices.Contains(strings.Split(p, "/"), "..") }

// stays reports whether a link in dir to target stays within the folder that
// dir is relative to.
func stays(dir, target string) bool {
	if path.IsAbs(target) {
		return false
	}
	p := path.Join(dir, target)
	return p != ".." && !strings.HasPrefix(p, "../")
}

// folderName says whether s is safe as the name of a folder on any system that
// a run may be copied to.
func folderName(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= 255 && !strings.ContainsAny(s, `/\`) &&
		!strings.ContainsFunc(s, unicode.IsControl)
}
