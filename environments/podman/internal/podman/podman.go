//go:build remote && containers_image_openpgp && exclude_graphdriver_btrfs

// Package podman implements [engine.Engine] for Podman with the bindings of its
// own API. It finds or starts the API's server. Otherwise it only converts and
// makes no decision about sandboxes.
package podman

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containers/podman/v5/libpod/define"
	"github.com/containers/podman/v5/pkg/bindings"
	"github.com/containers/podman/v5/pkg/bindings/containers"
	"github.com/containers/podman/v5/pkg/bindings/volumes"
	"github.com/containers/podman/v5/pkg/domain/entities/types"
	"github.com/containers/podman/v5/pkg/specgen"
	"github.com/opencontainers/runtime-spec/specs-go"
	"go.podman.io/image/v5/manifest"

	"github.com/berth-eval/berth/environments/internal/engine"
	"github.com/berth-eval/berth/plugins/runtimedir"
)

// New returns the environment.
func New() *engine.Environment {
	s := &servers{}
	s.private, s.none = ofJob()
	return environmentOf(s)
}

func environmentOf(s *servers) *engine.Environment {
	dialed := func(address string) (engine.Engine, error) {
		p := &podman{address: address}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.own != nil && address == s.found {
			p.private = s.private
		}
		return p, nil
	}
	return engine.New(engine.Options{Name: "podman", Default: s.address, Dial: dialed, Help: help, Sweep: func(ctx context.Context) error {
		return sweep(ctx, filepath.SplitList(os.Getenv(runtimedir.ScratchEnv)))
	}})
}

// help returns what to do when the server does not answer.
func help(address string, err error) string {
	path := strings.TrimPrefix(address, "unix://")
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("The server behind %s does not answer in time: restart it (systemctl --user restart podman.socket).", path)
	}
	return fmt.Sprintf("%s: %v: start it (systemctl --user start podman.socket, or podman system service --time=0 unix://%s), or choose environment \"local\".", path, err, path)
}

// podman is one server.
type podman struct {
	address string
	private *private // nil: the server's store belongs to no job

	mu   sync.Mutex
	conn context.Context //nolint:containedctx // the bindings keep a connection in a context; it is never waited on
}

func dial(address string) (engine.Engine, error) { return &podman{address: address}, nil }

// joined combines the values of a connection with the lifetime of a call.
type joined struct {
	context.Context
	conn context.Context //nolint:containedctx // see podman.conn
}

func (j joined) Value(key any) any {
	if v := j.conn.Value(key); v != nil {
		return v
	}
	return j.Context.Value(key)
}

// idle is how many connections are kept for later calls: as many as there are
// calls at a time.
const idle = 16

// on returns ctx in the form that the bindings need.
func (p *podman) on(ctx context.Context) (context.Context, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil {
		made, err := bindings.NewConnection(ctx, p.address)
		if err != nil {
			return nil, err
		}
		client, err := bindings.GetClient(made)
		if err != nil {
			return nil, err
		}
		if t, ok := client.Client.Transport.(*http.Transport); ok {
			t.MaxIdleConnsPerHost = idle
		}
		p.conn = context.WithoutCancel(made)
	}
	return joined{ctx, p.conn}, nil
}

// told converts err to the errors of package engine.
func told(err error) error {
	if err == nil {
		return nil
	}
	if code, _ := bindings.CheckResponseCode(err); code == http.StatusNotFound {
		return fmt.Errorf("%w: %w", engine.ErrAbsent, err)
	}
	return err
}

