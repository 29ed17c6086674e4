// Package docker implements [engine.Engine] for Docker with the moby client. It
// only converts and makes no decision about sandboxes.
package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
	"github.com/moby/sys/mountinfo"

	"github.com/berth-eval/berth/environments/internal/dockerapi"
	"github.com/berth-eval/berth/environments/internal/engine"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/runtimedir"
)

// New returns the environment.
func New() *engine.Environment {
	return engine.New(engine.Options{Name: "docker", Default: address, Dial: dial, Help: help})
}

// address returns the address at which Docker's own tools look for a daemon.
func address() (string, error) {
	if host := os.Getenv(client.EnvOverrideHost); host != "" {
		if _, err := engine.SocketPath(host); err != nil {
			return "", fmt.Errorf("DOCKER_HOST: %w", err)
		}
		return host, nil
	}
	candidates := []string{"/var/run/docker.sock"}
	if run, err := runtimedir.For(os.Getuid()).Session(); err == nil { // after su it may be another user's
		candidates = append(candidates, filepath.Join(run, "docker.sock")) // rootless
	}
	if own := fmt.Sprintf("/run/user/%d/docker.sock", os.Getuid()); !slices.Contains(candidates, own) {
		candidates = append(candidates, own)
	}
	for _, c := range candidates {
		if info, err := os.Stat(c); err == nil && info.Mode().Type() == fs.ModeSocket {
			return "unix://" + c, nil
		}
	}
	return "", fmt.Errorf("no Docker daemon runs here (no socket at %s, and DOCKER_HOST is not set): start one (sudo systemctl start docker), "+
		"install it, or choose environment \"podman\" or \"local\"", strings.Join(candidates, ", "))
}

// help returns what to do when the daemon does not answer.
func help(address string, err error) string {
	path := strings.TrimPrefix(address, "unix://")
	switch {
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EACCES) || strings.Contains(err.Error(), "permission denied"):
		return fmt.Sprintf("%s cannot be used by this user (%v): an administrator can add the user to the socket's group "+
			"(sudo usermod -aG docker $USER, then log in again; members of that group are as good as root), or choose environment \"podman\" or \"local\".", path, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("The daemon behind %s does not answer in time: restart it (sudo systemctl restart docker).", path)
	default:
		return fmt.Sprintf("%s: %v: start the daemon (sudo systemctl start docker), or choose environment \"podman\" or \"local\".", path, err)
	}
}

// docker is one daemon.
type docker struct{ *dockerapi.Client }

func dial(address string) (engine.Engine, error) {
	c, err := dockerapi.Dial(address)
	return &docker{c}, err
}

// Facts asks the daemon about itself.
func (d *docker) Facts(ctx context.Context) (engine.Facts, error) {
	r, err := d.API.Info(ctx, client.InfoOptions{})
	if err != nil {
		return engine.Facts{}, err
	}
	i := r.Info
	f := engine.Facts{
		ID: i.ID, Version: i.ServerVersion, CPU: i.CPUCfsQuota, Memory: i.MemoryLimit, Pids: i.PidsLimit,
		How: fmt.Sprintf("control groups of version %s through Docker %s", i.CgroupVersion, i.ServerVersion),
	}
	if i.CgroupVersion == "" {
		f.How = "control groups through Docker " + i.ServerVersion
	}
	f.About = fmt.Sprintf("Docker %s (API %s, ours %s), storage %s in %s on %s, control groups of version %s", i.ServerVersion, d.API.ClientVersion(), client.MaxAPIVersion,
		i.Driver, i.DockerRootDir, engine.FileSystem(i.DockerRootDir), i.CgroupVersion)
	f.Degraded = engine.SharedStore("Docker", i.DockerRootDir, "data-root in /etc/docker/daemon.json")
	f.SELinux = slices.ContainsFunc(i.SecurityOptions, func(o string) bool { return strings.Contains(o, "name=selinux") })
	f.Disk = quota(i.Driver, i.DockerRootDir)
	if _, ok := i.Runtimes["nvidia"]; ok {
		f.GPUs = engine.NvidiaGPUs()
	}
	if n, err := d.API.NetworkInspect(ctx, "bridge", client.NetworkInspectOptions{}); err != nil || n.Network.Driver != "bridge" {
		f.NoPublic = "The daemon has no network \"bridge\": start it without --bridge=none"
	}
	if i.Driver == "vfs" {
		f.Degraded = append(f.Degraded, environment.Problem{
			Summary: "Docker copies whole images", Detail: "Its storage driver is vfs: every sandbox copies all files of its image. Put its data on a file system that overlay2 works on.",
		})
	}
	return f, nil
}

