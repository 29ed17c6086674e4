// Package compose reads a task's docker-compose.yaml with the compose
// specification's own library, in an empty environment, and makes containers
// of plugins/task out of it.
//
// It refuses unknown keys with file and line, because an ignored key would
// change what is measured. It opens no file but those of the task that it is given,
// reads no variable of the host, and follows no extends or include.
package compose

import (
	"context"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/berth-eval/berth/plugins/task"
)

// File is the content of a compose file.
type File struct {
	// Main is the agent's container; it has a name alone when the file does not name it.
	Main      task.Sidecar
	NoNetwork bool // of Main
	// Sidecars are sorted by name. The Context of a Build is relative to the
	// compose file's folder, and its Digest empty.
	Sidecars []task.Sidecar
	// Copies are the contents of files of the task that a container has, by the name
	// of its service and by the absolute path in the container.
	Copies map[string]map[string][]byte
}

// Files reads what the compose file names in its own folder: a file, whose content has
// the name "", or all files of a folder.
type Files func(name string) (map[string][]byte, error)

// HostLogs begins the sources of mounts that are left out: those of the folders
// that a sandbox has anyhow. The caller sets variables to such paths.
const HostLogs = "/berth-logs/"

// idle is the command of the main container in the format's own file, which a
// task's file is merged with. It does nothing, because the agent works there.
var idle = []string{"sh", "-c", "sleep infinity"}

// maxServices bounds the containers of one task.
const maxServices = 16

// Read reads data, the content of the file that problems call name. What it
// returns beside an error among the problems is of no use.
func Read(ctx context.Context, name string, data []byte, variables Variables, files Files) (File, []task.Problem) {
	k := &keys{file: name, variables: variables}
	clean := k.check(data)
	if task.Broken(k.problems) {
		return File{}, k.problems
	}
	p, err := load(ctx, name, clean, variables)
	if err != nil {
		k.problems = append(k.problems, task.Problem{
			File: name, Severity: task.Error, Summary: "Not a valid compose file", Detail: firstLine(err.Error()) + ".",
		})
		return File{}, k.problems
	}
	c := &converter{keys: k, files: files, project: p, copies: map[string]map[string][]byte{}}
	return c.all(p), k.problems
}

// load is the library with everything off that looks at the host. It panics
// on some input (a type that is not what it expects), which is the file's fault.
func load(ctx context.Context, name string, data []byte, variables Variables) (p *types.Project, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the library gave up: %v", r)
		}
	}()
	return loader.LoadWithContext(ctx, types.ConfigDetails{
		WorkingDir:  "/",
		ConfigFiles: []types.ConfigFile{{Filename: path.Base(name), Content: data}},
		Environment: types.Mapping(variables.Given),
	}, func(o *loader.Options) {
		o.SetProjectName("task", true)
		o.Interpolate.Substitute = variables.substitute
		o.SkipExtends, o.SkipInclude, o.SkipResolveEnvironment, o.SkipResolveLabels = true, true, true, true
		o.SkipNormalization, o.SkipConsistencyCheck, o.SkipDefaultValues, o.ResolvePaths = true, true, true, false
	})
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return strings.TrimSuffix(line, ".")
}

// converter turns what the library read into what a task says.
type converter struct {
	*keys

	files   Files
	project *types.Project
	copies  map[string]map[string][]byte
}

func (c *converter) all(p *types.Project) File {
	f := File{Copies: c.copies, Main: task.Sidecar{Name: task.MainContainer}}
	if len(p.Services) > maxServices {
		c.bad("services", "Too many services", "The file has %d, %d are allowed.", len(p.Services), maxServices)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Services)) {
		s := p.Services[name]
		side := c.service(name, &s)
		for _, v := range side.Volumes {
			if _, ok := p.Volumes[v.Name]; !ok {
				c.bad("services."+name+".volumes", "Volume is not declared", "Write %q under volumes: at the top of the file.", v.Name)
			}
		}
		if name == task.MainContainer {
			f.Main, f.NoNetwork = side, s.NetworkMode == "none"
			continue
		}
		if side.Image == "" && side.Build == nil {
			c.bad("services."+name, "Service has no image", "Write image or build.")
		}
		f.Sidecars = append(f.Sidecars, side)
	}
	all := append([]task.Sidecar{f.Main}, f.Sidecars...)
	for _, p := range task.CheckRelations(all, func(i int) string { return "services." + all[i].Name }) {
		key := strings.Replace(p.Key, ".aliases[", ".networks[", 1)
		c.add(p.Severity, c.at(strings.TrimRight(key, "[]0123456789")), p.Key, p.Summary, "")
	}
	return f
}

