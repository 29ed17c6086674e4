//go:build remote && containers_image_openpgp && exclude_graphdriver_btrfs

package podman

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/containers/podman/v5/libpod/define"

	"github.com/berth-eval/berth/plugins/sandbox/become"
)

// sysAdmin is the capability that sandboxd is given without root.
const sysAdmin = "CAP_SYS_ADMIN"

// profile is the part of a file of seccomp rules that matters here. Podman's is
// documented in containers-common (pkg/seccomp).
type profile struct {
	Calls []rule `json:"syscalls"`
}

type rule struct {
	Names    []string          `json:"names"`
	Name     string            `json:"name"` // of older files
	Action   string            `json:"action"`
	Args     []json.RawMessage `json:"args"`
	Includes only              `json:"includes"`
	Excludes only              `json:"excludes"`
}

// only is when a rule applies. Kernels, and names of machines that do not matter,
// are left out.
type only struct {
	Caps   []string `json:"caps"`
	Arches []string `json:"arches"`
	Kernel any      `json:"minKernel"`
}

func (o *only) whenever() bool { return len(o.Caps)+len(o.Arches) == 0 && o.Kernel == nil }

// adminCalls returns the system calls that a server's filter allows to containers
// with SYS_ADMIN, and to no others. It fails if they are not known, or if sandboxd
// cannot refuse one of them to the other processes of the container.
func adminCalls(s define.SecurityInfo) ([]string, error) {
	switch {
	case !s.SECCOMPEnabled, s.SECCOMPProfilePath == "unconfined":
		return nil, nil // nothing is filtered
	case s.SECCOMPProfilePath == "":
		return nil, errors.New("Podman does not say which system calls it filters: install its file seccomp.json, of the package containers-common")
	}
	text, err := os.ReadFile(s.SECCOMPProfilePath)
	if err != nil {
		return nil, fmt.Errorf("the system calls that Podman filters are not known: %w", err)
	}
	var p profile
	if err = json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("the system calls that Podman filters are not known: %s: %w", s.SECCOMPProfilePath, err)
	}
	calls := p.admin()
	for _, name := range calls {
		if !become.Refusable(name) {
			return nil, fmt.Errorf("%s allows the system call %s to containers with %s, and to no others", s.SECCOMPProfilePath, name, sysAdmin)
		}
	}
	return calls, nil
}

// admin lists the calls of all rules that depend on SYS_ADMIN. Calls that another
// rule allows in any case are left out: such a rule decides.
func (p *profile) admin() (calls []string) {
	always := map[string]bool{}
	for i := range p.Calls {
		r := &p.Calls[i]
		for _, name := range append(r.Names, r.Name) {
			switch {
			case name == "":
			case slices.Contains(r.Includes.Caps, sysAdmin), slices.Contains(r.Excludes.Caps, sysAdmin):
				calls = append(calls, name)
			case r.Action == "SCMP_ACT_ALLOW" && len(r.Args) == 0 && r.Includes.whenever() && r.Excludes.whenever():
				always[name] = true
			}
		}
	}
	calls = slices.DeleteFunc(calls, func(name string) bool { return always[name] })
	slices.Sort(calls)
	return slices.Compact(calls)
}
