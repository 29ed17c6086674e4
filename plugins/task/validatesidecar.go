package task

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// hostForm is a name that a container has in the network of its sandbox.
var hostForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)

// containers checks the main container and the sidecars.
func (c *checker) containers(key string, e *Environment) {
	c.volumes(key, e.Volumes)
	names := map[string]bool{MainContainer: true}
	for i := range e.Sidecars {
		s := &e.Sidecars[i]
		k := fmt.Sprintf("%s.sidecars[%d]", key, i)
		if !hostForm.MatchString(s.Name) || s.Name == "localhost" || names[s.Name] {
			c.bad(k+".name", "is %q: it must be unique, a host name, and neither main nor localhost", s.Name)
		}
		names[s.Name] = true
		if (s.Image == "") == (s.Build == nil) {
			c.bad(k, "must have either an image or a build")
		}
		c.build(k+".build", s.Build)
		c.env(k+".env", s.Env)
		c.limits(k+".limits", s.Limits)
		c.healthcheck(k+".healthcheck", s.Healthcheck)
		c.volumes(k, s.Volumes)
		for _, p := range s.Expose {
			if p < 1 || p > 0xffff {
				c.bad(k+".expose", "has %d: it must be a port", p)
			}
		}
	}
	c.aliases(key, MainContainer, e.Hostname, e.Aliases, names)
	for i := range e.Sidecars {
		s := &e.Sidecars[i]
		c.aliases(fmt.Sprintf("%s.sidecars[%d]", key, i), s.Name, s.Hostname, s.Aliases, names)
	}
	c.dependsOn(key, MainContainer, e.DependsOn, e)
	for i := range e.Sidecars {
		c.dependsOn(fmt.Sprintf("%s.sidecars[%d]", key, i), e.Sidecars[i].Name, e.Sidecars[i].DependsOn, e)
	}
	if _, loop := e.StartOrder(); len(loop) > 0 {
		c.bad(key+".depends_on", "goes in a circle: %s", strings.Join(loop, ", "))
	}
}

// aliases checks the further names of a container. taken has the names of all
// containers.
func (c *checker) aliases(key, own, hostname string, aliases []string, taken map[string]bool) {
	if hostname != "" {
		c.alias(key+".hostname", own, hostname, taken)
	}
	for i, a := range aliases {
		if a != hostname {
			c.alias(fmt.Sprintf("%s.aliases[%d]", key, i), own, a, taken)
		}
	}
}

func (c *checker) alias(key, own, name string, taken map[string]bool) {
	if name == own {
		return
	}
	if !hostForm.MatchString(name) || name == "localhost" || taken[name] {
		c.bad(key, "is %q: it must be a host name that no other container has, and not localhost", name)
	}
	taken[name] = true
}

func (c *checker) dependsOn(key, name string, on map[string]string, e *Environment) {
	for _, other := range slices.Sorted(maps.Keys(on)) {
		k := key + ".depends_on." + other
		i := slices.IndexFunc(e.Sidecars, func(s Sidecar) bool { return s.Name == other })
		switch state := on[other]; {
		case other == name || i < 0 && other != MainContainer:
			c.bad(k, "is not the name of another container")
		case state != StateStarted && state != StateHealthy && state != StateCompleted:
			c.bad(k, "is %q: it must be started, healthy or completed", state)
		case i < 0 && state != StateStarted:
			c.bad(k, "is %q: the main container, which the agent works in, can only be waited for as started", state)
		case i >= 0 && state == StateHealthy && e.Sidecars[i].Healthcheck == nil:
			c.bad(k, "is healthy, and %s has no healthcheck", other)
		}
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

// StartOrder returns the names of all containers, including main, each after
// those that it depends on. Otherwise it keeps the order of Sidecars, with main
// as early as possible. Containers that wait for each other are in loop.
func (e *Environment) StartOrder() (order, loop []string) {
	left := []string{MainContainer}
	needs := map[string]map[string]string{MainContainer: e.DependsOn}
	for i := range e.Sidecars {
		left = append(left, e.Sidecars[i].Name)
		needs[e.Sidecars[i].Name] = e.Sidecars[i].DependsOn
	}
	for len(left) > 0 {
		i := slices.IndexFunc(left, func(name string) bool {
			for other := range needs[name] {
				if _, known := needs[other]; known && !slices.Contains(order, other) {
					return false
				}
			}
			return true
		})
		if i < 0 {
			return order, left
		}
		order = append(order, left[i])
		left = slices.Delete(left, i, i+1)
	}
	return order, nil
}
