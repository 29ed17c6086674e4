//go:build remote && containers_image_openpgp && exclude_graphdriver_btrfs

package podman

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/containers/podman/v5/libpod/define"
	"github.com/containers/podman/v5/pkg/bindings/system"
	"github.com/containers/podman/v5/version"
	"go.podman.io/storage/pkg/idtools"

	"github.com/berth-eval/berth/environments/internal/engine"
	"github.com/berth-eval/berth/plugins/environment"
)

// Facts asks the server about itself. Every field of the answer is optional,
// because servers of several versions answer.
func (p *podman) Facts(ctx context.Context) (engine.Facts, error) {
	on, err := p.on(ctx)
	if err != nil {
		return engine.Facts{}, err
	}
	i, err := system.Info(on, nil)
	if err != nil {
		return engine.Facts{}, err
	}
	return factsOf(i), nil
}

// ids returns how many user ids containers have.
func ids(m []idtools.IDMap) (n int) {
	for _, r := range m {
		n += r.Size
	}
	return n
}

// factsOf converts an answer.
func factsOf(i *define.Info) (f engine.Facts) {
	f = engine.Facts{Version: i.Version.Version}
	defer func() {
		f.About = fmt.Sprintf("Podman %s (API %s, ours %s)", f.Version, i.Version.APIVersion, version.Version) + f.About
	}()
	h, s := i.Host, i.Store
	if s != nil {
		f.ID = s.GraphRoot
		f.About = fmt.Sprintf(", storage %s in %s on %s", s.GraphDriverName, s.GraphRoot, engine.FileSystem(s.GraphRoot))
		f.Degraded = append(f.Degraded, storeProblems(s)...)
	}
	if h == nil {
		return f
	}
	f.About += fmt.Sprintf(", control groups of version %s (%s)", strings.TrimPrefix(h.CgroupsVersion, "v"), h.CgroupManager)
	if h.OCIRuntime != nil {
		f.About += ", " + h.OCIRuntime.Name
	}
	if h.Security.Rootless {
		f.About += fmt.Sprintf(", without root, %d user ids", ids(h.IDMappings.UIDMap))
	}
	f.SELinux = h.Security.SELinuxEnabled
	f.OneID = h.Security.Rootless && len(h.IDMappings.UIDMap) == 1 && h.IDMappings.UIDMap[0].Size == 1
	groups := func(controller string) bool {
		switch {
		case !h.Security.Rootless:
			return h.CgroupsVersion != "v2" || slices.Contains(h.CgroupControllers, controller)
		case h.CgroupsVersion != "v2" || h.CgroupManager != "systemd":
			return false // this user has no delegated control groups
		default:
			return slices.Contains(h.CgroupControllers, controller)
		}
	}
	f.CPU, f.Memory, f.Pids = groups("cpu"), groups("memory"), groups("pids")
	f.How = fmt.Sprintf("control groups %s (%s) through Podman %s", h.CgroupsVersion, h.CgroupManager, f.Version)
	if !f.Memory {
		f.How = fmt.Sprintf("no control groups (%s, %s) through Podman %s", h.CgroupsVersion, h.CgroupManager, f.Version)
		f.Degraded = append(f.Degraded, environment.Problem{
			Summary: "Podman enforces no limits on memory and processors here",
			Detail: "Without root they need control groups of version 2 that systemd gives to the user (Delegate=cpu memory pids), " +
				fmt.Sprintf("and cgroup_manager = \"systemd\"; this machine has version %s with the manager %q.", h.CgroupsVersion, h.CgroupManager),
		})
	}
	f.NoPublic = noPublic(h)
	if h.FreeLocks != nil && *h.FreeLocks < 64 {
		f.Degraded = append(f.Degraded, environment.Problem{
			Summary: fmt.Sprintf("Podman has %d locks left", *h.FreeLocks),
			Detail:  "Each container and volume takes one: remove what is not needed (podman container prune), or raise num_locks in containers.conf and run podman system renumber.",
		})
	}
	return f
}

// noPublic returns why rootless containers have no network of their own.
func noPublic(h *define.HostInfo) string {
	if !h.Security.Rootless {
		return ""
	}
	if h.Slirp4NetNS.Executable == "" && h.Pasta.Executable == "" {
		return "Podman finds neither pasta nor slirp4netns: install passt or slirp4netns"
	}
	tun, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return fmt.Sprintf("/dev/net/tun cannot be opened (%v): an administrator can allow it (chmod 666 /dev/net/tun)", err)
	}
	_ = tun.Close()
	return ""
}

// storeProblems checks where images and containers are stored.
func storeProblems(s *define.StoreInfo) []environment.Problem {
	ps := engine.SharedStore("Podman", s.GraphRoot, "graphroot in ~/.config/containers/storage.conf")
	if s.GraphDriverName == "vfs" {
		ps = append(ps, environment.Problem{
			Summary: "Podman copies whole images",
			Detail:  "Its storage driver is vfs: every sandbox copies all files of its image. Set driver = \"overlay\" in ~/.config/containers/storage.conf (kernel 5.13 or newer, or install fuse-overlayfs), then run podman system reset.",
		})
	}
	return ps
}