func (c *converter) service(name string, s *types.ServiceConfig) task.Sidecar {
	at := "services." + name
	out := task.Sidecar{
		Name: name, Image: s.Image, Entrypoint: s.Entrypoint, Command: s.Command, Env: c.env(name, s),
		Workdir: s.WorkingDir, User: s.User, Healthcheck: c.healthcheck(at+".healthcheck", s.HealthCheck),
	}
	if s.Build != nil {
		out.Image = "" // the name that the built image would get, which is not needed
		if name == task.MainContainer && s.Build.Context == "" {
			s.Build.Context = "." // of the format's own file, which this one is merged with
		}
		out.Build = c.build(at+".build", s.Build)
	}
	if name == task.MainContainer && s.Entrypoint != nil && s.Command == nil {
		out.Command = slices.Clone(idle)
	}
	if s.Entrypoint != nil && len(s.Entrypoint) == 0 { // runs the command alone
		if out.Entrypoint, out.Command = out.Command, nil; len(out.Entrypoint) == 0 {
			c.bad(at+".entrypoint", "Service runs nothing", "An empty entrypoint needs a command.")
		}
	}
	if out.Workdir != "" && !path.IsAbs(out.Workdir) {
		c.bad(at+".working_dir", "Working directory is not absolute", "%q is relative. Use an absolute path of the container.", out.Workdir)
	}
	for other, d := range s.DependsOn {
		if out.DependsOn == nil {
			out.DependsOn = map[string]string{}
		}
		out.DependsOn[other] = conditions[d.Condition]
	}
	out.Hostname = s.Hostname
	out.Aliases = append(aliases(s), c.extraHosts(at, s)...)
	c.harmless(name, s)
	out.Expose = c.ports(at, s)
	out.Limits = c.limits(at, s)
	for _, v := range s.Volumes {
		switch {
		case strings.HasPrefix(v.Source, HostLogs):
		case v.Type == types.VolumeTypeTmpfs, v.Type == types.VolumeTypeVolume && v.Source == "":
			c.add(task.Warning, c.at(at+".volumes"), at+".volumes", "Volume has no effect",
				fmt.Sprintf("%s: %s", v.Target, ignored["tmpfs"]))
		case v.Type == types.VolumeTypeBind && !path.IsAbs(v.Source) && !strings.HasPrefix(v.Source, "~"):
			c.copy(name, at+".volumes", v.Source, v.Target)
		default:
			out.Volumes = append(out.Volumes, c.volume(at+".volumes", v))
		}
	}
	c.objects(name, s)
	return out
}

// aliases are the names of a service in all its networks.
func aliases(s *types.ServiceConfig) (all []string) {
	for _, network := range slices.Sorted(maps.Keys(s.Networks)) {
		n := s.Networks[network]
		if n == nil {
			continue
		}
		for _, a := range n.Aliases {
			if !slices.Contains(all, a) {
				all = append(all, a)
			}
		}
	}
	return all
}

// ports are those that the service listens on. Those under ports are among them,
// and are not opened on the host.
func (c *converter) ports(at string, s *types.ServiceConfig) (ports []int) {
	for _, p := range s.Ports {
		if p.Target > 0 && p.Target <= 0xffff && (p.Protocol == "" || p.Protocol == "tcp") && !slices.Contains(ports, int(p.Target)) {
			ports = append(ports, int(p.Target))
		}
	}
	for _, e := range s.Expose {
		port, protocol, _ := strings.Cut(e, "/")
		n, err := strconv.Atoi(port)
		if err != nil || n < 1 || n > 0xffff || protocol != "" && protocol != "tcp" {
			c.bad(at+".expose", "Not a TCP port", "Got %q: write numbers such as 5432, without ranges.", e)
			continue
		}
		if !slices.Contains(ports, n) {
			ports = append(ports, n)
		}
	}
	return ports
}

// limits are those under deploy, or else those of the service itself.
func (c *converter) limits(at string, s *types.ServiceConfig) (l task.Limits) {
	for key, n := range map[string]float64{"cpus": float64(s.CPUS), "mem_limit": float64(s.MemLimit), "shm_size": float64(s.ShmSize)} {
		if n < 0 {
			c.bad(at+"."+key, "Limit is negative", "Write how much the service may use.")
		}
	}
	l.Pids = max(0, s.PidsLimit) // -1: none
	l.CPUMilli, l.MemoryMiB, l.ShmMiB = int64(math.Round(float64(s.CPUS)*1000)), int64(s.MemLimit)>>20, int64(s.ShmSize)>>20
	if s.Deploy == nil || s.Deploy.Resources.Limits == nil {
		return l
	}
	asked := s.Deploy.Resources.Limits
	if asked.NanoCPUs < 0 || asked.MemoryBytes < 0 {
		c.bad(at+".deploy", "Limit is negative", "Write how much the service may use.")
	}
	if asked.NanoCPUs > 0 {
		l.CPUMilli = int64(math.Round(float64(asked.NanoCPUs) * 1000))
	}
	if asked.MemoryBytes > 0 {
		l.MemoryMiB = int64(asked.MemoryBytes) >> 20
	}
	return l
}

