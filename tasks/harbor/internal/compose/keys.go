package compose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/tasks/internal/document"
)

// allowed are the keys that are carried out. The path of a key has "*" for a
// name that the file chooses.
var allowed = map[string][]string{
	"": {"services", "volumes", "networks", "configs", "secrets", "version", "name"},
	"services.*": {
		"image", "build", "command", "entrypoint", "environment", "depends_on", "healthcheck", "volumes", "expose", "working_dir", "user",
		"ports", "deploy", "restart", "networks", "container_name", "stdin_open", "tty", "platform",
		"init", "pull_policy", "labels", "logging", "stop_grace_period", "stop_signal", "cpus", "mem_limit", "shm_size", "hostname",
		"env_file", "configs", "secrets", "network_mode", "pids_limit", "profiles", "tmpfs", "read_only", "ulimits", "sysctls", "security_opt",
		"dns", "dns_search", "dns_opt", "extra_hosts",
	},
	"services.*.build":        {"context", "dockerfile", "dockerfile_inline", "target", "args"},
	"services.*.healthcheck":  {"test", "interval", "timeout", "retries", "start_period", "start_interval", "disable"},
	"services.*.depends_on.*": {"condition"},
	"services.*.volumes[]":    {"type", "source", "target", "read_only", "volume", "bind", "tmpfs"},
	"services.*.env_file[]":   {"path", "required"},
	"services.*.configs[]":    {"source", "target", "uid", "gid", "mode"},
	"services.*.secrets[]":    {"source", "target", "uid", "gid", "mode"},
	"configs.*":               {"file", "content"},
	"secrets.*":               {"file"},
	"volumes.*":               {},

	"services.*.ports[]":                 {"name", "target", "published", "protocol", "mode", "host_ip", "app_protocol"},
	"services.*.networks.*":              {"aliases"},
	"services.*.deploy":                  {"resources"},
	"services.*.deploy.resources":        {"limits"},
	"services.*.deploy.resources.limits": {"cpus", "memory"},
	"networks.*":                         {"driver", "internal"},
}

// ignored are keys of services that are allowed and have no effect, with why.
var ignored = map[string]string{
	"ports":          "No port of the host is opened. The containers of the task reach each other by name.",
	"restart":        "A service that ends is not started again.",
	"networks":       "All containers of a task are in one network.",
	"container_name": "The containers of the task reach the service by its own name.",
	"stdin_open":     "Services have no input.",
	"tty":            "Services have no terminal.",
	"platform":       "The engine's own platform is used.",

	"init":              "The first process of every container is an init already.",
	"pull_policy":       "The environment says when images are pulled.",
	"labels":            "Containers and images have their own labels.",
	"logging":           "The output of a service is kept with the attempt.",
	"stop_grace_period": "Services end with the sandbox.",
	"stop_signal":       "Services end with the sandbox.",

	"profiles":   "A service with a profile is not started.",
	"tmpfs":      "What is written there is in the container's own file system.",
	"read_only":  "The file system of a container can be written to.",
	"ulimits":    "Limits of a process are those of the engine.",
	"sysctls":    "Settings of the kernel are not changed.",
	"dns":        "Names are those that the network of the task knows.",
	"dns_search": "Names are those that the network of the task knows.",
	"dns_opt":    "Names are those that the network of the task knows.",
}

// free are the places whose keys are names that the file chooses.
var free = []string{"services", "volumes", "networks", "configs", "secrets", "services.*.environment", "services.*.build.args", "services.*.depends_on", "services.*.networks"}

// dangerous say of keys that are refused what they would give away.
var dangerous = map[string]string{
	"privileged":          "It would give the container the host.",
	"cap_add":             "It would give the container rights on the host.",
	"cap_drop":            "Every container has the engine's default rights, no others.",
	"devices":             "It would give the container devices of the host.",
	"device_cgroup_rules": "It would give the container devices of the host.",
	"pid":                 "It would show the container processes of the host.",
	"ipc":                 "It would give the container memory of others.",
	"uts":                 "It would give the container the host's name.",
	"userns_mode":         "It would give the container users of the host.",
	"cgroup":              "It would give the container control groups of the host.",
	"cgroup_parent":       "It would move the container out of its limits.",
	"extends":             "It would read another file. Write the service out.",
	"include":             "It would read another file. Write the services out.",
	"volumes_from":        "It would mount what another container has. Use a named volume.",
	"external":            "It would join what others on this machine have.",
}

