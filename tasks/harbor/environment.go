package harbor

import (
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/tasks/internal/document"
)

var (
	oldSize     = regexp.MustCompile(`^\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGkmg])\s*$`)
	tpuTopology = regexp.MustCompile(`^[1-9][0-9]*(x[1-9][0-9]*)+$`)
	envTemplate = regexp.MustCompile(`^\$\{([^}:]+)(?::-([\s\S]*))?\}$`)
	variable    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	headerName  = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

	// Names that are those of credentials, and what the value of such a header
	// may be: a scheme such as "Bearer", and host variables without a default.
	credential      = regexp.MustCompile(`(?i)KEY|SECRET|TOKEN(?:[^S]|$)|PASSWORD|CREDENTIAL|AUTH|^(?:SET-)?COOKIE$`)
	credentialValue = regexp.MustCompile(`^\s*(?:[A-Za-z]+\s+)?` + bareTemplate + `(?:[\s:-]*` + bareTemplate + `)*\s*$`)
	embedded        = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}`)
)

const bareTemplate = `\$\{[A-Za-z_][A-Za-z0-9_]*(?::-)?\}`

// environment reads [environment] or, without main, [verifier.environment],
// which has no settings for the agent.
func (d *decoder) environment(t *document.Table, main bool) environmentConfig {
	e := environmentConfig{
		image:   t.Text("docker_image", ""),
		os:      strings.ToLower(t.Text("os", "linux")),
		workdir: t.Text("workdir", ""),
		env:     d.env(t, "env"),
		start:   seconds(t, "build_timeout_sec", defaultStartTime), startKey: t.At("build_timeout_sec"),
		network: d.baseline(t),
	}
	if e.workdir != "" && !path.IsAbs(e.workdir) && e.os == "linux" {
		d.Bad(t.At("workdir"), "Working directory is not absolute", "%q is relative. Use an absolute path of the sandbox.", e.workdir)
	}
	if e.os != "linux" && e.os != "windows" {
		d.Bad(t.At("os"), "Wrong value", "%s is %q: write linux or windows.", t.At("os"), e.os)
	}
	e.limits = d.limits(t)
	e.healthcheck = d.healthcheck(t.Below("healthcheck"))
	e.skillsDir = t.Text("skills_dir", "")
	if e.skillsDir != "" && (!path.IsAbs(e.skillsDir) || slices.Contains(strings.Split(e.skillsDir, "/"), "..")) && e.os == "linux" {
		d.Bad(t.At("skills_dir"), "Folder of skills is not absolute", "%q is relative. Use an absolute path of the sandbox.", e.skillsDir)
	}
	for _, s := range t.Tables("mcp_servers") {
		e.servers = append(e.servers, d.server(s, e.servers))
	}
	if !main && (e.skillsDir != "" || len(e.servers) > 0) {
		d.Warn(t.Path, "Setting without effect", "Skills and MCP servers are for the agent, which never runs in %s.", t.Path)
	}
	t.Done()
	return e
}

func (d *decoder) limits(t *document.Table) task.Limits {
	var l task.Limits
	if f, ok := t.Float("cpus"); ok {
		l.CPUMilli = int64(math.Round(d.atLeastZero(t, "cpus", f) * 1000))
	}
	l.MemoryMiB = d.size(t, "memory_mb", "memory")
	l.StorageMiB = d.size(t, "storage_mb", "storage")
	if n, ok := t.Integer("gpus"); ok {
		l.GPUs = int64(d.atLeastZero(t, "gpus", float64(n)))
	}
	l.GPUTypes = t.Strings("gpu_types")
	if tpu := t.Below("tpu"); tpu.Exists() {
		l.TPU = &task.TPU{Type: tpu.Required("type"), Topology: tpu.Required("topology")}
		if l.TPU.Topology != "" && !tpuTopology.MatchString(l.TPU.Topology) {
			d.Bad(tpu.At("topology"), "Malformed topology", "%q must be numbers joined by \"x\", such as \"2x4\".", l.TPU.Topology)
		}
		tpu.Done()
	}
	return l
}

// atLeastZero treats a negative amount, which the format accepts but gives no
// meaning, and an impossibly large one as not set.
func (d *decoder) atLeastZero(t *document.Table, key string, f float64) float64 {
	if f < 0 || f > 1<<40 {
		d.Warn(t.At(key), "Number out of range", "%s is %v, taken as if it were not written.", t.At(key), f)
		return 0
	}
	return f
}

// size reads mebibytes, under the present name or the one of schema 1.0.
func (d *decoder) size(t *document.Table, key, old string) int64 {
	n, ok := t.Integer(key)
	if v := t.Get(old); v != nil {
		s, isText := v.(string)
		m := oldSize.FindStringSubmatch(s)
		if !isText || m == nil {
			d.Bad(t.At(old), "Malformed size", "%s must be a text such as \"2G\" or \"512M\", got %s. Better: %s = 2048.", t.At(old), d.Show(v), t.At(key))
			return 0
		}
		f, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			d.Bad(t.At(old), "Malformed size", "%q: %v.", s, err)
			return 0
		}
		said := int64(f * map[string]float64{"K": 1.0 / 1024, "M": 1, "G": 1024}[strings.ToUpper(m[2])])
		if ok && said != n {
			d.Bad(t.At(old), "Said twice", "%s is the old spelling of %s, and says otherwise: remove one of them.", t.At(old), t.At(key))
		}
		n = said
	}
	return int64(d.atLeastZero(t, key, float64(n)))
}

// env reads variables. A value that is exactly one template names a host
// variable; any other value is literal.
func (d *decoder) env(t *document.Table, key string) task.Env {
	sub := t.Below(key)
	if len(sub.Values) == 0 {
		return nil
	}
	e := make(task.Env, len(sub.Values))
	for name := range sub.Values {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			d.Bad(sub.At(name), "Malformed variable", "%q cannot be the name of a variable.", name)
			continue
		}
		text, ok := sub.Values[name].(string)
		if !ok {
			d.Bad(sub.At(name), "Wrong type", "%s must be a text, got %s. Put it in quotes.", sub.At(name), d.Show(sub.Values[name]))
			continue
		}
		e[name] = d.value(sub.At(name), text)
	}
	return e
}

func (d *decoder) value(path, text string) task.Value {
	m := envTemplate.FindStringSubmatch(text)
	if m == nil {
		return task.Value{Text: text}
	}
	name := m[1]
	var def *string
	if strings.Contains(text, ":-") {
		def = &m[2]
	}
	if !variable.MatchString(name) {
		d.Bad(path, "Malformed template", "%q does not name a host variable.", text)
		return task.Value{}
	}
	if def != nil && !d.options.EnvAllowed(name) {
		unless := ""
		if strings.HasPrefix(path, "verifier.") {
			unless = ", unless the verifier's model supplies it"
		}
		d.Warn(path, "Host variable is not let through", "The default of %s is used%s. Allow it with --allow-env %s.", name, unless, name)
	}
	return task.Value{Host: name, Default: def}
}

func (d *decoder) server(t *document.Table, before []task.MCPServer) task.MCPServer {
	s := task.MCPServer{
		Name:      t.Required("name"),
		Transport: t.Word("transport", "sse", "stdio", "sse", "streamable-http", "http"),
		URL:       t.Text("url", ""), Command: t.Text("command", ""), Args: t.Strings("args"),
	}
	if s.Transport == "http" {
		s.Transport = "streamable-http"
	}
	if slices.ContainsFunc(before, func(b task.MCPServer) bool { return b.Name == s.Name }) {
		d.Bad(t.At("name"), "Name is used twice", "%q is also the name of another MCP server.", s.Name)
	}
	s.Headers = d.headers(t, s.Transport)
	t.Done()
	if s.Transport == "stdio" {
		if s.Command == "" {
			d.Bad(t.Path, "Setting is missing", "A stdio server must have a \"command\".")
		}
		if s.URL != "" {
			d.Warn(t.At("url"), "Setting without effect", "A stdio server has no url.")
			s.URL = ""
		}
		return s
	}
	if s.URL == "" {
		d.Bad(t.Path, "Setting is missing", "A server with transport %q must have a \"url\".", s.Transport)
	}
	if s.Command != "" || len(s.Args) > 0 {
		d.Warn(t.Path, "Setting without effect", "A server with transport %q has no command.", s.Transport)
		s.Command, s.Args = "", nil
	}
	return s
}

// headers reads the HTTP headers. A header with a credential must take it from
// the host without a default, so that a task contains no secret.
func (d *decoder) headers(t *document.Table, transport string) task.Env {
	sub := t.Below("headers")
	if len(sub.Values) == 0 {
		return nil
	}
	if transport == "stdio" {
		d.Bad(sub.Path, "Setting does not fit", "Headers are sent over HTTP, a stdio server has none.")
		return nil
	}
	out := make(task.Env, len(sub.Values))
	for name, v := range sub.Values {
		text, ok := v.(string)
		switch {
		case !headerName.MatchString(name):
			d.Bad(sub.At(name), "Malformed header", "%q is not the name of a header.", name)
		case !ok:
			d.Bad(sub.At(name), "Wrong type", "%s must be a text, got %s.", sub.At(name), d.Show(v))
		case strings.ContainsAny(text, "\r\n\x00"):
			d.Bad(sub.At(name), "Malformed header", "%s has a line break in it.", sub.At(name))
		case strings.Contains(embedded.ReplaceAllString(text, ""), "${"):
			d.Bad(sub.At(name), "Malformed template", "%q does not name a host variable.", text)
		case literalCredential(name, text):
			d.Bad(sub.At(name), "Credential in a task", "%s must take it from the host without a default, such as \"Bearer ${TOKEN}\".", sub.At(name))
		default:
			out[name] = d.joined(sub.At(name), text)
		}
	}
	return out
}

func literalCredential(name, text string) bool {
	for _, m := range embedded.FindAllStringSubmatch(text, -1) {
		if m[2] != "" && (credential.MatchString(name) || credential.MatchString(m[1])) {
			return true
		}
	}
	return credential.MatchString(name) && strings.TrimSpace(text) != "" && !credentialValue.MatchString(text)
}

// joined reads a text that may contain host variables anywhere.
func (d *decoder) joined(path, text string) task.Value {
	var parts []task.Value
	at := 0
	for _, m := range embedded.FindAllStringIndex(text, -1) {
		if m[0] > at {
			parts = append(parts, task.Value{Text: text[at:m[0]]})
		}
		parts = append(parts, d.value(path, text[m[0]:m[1]]))
		at = m[1]
	}
	if at < len(text) {
		parts = append(parts, task.Value{Text: text[at:]})
	}
	switch len(parts) {
	case 0:
		return task.Value{}
	case 1:
		return parts[0]
	default:
		return task.Value{Parts: parts}
	}
}
