package task

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

var envName = regexp.MustCompile(`^[^=\x00]+$`)

func (c *checker) stage(key string, i int, s *Stage) {
	if !folderName(s.Name) {
		c.bad(key+".name", "is %q: it must be safe as the name of a folder", s.Name)
	}
	for _, before := range c.t.Stages[:i] {
		if before.Name == s.Name {
			c.bad(key+".name", "is %q, which another stage has", s.Name)
		}
	}
	c.instruction(key+".instruction", s)
	c.phase(key+".agent", s.Agent)
	c.phase(key+".verify", s.Verify)
	if s.Verify.Startup != 0 || s.Verify.Stall != 0 {
		c.bad(key+".verify", "has startup or stall, which are for the agent only")
	}
	if len(s.Verifiers) == 0 {
		c.bad(key+".verifiers", "is empty: nothing would judge the stage")
	}
	for j, v := range s.Verifiers {
		if v.Name == "" {
			c.bad(fmt.Sprintf("%s.verifiers[%d].name", key, j), "is empty")
		}
		c.object(fmt.Sprintf("%s.verifiers[%d].settings", key, j), v.Settings)
	}
	if len(s.Verifiers) > 0 && !slices.ContainsFunc(s.Verifiers, func(v VerifierUse) bool { return !v.Advisory }) {
		c.bad(key+".verifiers", "are all advisory: one of them has to decide")
	}
	c.mode(key+".mode", s.Mode)
	if s.VerifyIn != nil {
		c.environment(key+".verify_in", s.VerifyIn)
	}
	c.healthcheck(key+".verify_healthcheck", s.VerifyHealthcheck)
	for j, cmd := range s.Setup {
		c.command(fmt.Sprintf("%s.setup[%d]", key, j), cmd)
	}
	for j, cmd := range s.Hooks {
		c.command(fmt.Sprintf("%s.hooks[%d]", key, j), cmd)
	}
	c.reference(key+".reference", s)
	c.healthcheck(key+".healthcheck", s.Healthcheck)
	c.surface(key, s)
	for j, a := range s.Artifacts {
		c.artifact(fmt.Sprintf("%s.artifacts[%d]", key, j), a)
	}
	if s.PriorTrajectory != "" && !c.visible(s.PriorTrajectory, RoleAgent, s.Name) {
		c.bad(key+".prior_trajectory", "is %q: the agent sees no such resource", s.PriorTrajectory)
	}
	if s.SameSession && i == 0 {
		c.bad(key+".same_session", "is set on the first stage, which has no session before it")
	}
	for name, v := range s.MinScores {
		if name == "" || !finite(v) {
			c.bad(key+".min_scores", "has %q = %v: a name and a finite number are needed", name, v)
		}
	}
}

func (c *checker) instruction(key string, s *Stage) {
	for j, p := range s.Instruction {
		if (p.Text == "") == (p.Resource == "") {
			c.bad(fmt.Sprintf("%s[%d]", key, j), "must have either text or a resource")
		}
		if p.Resource != "" && !c.visible(p.Resource, RoleAgent, s.Name) {
			c.bad(fmt.Sprintf("%s[%d].resource", key, j), "is %q: the agent sees no such resource", p.Resource)
		}
	}
}

func (c *checker) visible(name string, role Role, stage string) bool {
	r := c.resources[name]
	return r != nil && r.For(role, stage)
}

func (c *checker) reference(key string, s *Stage) {
	ref := s.Reference
	if ref == nil {
		return
	}
	r := c.resources[ref.Resource]
	switch {
	case r == nil || !r.For(RoleOracle, s.Name):
		c.bad(key+".resource", "is %q: the oracle sees no such resource", ref.Resource)
	case r.For(RoleAgent, s.Name) || r.For(RoleUser, s.Name):
		c.bad(key+".resource", "is %q, which others than the oracle see", ref.Resource)
	}
	if len(ref.Argv) == 0 {
		c.bad(key+".argv", "is empty")
	}
	c.env(key+".env", ref.Env)
}