// spec converts a container to Podman's type.
func spec(c engine.Container) *specgen.SpecGenerator {
	s := &specgen.SpecGenerator{}
	s.Name, s.Labels, s.Hostname = c.Name, c.Labels, c.Hostname
	s.Entrypoint, s.Command = c.Entrypoint, []string{}
	s.EnvHost, s.HTTPProxy, s.Terminal, s.Stdin = new(false), new(false), new(false), new(false)
	s.LogConfiguration = &specgen.LogConfig{Driver: "none"}
	s.RestartPolicy, s.Systemd, s.SdNotifyMode = "no", "false", "ignore"
	s.StopTimeout = new(uint(0))
	s.Image, s.Init = c.Image, new(false)
	s.WorkDir, s.CreateWorkingDir = c.Workdir, new(true)
	if s.WorkDir == "" {
		s.WorkDir = "/"
	}
	s.User, s.CapAdd = "0:0", []string{"CAP_" + engine.OwnCap}
	s.IpcNS.NSMode = specgen.Private
	s.NetNS.NSMode = specgen.NoNetwork
	if c.Public {
		s.NetNS.NSMode = specgen.Default
	}
	if c.Linked {
		s.CapAdd = append(s.CapAdd, "CAP_NET_ADMIN")
		s.Devices = []specs.LinuxDevice{{Path: engine.TUN}}
	}
	for name, address := range c.Hosts {
		s.HostAdd = append(s.HostAdd, name+":"+address)
	}
	for _, v := range c.Volumes {
		named := &specgen.NamedVolume{Name: v.Name, Dest: v.Target}
		if v.ReadOnly {
			named.Options = []string{"ro"}
		}
		s.Volumes = append(s.Volumes, named)
	}
	if c.Limits.ShmMiB > 0 {
		s.ShmSize = new(c.Limits.ShmMiB << 20)
	}
	if c.NoSELinux {
		s.SelinuxOpts = []string{"disable"}
	}
	s.HealthConfig = &manifest.Schema2HealthConfig{Test: []string{"NONE"}}
	// Servers from 5.3 on refuse a container without these settings, even if it
	// has no health check.
	s.HealthLogDestination, s.HealthMaxLogCount, s.HealthMaxLogSize = define.DefaultHealthCheckLocalDestination, define.DefaultHealthMaxLogCount, define.DefaultHealthMaxLogSize
	for _, m := range c.Mounts {
		s.Mounts = append(s.Mounts, specs.Mount{
			Destination: m.Target, Source: m.Source, Type: "bind", Options: []string{"rbind", "ro", "rprivate", "nosuid", "nodev"},
		})
	}
	s.ResourceLimits = resources(c)
	s.Rlimits = rlimits(c.Nproc)
	return s
}

// resources returns the limits that control groups enforce, or nil if there are
// none. An engine without control groups accepts only nil.
func resources(c engine.Container) *specs.LinuxResources {
	r, some := &specs.LinuxResources{}, false
	if n := c.Limits.CPUMilli; n > 0 {
		const period = 100_000 // microseconds
		r.CPU, some = &specs.LinuxCPU{Period: new(uint64(period)), Quota: new(n * period / 1000)}, true
	}
	if n := c.Limits.MemoryMiB << 20; n > 0 {
		r.Memory, some = &specs.LinuxMemory{Limit: &n, Swap: &n}, true
	}
	if n := c.Limits.Pids; n > 0 {
		r.Pids, some = &specs.LinuxPids{Limit: n}, true
	}
	if !some {
		return nil
	}
	return r
}

// rlimits sets each limit explicitly: Podman's defaults are higher than a user
// without CAP_SYS_RESOURCE may set, and then no container starts.
func rlimits(nproc int64) []specs.POSIXRlimit {
	var all []specs.POSIXRlimit
	add := func(name string, resource int, want uint64) {
		var have syscall.Rlimit
		if syscall.Getrlimit(resource, &have) != nil {
			return
		}
		n := min(have.Max, want)
		all = append(all, specs.POSIXRlimit{Type: name, Soft: n, Hard: n})
	}
	const rlimitNproc = 6 // RLIMIT_NPROC, which package syscall does not name
	add("nofile", syscall.RLIMIT_NOFILE, 1<<20)
	if nproc <= 0 {
		nproc = 1 << 20
	}
	add("nproc", rlimitNproc, uint64(nproc))
	return all
}

// Create makes a container.
func (p *podman) Create(ctx context.Context, c engine.Container) error {
	on, err := p.on(ctx)
	if err != nil {
		return err
	}
	_, err = containers.CreateWithSpec(on, spec(c), nil)
	return told(err)
}