// maxDepth bounds how deep a file nests, aliases followed. maxNodes bounds how
// much of it is looked at, so that aliases of aliases end.
const (
	maxDepth = 32
	maxNodes = 20_000
)

// keys checks which keys a file has, and knows where they stand.
type keys struct {
	file     string
	problems []task.Problem
	lines    map[string]*token.Position // by path with the file's own names
	anchors  map[string]ast.Node
	nodes    int

	variables Variables
}

// at is the place of a path, or of what it lies in.
func (k *keys) at(path string) *token.Position {
	for ; path != ""; path = path[:max(0, strings.LastIndexByte(path, '.'))] {
		if p := k.lines[path]; p != nil {
			return p
		}
	}
	return nil
}

// bad reports a problem at the line of a path.
func (k *keys) bad(path, summary, format string, args ...any) {
	k.add(task.Error, k.at(path), path, summary, fmt.Sprintf(format, args...))
}

func (k *keys) add(s task.Severity, p *token.Position, path, summary, detail string) {
	out := task.Problem{File: k.file, Severity: s, Key: path, Summary: summary, Detail: detail}
	if p != nil {
		out.Line, out.Column = p.Line, p.Column
	}
	k.problems = append(k.problems, out)
}

// check refuses what the file may not say, and returns the file without what
// has no effect.
func (k *keys) check(data []byte) []byte {
	k.lines, k.anchors = map[string]*token.Position{}, map[string]ast.Node{}
	if len(data) > document.MaxSize {
		k.add(task.Error, nil, "", "Not valid YAML", fmt.Sprintf("It is larger than %d MiB.", document.MaxSize>>20))
		return nil
	}
	bodies, p := document.Bodies(k.file, data)
	if p != nil {
		k.problems = append(k.problems, *p)
		return nil
	}
	switch {
	case len(bodies) == 0:
		return []byte("services: {}\n")
	case len(bodies) > 1:
		k.add(task.Error, bodies[1].GetToken().Position, "", "More than one document", "A compose file is one.")
		return nil
	}
	ast.Walk(anchors{k}, bodies[0])
	k.mapping("", "", bodies[0], 0)
	if task.Broken(k.problems) {
		return nil
	}
	return k.without(data, "version")
}

// anchors collects what aliases stand for.
type anchors struct{ k *keys }

// Visit notes one anchor.
func (a anchors) Visit(n ast.Node) ast.Visitor {
	if an, ok := n.(*ast.AnchorNode); ok && an.Name != nil {
		a.k.anchors[an.Name.GetToken().Value] = an.Value
	}
	return a
}

// plain is a node without anchor and alias; nil when there is nothing.
func (k *keys) plain(n ast.Node) ast.Node {
	for range maxDepth {
		switch v := n.(type) {
		case *ast.AnchorNode:
			n = v.Value
		case *ast.AliasNode:
			n = k.anchors[v.Value.GetToken().Value]
		default:
			return n
		}
	}
	return nil
}

// enough ends a walk that aliases have made endless.
func (k *keys) enough(n ast.Node, depth int) bool {
	if k.nodes++; k.nodes <= maxNodes && depth <= maxDepth {
		return false
	}
	if k.nodes == maxNodes+1 || depth > maxDepth {
		k.nodes = maxNodes + 2
		if !task.Broken(k.problems) {
			k.add(task.Error, n.GetToken().Position, "", "Too much", "The file nests too deep, or its aliases stand for too much.")
		}
	}
	return true
}