func (c *checker) surface(key string, s *Stage) {
	if s.Surface != nil && s.Surface.Steps < 0 {
		c.bad(key+".surface.steps", "is negative")
	}
	if s.Surface != nil && !slices.Contains([]string{"", StepsOfActions, StepsOfReplies}, s.Surface.StepsOf) {
		c.bad(key+".surface.steps_of", "is %q: write %q or %q", s.Surface.StepsOf, StepsOfActions, StepsOfReplies)
	}
	for j, p := range s.Captures {
		if !folderName(p.Name) {
			c.bad(fmt.Sprintf("%s.captures[%d].name", key, j), "is %q: it must be safe as the name of a folder", p.Name)
		}
		c.object(fmt.Sprintf("%s.captures[%d].settings", key, j), p.Settings)
	}
}

func (c *checker) phase(key string, p Phase) {
	c.times(key+".time", p.Time, p.Startup, p.Stall)
	c.env(key+".env", p.Env)
	if p.EnvFile != "" && (!fs.ValidPath(p.EnvFile) || !strings.Contains(p.EnvFile, "/")) {
		c.bad(key+".env_file", "is %q: it must be the path of a file in a folder of the view", p.EnvFile)
	}
	if p.Network != nil {
		c.network(key+".network", *p.Network)
	}
}

