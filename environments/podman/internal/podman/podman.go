// Package podman implements [engine.Engine] for Podman through its own API. It
// finds or starts the API's server. Otherwise it only converts and makes no
// decision about sandboxes.
package podman

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/berth-eval/berth/environments/internal/dockerapi"
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
		p, err := connect(address)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.own != nil && address == s.found {
			p.private = s.private
		}
		return p, err
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

// podman is one server. What Docker's API cannot say goes through its own.
type podman struct {
	*dockerapi.Client

	http    *http.Client
	private *private // nil: the server's store belongs to no job
}

func dial(address string) (engine.Engine, error) { return connect(address) }

// object is a JSON object of Podman's API.
type object = map[string]any

// spec converts a container to what Podman creates one from.
func spec(c engine.Container) object {
	caps, network := []string{"CAP_" + engine.OwnCap}, "none"
	if c.Public {
		network = "default"
	}
	s := object{
		"name": c.Name, "labels": c.Labels, "hostname": c.Hostname, "image": c.Image, "entrypoint": c.Entrypoint,
		"env_host": false, "httpproxy": false, "terminal": false, "stdin": false, "init": false,
		"log_configuration": object{"driver": "none"}, "restart_policy": "no", "systemd": "false", "sdnotifyMode": "ignore", "stop_timeout": 0,
		"work_dir": cmp.Or(c.Workdir, "/"), "create_working_dir": true, "user": "0:0",
		"ipcns": object{"nsmode": "private"}, "netns": object{"nsmode": network}, "r_limits": rlimits(c.Nproc),
		// Servers from 5.3 on refuse a container without the settings of the log, even if
		// it has no health check.
		"healthconfig": object{"Test": []string{"NONE"}}, "healthLogDestination": "local", "healthMaxLogCount": 5, "healthMaxLogSize": 500,
	}
	if c.Linked {
		caps = append(caps, "CAP_NET_ADMIN")
		s["devices"] = []object{{"path": engine.TUN}}
	}
	s["cap_add"] = caps
	var hosts []string
	for name, address := range c.Hosts {
		hosts = append(hosts, name+":"+address)
	}
	s["hostadd"] = hosts
	var volumes, mounts []object
	for _, v := range c.Volumes {
		var options []string
		if v.ReadOnly {
			options = []string{"ro"}
		}
		volumes = append(volumes, object{"Name": v.Name, "Dest": v.Target, "Options": options})
	}
	for _, m := range c.Mounts {
		mounts = append(mounts, object{
			"type": "bind", "source": m.Source, "destination": m.Target, "options": []string{"rbind", "ro", "rprivate", "nosuid", "nodev"},
		})
	}
	s["volumes"], s["mounts"] = volumes, mounts
	if c.Limits.ShmMiB > 0 {
		s["shm_size"] = c.Limits.ShmMiB << 20
	}
	if c.NoSELinux {
		s["selinux_opts"] = []string{"disable"}
	}
	if r := resources(c); len(r) > 0 { // a server without control groups accepts none
		s["resource_limits"] = r
	}
	return s
}

// resources returns the limits that control groups enforce.
func resources(c engine.Container) object {
	r := object{}
	if n := c.Limits.CPUMilli; n > 0 {
		const period = 100_000 // microseconds
		r["cpu"] = object{"period": period, "quota": n * period / 1000}
	}
	if n := c.Limits.MemoryMiB << 20; n > 0 {
		r["memory"] = object{"limit": n, "swap": n}
	}
	if n := c.Limits.Pids; n > 0 {
		r["pids"] = object{"limit": n}
	}
	return r
}

// rlimits sets each limit explicitly: Podman's defaults are higher than a user
// without CAP_SYS_RESOURCE may set, and then no container starts.
func rlimits(nproc int64) []object {
	var all []object
	add := func(name string, resource int, want uint64) {
		var have syscall.Rlimit
		if syscall.Getrlimit(resource, &have) == nil {
			n := min(have.Max, want)
			all = append(all, object{"type": name, "soft": n, "hard": n})
		}
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
	return p.call(ctx, "POST /containers/create", nil, spec(c), nil)
}

// Remove kills and removes a container. If the container ends by itself while
// it is being killed, Podman gives up (seen with 4.3.1), and Remove tries
// again.
func (p *podman) Remove(ctx context.Context, name string) error {
	for tries := 0; ; tries++ {
		err := p.Client.Remove(ctx, name)
		if err == nil || tries == 5 || !strings.Contains(err.Error(), "state improper") {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond << tries):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}