// conditions are the words of the specification for what plugins/task calls
// otherwise.
var conditions = map[string]string{
	types.ServiceConditionStarted: task.StateStarted, types.ServiceConditionHealthy: task.StateHealthy,
	types.ServiceConditionCompletedSuccessfully: task.StateCompleted,
}

func (c *converter) build(at string, b *types.BuildConfig) *task.Build {
	out := &task.Build{Context: path.Clean(b.Context), File: b.Dockerfile, Target: b.Target}
	if b.DockerfileInline != "" {
		if out.File != "" {
			c.bad(at, "Said twice", "Write either dockerfile or dockerfile_inline.")
		}
		out.File = "berth.Dockerfile"
		out.Files = map[string][]byte{out.File: []byte(b.DockerfileInline)}
	}
	for name, value := range b.Args {
		if strings.HasPrefix(name, "#") {
			continue // where the library keeps names that begin with x-, which no ARG can have
		}
		if value == nil {
			c.bad(at+".args", "Variable of the host", "%q has no value, so it would be taken from this host. Write one.", name)
			continue
		}
		if out.Args == nil {
			out.Args = map[string]string{}
		}
		out.Args[name] = *value
	}
	if out.File == "" {
		out.File = "Dockerfile"
	}
	if b.Context == "" || path.IsAbs(b.Context) || out.Context != ".." && strings.HasPrefix(out.Context, "..") || strings.Contains(b.Context, ":") {
		c.bad(at, "Build is not of the task's own folder", "%q must be a folder below that of the compose file, such as \".\" or \"./db\", or \"..\" for the task's folder.", b.Context)
	}
	if path.IsAbs(out.File) || path.Clean(out.File) != out.File || strings.HasPrefix(out.File, "..") {
		c.bad(at, "Dockerfile is not in the build's folder", "%q must be a clean path below %q.", b.Dockerfile, b.Context)
	}
	return out
}

func (c *converter) volume(at string, v types.ServiceVolumeConfig) task.Volume {
	switch {
	case v.Type != types.VolumeTypeVolume || strings.HasPrefix(v.Source, "/") || strings.HasPrefix(v.Source, "."):
		c.bad(at, "Mount of the host", "%q on %q is of type %q: a task's containers see nothing of the host. Use a named volume, "+
			"or copy files into the image.", v.Source, v.Target, v.Type)
	case v.Source == "":
		c.bad(at, "Volume has no name", "Write a name before %q, and the name under volumes: at the top of the file.", v.Target)
	case v.Volume != nil && (v.Volume.NoCopy || v.Volume.Subpath != ""):
		c.bad(at, "Option of a volume", "nocopy and subpath of %q are not supported.", v.Source)
	case !path.IsAbs(v.Target):
		c.bad(at, "Volume is not mounted on an absolute path", "Got %q.", v.Target)
	}
	return task.Volume{Name: v.Source, Target: path.Clean(v.Target), ReadOnly: v.ReadOnly}
}

// The specification's defaults of a healthcheck.
const (
	interval      = 30 * time.Second
	timeout       = 30 * time.Second
	startInterval = 5 * time.Second
	retries       = 3
)

func (c *converter) healthcheck(at string, h *types.HealthCheckConfig) *task.Healthcheck {
	if h == nil || h.Disable {
		return nil
	}
	out := &task.Healthcheck{
		Interval: duration(h.Interval, interval), Timeout: duration(h.Timeout, timeout), StartPeriod: duration(h.StartPeriod, 0),
		StartInterval: duration(h.StartInterval, startInterval), Retries: retries,
	}
	if h.Retries != nil {
		if out.Retries = int(min(*h.Retries, 10_000)); out.Retries == 0 {
			out.Retries = retries
		}
	}
	switch {
	case len(h.Test) == 1 && h.Test[0] == "NONE":
		return nil
	case len(h.Test) > 1 && h.Test[0] == "CMD":
		out.Argv = h.Test[1:]
	case len(h.Test) == 2 && h.Test[0] == "CMD-SHELL":
		out.Argv = []string{"/bin/sh", "-c", h.Test[1]}
	default:
		c.bad(at, "Healthcheck has no test", "Write test: [\"CMD\", program, argument…] or [\"CMD-SHELL\", line].")
	}
	return out
}

func duration(d *types.Duration, usual time.Duration) task.Duration {
	if d == nil || *d <= 0 {
		return task.Duration(usual)
	}
	return task.Duration(*d)
}