func (c *checker) command(key string, cmd Command) {
	if len(cmd.Argv) == 0 || cmd.Argv[0] == "" {
		c.bad(key+".argv", "is empty")
	}
	c.sidecar(key+".service", cmd.Service)
	c.times(key+".time", cmd.Time)
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

func (c *checker) service(key string, s Service) {
	if s.Name == "" {
		c.bad(key+".name", "is empty")
	}
	c.command(key+".command", s.Command)
	c.healthcheck(key+".ready", s.Ready)
}

func (c *checker) healthcheck(key string, h *Healthcheck) {
	if h == nil {
		return
	}
	if len(h.Argv) == 0 {
		c.bad(key+".argv", "is empty")
	}
	c.times(key, h.Interval, h.Timeout, h.StartPeriod, h.StartInterval)
	if h.Retries < 0 {
		c.bad(key+".retries", "is negative")
	}
}

func (c *checker) artifact(key string, a Artifact) {
	if a.Source == "" || climbs(a.Source) {
		c.bad(key+".source", "is %q: it must be a path without \"..\"", a.Source)
	}
	if a.To != "" && !inside(a.To) {
		c.bad(key+".to", "is %q: it must be a relative, clean path", a.To)
	}
	for _, role := range a.Audience {
		if role != RoleVerifier && role != RoleUser {
			c.bad(key+".audience", "has %q: it must be verifier or user", role)
		}
	}
	c.sidecar(key+".service", a.Service)
}

func (c *checker) env(key string, e Env) {
	for name, v := range e {
		if !envName.MatchString(name) || strings.ContainsRune(v.Text, 0) {
			c.bad(key, "has the variable %q, which no environment can hold", name)
		}
		if (v.Text != "" && v.Host != "") || (v.Parts != nil && v.Text+v.Host != "") {
			c.bad(key+"."+name, "has more than one of a text, a host variable and parts")
		}
	}
}

func (c *checker) network(key string, n Network) {
	switch n.Mode {
	case NetworkNone, NetworkPublic:
		if len(n.Allow) > 0 {
			c.bad(key+".allow", "is set, but the mode is %q", n.Mode)
		}
	case NetworkAllow:
		for _, host := range n.Allow {
			if _, err := NormalHost(host); err != nil {
				c.bad(key+".allow", "has the host %q, which %v", host, err)
			}
		}
	default:
		c.bad(key+".mode", "is %q: it must be none, allow or public", n.Mode)
	}
}

func (c *checker) environment(key string, e *Environment) {
	if e.OS != "linux" && e.OS != "windows" {
		c.bad(key+".os", "is %q: it must be linux or windows", e.OS)
	}
	c.build(key+".build", e.Build)
	if e.Compose != "" && !inside(e.Compose) {
		c.bad(key+".compose", "is %q: it must be a relative, clean path", e.Compose)
	}
	if e.Upload && (e.Build == nil || e.Image == "") {
		c.bad(key+".upload", "is set without both an image and a folder of files")
	}
	c.times(key+".start_time", e.StartTime)
	c.env(key+".env", e.Env)
	if !slices.IsSorted(e.Users) || slices.Contains(e.Users, "") {
		c.bad(key+".users", "is not sorted, or has an empty name")
	}
	c.limits(key+".limits", e.Limits)
	c.network(key+".network", e.Network)
	c.containers(key, e)
	c.object(key+".settings", e.Settings)
	for _, f := range e.Files {
		if c.resources[f] == nil {
			c.bad(key+".files", "has %q: there is no such resource", f)
		}
	}
}

func (c *checker) build(key string, b *Build) {
	if b == nil {
		return
	}
	if !inside(b.Context) && b.Context != "." {
		c.bad(key+".context", "is %q: it must be a relative, clean path", b.Context)
	}
	if b.File != "" && !inside(b.File) {
		c.bad(key+".file", "is %q: it must be a relative, clean path", b.File)
	}
	for _, name := range slices.Concat(b.Exclude, slices.Sorted(maps.Keys(b.Files))) {
		if !inside(name) {
			c.bad(key, "names %q: it must be a relative, clean path", name)
		}
	}
	if !digestForm.MatchString(b.Digest) {
		c.bad(key+".digest", "is %q: it must be sha256: and 64 hex digits", b.Digest)
	}
}

func (c *checker) limits(key string, l Limits) {
	for name, v := range map[string]int64{
		"cpu_milli": l.CPUMilli, "memory_mib": l.MemoryMiB, "storage_mib": l.StorageMiB,
		"shm_mib": l.ShmMiB, "pids": l.Pids, "gpus": l.GPUs,
	} {
		if v < 0 {
			c.bad(key+"."+name, "is negative")
		}
	}
}

func (c *checker) offers() {
	names := map[string]bool{}
	for i, m := range c.t.MCPServers {
		key := fmt.Sprintf("mcp_servers[%d]", i)
		if m.Name == "" || names[m.Name] {
			c.bad(key+".name", "is %q: it must be unique and not empty", m.Name)
		}
		names[m.Name] = true
		switch m.Transport {
		case "stdio":
			if m.Command == "" || m.URL != "" || len(m.Headers) > 0 {
				c.bad(key, "is stdio: it must have a command, and neither url nor headers")
			}
		case "sse", "streamable-http":
			if m.URL == "" || m.Command != "" {
				c.bad(key, "is %s: it must have a url and no command", m.Transport)
			}
		default:
			c.bad(key+".transport", "is %q: it must be stdio, sse or streamable-http", m.Transport)
		}
	}
	c.skills()
}

func (c *checker) skills() {
	for i, s := range c.t.Skills {
		key := fmt.Sprintf("skills[%d]", i)
		if (s.Dir == "") == (s.Resource == "") {
			c.bad(key, "must have either a folder in the sandbox or a resource")
		}
		if s.Dir != "" && (!path.IsAbs(s.Dir) || climbs(s.Dir)) {
			c.bad(key+".dir", "is %q: it must be absolute", s.Dir)
		}
		if s.Resource != "" && (c.resources[s.Resource] == nil || !c.resources[s.Resource].For(RoleAgent, c.resources[s.Resource].Stage)) {
			c.bad(key+".resource", "is %q: the agent sees no such resource", s.Resource)
		}
		for _, name := range s.FromImage {
			if s.Dir == "" || !folderName(name) {
				c.bad(key+".from_image", "has %q: it must be the name of a folder in dir", name)
			}
		}
	}
}

// folderName says whether s is safe as the name of a folder on any system that
// a run may be copied to.
func folderName(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= 255 && !strings.ContainsAny(s, `/\`) &&
		!strings.ContainsFunc(s, unicode.IsControl)
}