// Start starts a container.
func (p *podman) Start(ctx context.Context, name string) error {
	on, err := p.on(ctx)
	if err != nil {
		return err
	}
	return told(containers.Start(on, name, nil))
}

// State returns the state of a container.
func (p *podman) State(ctx context.Context, name string) (engine.State, error) {
	on, err := p.on(ctx)
	if err != nil {
		return engine.State{}, err
	}
	r, err := containers.Inspect(on, name, nil)
	if err != nil {
		return engine.State{}, told(err)
	}
	s := r.State
	if s == nil {
		return engine.State{}, fmt.Errorf("podman returned no state for %s", name)
	}
	return engine.State{Running: s.Running, PID: s.Pid, ExitCode: int(s.ExitCode), OOM: s.OOMKilled, Error: s.Error}, nil
}

// Remove kills and removes a container. If the container ends by itself while
// it is being killed, Podman gives up (seen with 4.3.1), and Remove tries
// again.
func (p *podman) Remove(ctx context.Context, name string) error {
	on, err := p.on(ctx)
	if err != nil {
		return err
	}
	for tries := 0; ; tries++ {
		reports, err := containers.Remove(on, name, new(containers.RemoveOptions).WithForce(true).WithVolumes(true).WithTimeout(0))
		for _, r := range reports {
			err = errors.Join(err, r.Err)
		}
		if err == nil || tries == 5 || !strings.Contains(err.Error(), "state improper") {
			return told(err)
		}
		select {
		case <-time.After(20 * time.Millisecond << tries):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

func filters(labels map[string]string) map[string][]string {
	f := map[string][]string{}
	for k, v := range labels {
		f["label"] = append(f["label"], k+"="+v)
	}
	return f
}

// has reports whether labels contain all wanted ones.
func has(labels, wanted map[string]string) bool {
	for k, v := range wanted {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// Containers lists containers by labels.
func (p *podman) Containers(ctx context.Context, labels map[string]string) ([]engine.Listed, error) {
	on, err := p.on(ctx)
	if err != nil {
		return nil, err
	}
	list, err := containers.List(on, new(containers.ListOptions).WithAll(true).WithFilters(filters(labels)))
	if err != nil {
		return nil, err
	}
	var all []engine.Listed
	for i := range list {
		if len(list[i].Names) > 0 && has(list[i].Labels, labels) {
			all = append(all, engine.Listed{Name: list[i].Names[0], Labels: list[i].Labels, Image: list[i].ImageID})
		}
	}
	return all, nil
}

// CreateVolume makes a named volume.
func (p *podman) CreateVolume(ctx context.Context, name string, labels map[string]string) error {
	on, err := p.on(ctx)
	if err != nil {
		return err
	}
	_, err = volumes.Create(on, types.VolumeCreateOptions{Name: name, Labels: labels}, nil)
	return told(err)
}

// RemoveVolume removes a volume.
func (p *podman) RemoveVolume(ctx context.Context, name string) error {
	on, err := p.on(ctx)
	if err != nil {
		return err
	}
	return told(volumes.Remove(on, name, nil))
}

// Volumes lists volumes by labels.
func (p *podman) Volumes(ctx context.Context, labels map[string]string) ([]engine.Listed, error) {
	on, err := p.on(ctx)
	if err != nil {
		return nil, err
	}
	list, err := volumes.List(on, new(volumes.ListOptions).WithFilters(filters(labels)))
	if err != nil {
		return nil, err
	}
	var all []engine.Listed
	for _, v := range list {
		if has(v.Labels, labels) { // Podman 4.3 lists volumes with any of the labels, not all
			all = append(all, engine.Listed{Name: v.Name, Labels: v.Labels})
		}
	}
	return all, nil
}

// split splits the name of an image into the name without its tag and the tag.
func split(image string) (repo, tag string) {
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[:i], image[i+1:]
	}
	return image, "latest"
}

// drain reads the rest of a body, so that its connection can be reused.
func drain(r io.ReadCloser) { _, _ = io.Copy(io.Discard, io.LimitReader(r, 1<<20)); _ = r.Close() }
