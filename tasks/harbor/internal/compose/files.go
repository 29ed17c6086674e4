package compose

import (
	"bytes"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/berth-eval/berth/plugins/task"
)

// maxCopies bounds the files of the task that its containers get, in bytes.
const maxCopies = 1 << 20

// copy gives a container a file or a folder of the task at a path.
func (c *converter) copy(service, at, from, to string) {
	from = path.Clean(from)
	switch {
	case path.IsAbs(from) || from == ".." || strings.HasPrefix(from, "../"):
		c.bad(at, "Mount of the host", "%q is not in the folder of the compose file: a task's containers see nothing else of the host.", from)
		return
	case !path.IsAbs(to):
		c.bad(at, "Path in the container is not absolute", "Got %q.", to)
		return
	}
	found, err := c.files(from)
	if err != nil {
		c.bad(at, "File cannot be read", "%v.", err)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		c.give(service, at, path.Join(to, name), found[name])
	}
}

// give gives a container a file with a content.
func (c *converter) give(service, at, to string, content []byte) {
	if c.copies[service] == nil {
		c.copies[service] = map[string][]byte{}
	}
	c.copies[service][to] = content
	size := 0
	for _, files := range c.copies {
		for _, b := range files {
			size += len(b)
		}
	}
	if size > maxCopies {
		c.bad(at, "Files are too large", "All files that the compose file names may have %d MiB. Copy them in a Dockerfile.", maxCopies>>20)
	}
}

// objects gives a container its configs and secrets.
func (c *converter) objects(service string, s *types.ServiceConfig) {
	for _, o := range s.Configs {
		c.object(service, "configs", types.FileReferenceConfig(o), types.FileObjectConfig(c.project.Configs[o.Source]), "/")
	}
	for _, o := range s.Secrets {
		c.object(service, "secrets", types.FileReferenceConfig(o), types.FileObjectConfig(c.project.Secrets[o.Source]), "/run/secrets")
	}
}

func (c *converter) object(service, kind string, o types.FileReferenceConfig, is types.FileObjectConfig, folder string) {
	at, to := "services."+service+"."+kind, o.Target
	if to == "" {
		to = o.Source
	}
	if !path.IsAbs(to) {
		to = path.Join(folder, to)
	}
	switch {
	case is.File != "":
		c.copy(service, kind+"."+o.Source, is.File, to)
	case is.Content != "":
		c.give(service, at, to, []byte(is.Content))
	default:
		c.bad(at, "Nothing of that name", "Write %q with file or content under %s: at the top of the file.", o.Source, kind)
	}
}

// env are the variables of a container: those of its files, and its own, which win.
func (c *converter) env(service string, s *types.ServiceConfig) task.Env {
	out := task.Env{}
	at := "services." + service + ".env_file"
	for _, f := range s.EnvFiles {
		from := path.Clean(f.Path)
		found, err := map[string][]byte(nil), error(nil)
		if path.IsAbs(from) || strings.HasPrefix(from, "..") {
			c.bad(at, "File is not of the task", "%q is not in the folder of the compose file.", f.Path)
			continue
		}
		if found, err = c.files(from); err != nil {
			if f.Required {
				c.bad(at, "File cannot be read", "%v.", err)
			}
			continue
		}
		given, err := dotenv.ParseWithLookup(bytes.NewReader(found[""]), func(name string) (string, bool) { return out[name].Text, out[name].Text != "" })
		if err != nil {
			c.bad(at, "Malformed file of variables", "%q: %s.", f.Path, firstLine(err.Error()))
		}
		for name, text := range given {
			out[name] = task.Value{Text: text}
		}
	}
	maps.Copy(out, env(s.Environment))
	if len(out) == 0 {
		return nil
	}
	return out
}

// extraHosts are names of the service itself: those that lead to its own loopback
// address. Others would lead out of the task.
func (c *converter) extraHosts(at string, s *types.ServiceConfig) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(s.ExtraHosts)) {
		for _, address := range s.ExtraHosts[name] {
			if a, err := netip.ParseAddr(address); err != nil || !a.IsLoopback() {
				c.bad(at+".extra_hosts", "Name of another host", "%q leads to %s: only the containers of the task have names. A loopback address is that of the service itself.", name, address)
				continue
			}
			if !slices.Contains(names, name) && name != "localhost" {
				names = append(names, name)
			}
		}
	}
	return names
}

// harmless refuses those values of keys that would give access to the host, or take a
// protection away.
func (c *converter) harmless(service string, s *types.ServiceConfig) {
	at := "services." + service
	switch s.NetworkMode {
	case "", "bridge", "default":
	case "none":
		if service != task.MainContainer {
			c.add(task.Warning, c.at(at+".network_mode"), at+".network_mode", "network_mode has no effect", ignored["networks"])
		}
	default:
		c.bad(at+".network_mode", "network_mode is refused", "It would give the container another network: the host's, or one that no policy holds for. Write none or bridge.")
	}
	for _, o := range s.SecurityOpt {
		if name, value, _ := strings.Cut(strings.ReplaceAll(o, "=", ":"), ":"); name != "no-new-privileges" || value == "false" {
			c.bad(at+".security_opt", "security_opt is refused", "%q would take protections away.", o)
		} else {
			c.add(task.Warning, c.at(at+".security_opt"), at+".security_opt", "security_opt has no effect", "Users of a container may become others.")
		}
	}
	for name, n := range c.project.Networks {
		if n.Internal {
			c.bad("networks."+name, "Network is internal", "Write network_mode = %q in [environment] of task.toml: all containers are in one network.", "no-network")
		}
	}
}
