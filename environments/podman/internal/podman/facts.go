package podman

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/berth-eval/berth/environments/internal/engine"
	"github.com/berth-eval/berth/plugins/environment"
)

// info is what a server says of itself. Servers of several versions answer, and
// leave out what they do not know.
type info struct {
	Version struct{ Version, APIVersion string }
	Store   struct{ GraphRoot, GraphDriverName string }
	Host    struct {
		CgroupManager, CgroupVersion string
		CgroupControllers            []string
		FreeLocks                    *int
		OCIRuntime                   struct{ Name string }
		IDMappings                   struct{ UIDMap []struct{ Size int } }
		Security                     struct{ Rootless, SELinuxEnabled bool }
		Slirp4NetNS, Pasta           struct{ Executable string }
	}
}

// Facts asks the server about itself.
func (p *podman) Facts(ctx context.Context) (engine.Facts, error) {
	var i info
	if err := p.call(ctx, "GET /info", nil, nil, &i); err != nil {
		return engine.Facts{}, err
	}
	return factsOf(i), nil
}

// factsOf converts an answer.
func factsOf(i info) engine.Facts {
	h, s := i.Host, i.Store
	ids := 0
	for _, r := range h.IDMappings.UIDMap {
		ids += r.Size
	}
	f := engine.Facts{
		ID: s.GraphRoot, Version: i.Version.Version, Degraded: storeProblems(s.GraphRoot, s.GraphDriverName),
		SELinux: h.Security.SELinuxEnabled, OneID: h.Security.Rootless && ids == 1,
	}
	f.About = fmt.Sprintf("Podman %s (API %s, ours %s), storage %s in %s on %s, control groups of version %s (%s), %s", f.Version, i.Version.APIVersion, apiVersion,
		s.GraphDriverName, s.GraphRoot, engine.FileSystem(s.GraphRoot), strings.TrimPrefix(h.CgroupVersion, "v"), h.CgroupManager, h.OCIRuntime.Name)
	if h.Security.Rootless {
		f.About += fmt.Sprintf(", without root, %d user ids", ids)
	}
	groups := func(controller string) bool {
		switch {
		case !h.Security.Rootless:
			return h.CgroupVersion != "v2" || slices.Contains(h.CgroupControllers, controller)
		case h.CgroupVersion != "v2" || h.CgroupManager != "systemd":
			return false // this user has no delegated control groups
		default:
			return slices.Contains(h.CgroupControllers, controller)
		}
	}
	f.CPU, f.Memory, f.Pids = groups("cpu"), groups("memory"), groups("pids")
	f.How = fmt.Sprintf("control groups %s (%s) through Podman %s", h.CgroupVersion, h.CgroupManager, f.Version)
	if !f.Memory {
		f.How = fmt.Sprintf("no control groups (%s, %s) through Podman %s", h.CgroupVersion, h.CgroupManager, f.Version)
		f.Degraded = append(f.Degraded, environment.Problem{
			Summary: "Podman enforces no limits on memory and processors here",
			Detail: "Without root they need control groups of version 2 that systemd gives to the user (Delegate=cpu memory pids), " +
				fmt.Sprintf("and cgroup_manager = \"systemd\"; this machine has version %s with the manager %q.", h.CgroupVersion, h.CgroupManager),
		})
	}
	if h.Security.Rootless {
		f.NoPublic = noPublic(h.Slirp4NetNS.Executable + h.Pasta.Executable)
	}
	if h.FreeLocks != nil && *h.FreeLocks < 64 {
		f.Degraded = append(f.Degraded, environment.Problem{
			Summary: fmt.Sprintf("Podman has %d locks left", *h.FreeLocks),
			Detail:  "Each container and volume takes one: remove what is not needed (podman container prune), or raise num_locks in containers.conf and run podman system renumber.",
		})
	}
	return f
}

// noPublic returns why rootless containers have no network. helper is
// the program that connects them.
func noPublic(helper string) string {
	if helper == "" {
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
func storeProblems(root, driver string) []environment.Problem {
	ps := engine.SharedStore("Podman", root, "graphroot in ~/.config/containers/storage.conf")
	if driver == "vfs" {
		ps = append(ps, environment.Problem{
			Summary: "Podman copies whole images",
			Detail:  "Its storage driver is vfs: every sandbox copies all files of its image. Set driver = \"overlay\" in ~/.config/containers/storage.conf (kernel 5.13 or newer, or install fuse-overlayfs), then run podman system reset.",
		})
	}
	return ps
}
