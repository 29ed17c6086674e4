//go:build remote && containers_image_openpgp && exclude_graphdriver_btrfs

package podman

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containers/podman/v5/libpod/define"
)

// Rules as in the file of containers-common: those of SYS_ADMIN, of which one is
// allowed in any case by another rule.
const usualRules = `{"syscalls": [
  {"names": ["read", "setns", "unshare"], "action": "SCMP_ACT_ALLOW", "args": [], "includes": {}, "excludes": {}},
  {"names": ["bpf", "setns"], "action": "SCMP_ACT_ALLOW", "args": [], "includes": {"caps": ["CAP_SYS_ADMIN"]}, "excludes": {}},
  {"names": ["perf_event_open", "setns"], "action": "SCMP_ACT_ERRNO", "args": [], "includes": {}, "excludes": {"caps": ["CAP_SYS_ADMIN"]}},
  {"name": "chroot", "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_CHROOT"]}}
]}`

func TestCallsThatSysAdminAllows(t *testing.T) {
	file := filepath.Join(t.TempDir(), "seccomp.json")
	for _, tt := range []struct {
		name, text string
		path       string // empty: a file with the text
		off        bool
		want, err  string
	}{
		{name: "the usual rules", text: usualRules, want: "bpf perf_event_open"},
		{name: "a call that is allowed for some arguments", text: `{"syscalls": [
			{"names": ["quotactl"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 0, "op": "SCMP_CMP_EQ"}]},
			{"names": ["quotactl"], "action": "SCMP_ACT_ALLOW", "args": null, "includes": {"caps": ["CAP_SYS_ADMIN"]}}]}`, want: "quotactl"},
		{name: "a call that is allowed on another machine", text: `{"syscalls": [
			{"names": ["bpf"], "action": "SCMP_ACT_ALLOW", "includes": {"arches": ["s390"]}},
			{"names": ["bpf"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_ADMIN"]}}]}`, want: "bpf"},
		{name: "Docker's rules, with mount", text: `{"syscalls": [{"names": ["bpf", "mount"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_ADMIN"]}}]}`, err: "system call mount"},
		{name: "rules of which SYS_ADMIN changes nothing", text: `{"syscalls": []}`},
		{name: "no JSON", text: `{`, err: "not known"},
		{name: "no file", path: "/nowhere/seccomp.json", err: "not known"},
		{name: "no path", path: "-", err: "seccomp.json"},
		{name: "no filter", path: "unconfined"},
		{name: "a kernel without filters", off: true, path: "-"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			s := define.SecurityInfo{SECCOMPEnabled: !tt.off, SECCOMPProfilePath: file}
			if tt.path != "" {
				s.SECCOMPProfilePath = strings.TrimPrefix(tt.path, "-")
			}
			got, err := adminCalls(s)
			if strings.Join(got, " ") != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %q, %v; want %q, %q", got, err, tt.want, tt.err)
			}
		})
	}
}

// SYS_ADMIN is given without root only, and if there are several user ids.
func TestWhoIsGivenSysAdmin(t *testing.T) {
	without := define.SecurityInfo{Rootless: true, SECCOMPProfilePath: "unconfined"}
	for _, tt := range []struct {
		name string
		host define.HostInfo
		want bool
	}{
		{"without root", define.HostInfo{Security: without}, true},
		{"as root", define.HostInfo{Security: define.SecurityInfo{SECCOMPProfilePath: "unconfined"}}, false},
		{"with one id", define.HostInfo{Security: without, IDMappings: define.IDMappings{UIDMap: one}}, false},
		{"with rules that are not known", define.HostInfo{Security: define.SecurityInfo{Rootless: true, SECCOMPEnabled: true}}, false},
	} {
		f := factsOf(&define.Info{Host: &tt.host})
		if f.Secludes != tt.want || tt.host.Security.SECCOMPEnabled != strings.Contains(f.About, "seccomp.json") {
			t.Errorf("%s: %v, %q", tt.name, f.Secludes, f.About)
		}
	}
}