// mapping checks a mapping: path names it as the file does, form with "*".
func (k *keys) mapping(path, form string, n ast.Node, depth int) {
	if n == nil || k.enough(n, depth) {
		return
	}
	values, ok := document.Pairs(n)
	if !ok {
		k.value(path, form, n, depth)
		return
	}
	for _, v := range values {
		if v.Key == nil || v.Key.GetToken() == nil {
			continue
		}
		if v.Key.IsMergeKey() {
			k.merge(path, form, v.Value, depth+1)
			continue
		}
		name := keyName(v.Key)
		p, f := document.Join(path, name), document.Join(form, name)
		if strings.HasPrefix(name, "x-") && form != "services.*.environment" {
			if _, seen := k.lines[p]; !seen {
				k.lines[p] = v.Key.GetToken().Position
			}
			continue // for anchors; has no meaning of its own
		}
		k.lines[p] = v.Key.GetToken().Position
		if slices.Contains(free, form) {
			f = document.Join(form, "*")
		} else if list, known := allowed[form]; known && !slices.Contains(list, name) {
			k.refuse(p, name, list)
			continue
		}
		if why := ignored[name]; why != "" && form == "services.*" && !isNo(k.plain(v.Value)) {
			k.add(task.Warning, k.lines[p], p, fmt.Sprintf("%s has no effect", name), why)
		}
		k.mapping(p, f, k.plain(v.Value), depth+1)
	}
}

// isNo says whether a value asks for nothing: restart: "no", tty: false.
func isNo(n ast.Node) bool {
	s, ok := text(n)
	b, isBool := n.(*ast.BoolNode)
	return ok && s == "no" || isBool && !b.Value
}

// merge checks what "<<" brings in.
func (k *keys) merge(path, form string, n ast.Node, depth int) {
	n = k.plain(n)
	if s, ok := n.(*ast.SequenceNode); ok {
		for _, v := range s.Values {
			k.mapping(path, form, k.plain(v), depth+1)
		}
		return
	}
	k.mapping(path, form, n, depth)
}

func keyName(n ast.MapKeyNode) string {
	if s, ok := n.(*ast.StringNode); ok {
		return s.Value
	}
	return n.GetToken().Value
}

func (k *keys) refuse(path, name string, list []string) {
	if why, ok := dangerous[name]; ok {
		k.bad(path, fmt.Sprintf("%s is refused", name), "%s", why)
		return
	}
	if len(list) == 0 {
		k.bad(path, fmt.Sprintf("%s is refused", name), "A volume or network is named and nothing else: it has no options, and none is taken from the host.")
		return
	}
	k.bad(path, fmt.Sprintf("%s is not supported", name), "Supported here: %s.", strings.Join(list, ", "))
}

// value checks what is not a mapping: the variables in it, and the short forms.
func (k *keys) value(path, form string, n ast.Node, depth int) {
	switch v := n.(type) {
	case *ast.SequenceNode:
		for _, item := range v.Values {
			item = k.plain(item)
			if item == nil {
				continue
			}
			k.mapping(path, form+"[]", item, depth+1)
		}
	case *ast.TagNode:
		k.add(task.Error, v.GetToken().Position, path, "Tag is not supported", fmt.Sprintf("%q: write the value itself.", v.GetToken().Value))
	default:
		if s, ok := text(n); ok {
			k.names(path, form, n.GetToken().Position, s)
			if form == "services.*.volumes[]" {
				k.shortVolume(path, n.GetToken().Position, s)
			}
		}
	}
}

func text(n ast.Node) (string, bool) {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, true
	case *ast.LiteralNode:
		return v.Value.Value, true
	default:
		return "", false
	}
}

// shortVolume refuses mounts of the host with what they would give away.
func (k *keys) shortVolume(path string, p *token.Position, s string) {
	source, rest, _ := strings.Cut(s, ":")
	switch {
	case strings.HasSuffix(source, ".sock"):
		k.add(task.Error, p, path, "Socket of the host", fmt.Sprintf("%q would give the container the engine, or another program of the host.", s))
	case rest != "" && (strings.HasPrefix(source, "/") || strings.HasPrefix(source, "~")):
		k.add(task.Error, p, path, "Mount of the host", fmt.Sprintf("%q: a task's containers see nothing of the host. Use a named volume, or copy files into the image.", s))
	}
}

// without blanks a key of one line at the top of the file.
func (k *keys) without(data []byte, name string) []byte {
	p := k.lines[name]
	if p == nil || p.Column != 1 {
		return data
	}
	k.add(task.Warning, p, name, "Key without effect", "Remove it: compose files have no version any more.")
	lines := strings.SplitAfter(string(data), "\n")
	if p.Line > len(lines) {
		return data
	}
	lines[p.Line-1] = "\n"
	return []byte(strings.Join(lines, ""))
}