// quota reports whether the daemon can limit what a container writes.
func quota(driver, root string) bool {
	switch driver {
	case "btrfs", "zfs":
		return true
	case "overlay2":
	default:
		return false
	}
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.Mountpoint != "/" && !strings.HasPrefix(root+"/", m.Mountpoint+"/"), false
	})
	if err != nil || len(mounts) == 0 {
		return false
	}
	slices.Reverse(mounts) // a later one covers an earlier one
	m := slices.MaxFunc(mounts, func(a, b *mountinfo.Info) int { return len(a.Mountpoint) - len(b.Mountpoint) })
	return m.FSType == "xfs" && (strings.Contains(m.VFSOptions, "prjquota") || strings.Contains(m.VFSOptions, "pquota"))
}

// Create makes a container.
func (d *docker) Create(ctx context.Context, c engine.Container) error {
	no := false
	host := &container.HostConfig{
		NetworkMode: "none", IpcMode: container.IPCModePrivate, Init: &no, CapAdd: []string{engine.OwnCap},
		LogConfig: container.LogConfig{Type: "none"}, RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		ShmSize: c.Limits.ShmMiB << 20,
		Resources: container.Resources{
			NanoCPUs: c.Limits.CPUMilli * 1_000_000, Memory: c.Limits.MemoryMiB << 20, MemorySwap: c.Limits.MemoryMiB << 20,
		},
	}
	if c.Public {
		host.NetworkMode = "bridge"
	}
	if c.Linked {
		host.CapAdd = append(host.CapAdd, "NET_ADMIN")
		host.Devices = []container.DeviceMapping{{PathOnHost: engine.TUN, PathInContainer: engine.TUN, CgroupPermissions: "rw"}}
	}
	for name, address := range c.Hosts {
		host.ExtraHosts = append(host.ExtraHosts, name+":"+address)
	}
	for _, v := range c.Volumes {
		host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeVolume, Source: v.Name, Target: v.Target, ReadOnly: v.ReadOnly})
	}
	if c.Limits.Pids > 0 {
		host.PidsLimit = &c.Limits.Pids
	}
	if c.Nproc > 0 {
		host.Ulimits = []*container.Ulimit{{Name: "nproc", Soft: c.Nproc, Hard: c.Nproc}}
	}
	if c.Limits.StorageMiB > 0 {
		host.StorageOpt = map[string]string{"size": strconv.FormatInt(c.Limits.StorageMiB, 10) + "M"}
	}
	if c.Limits.GPUs > 0 {
		host.DeviceRequests = []container.DeviceRequest{{Driver: "nvidia", Count: int(c.Limits.GPUs), Capabilities: [][]string{{"gpu"}}}}
	}
	if c.NoSELinux {
		host.SecurityOpt = []string{"label=disable"}
	}
	for _, m := range c.Mounts {
		host.Mounts = append(host.Mounts, mount.Mount{
			Type: mount.TypeBind, Source: m.Source, Target: m.Target, ReadOnly: true,
			BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate},
		})
	}
	_, err := d.API.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name: c.Name,
		Config: &container.Config{
			Image: c.Image, Hostname: c.Hostname, User: "0:0", Entrypoint: c.Entrypoint, Cmd: []string{}, WorkingDir: c.Workdir, Labels: c.Labels,
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		},
		HostConfig: host,
	})
	return dockerapi.Error(err)
}
