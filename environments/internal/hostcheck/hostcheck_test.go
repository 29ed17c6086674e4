package hostcheck

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func machineWith(t *testing.T, files map[string]string) Machine {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Machine{Root: root, UID: 1000, User: "ada", Mapper: true}
}

// good is a machine of which there is nothing to say.
func good() map[string]string {
	return map[string]string{
		"etc/subuid": "bob:100000:65536\nada:165536:65536\n", "etc/subgid": "1000:165536:65536\n",
		"proc/sys/user/max_user_namespaces": "15000\n", "proc/sys/kernel/unprivileged_userns_clone": "1\n",
		"sys/fs/cgroup/cgroup.controllers": "cpu io memory pids\n", "proc/self/cgroup": "0::/user.slice/a.scope\n",
		"sys/fs/cgroup/user.slice/a.scope/cgroup.controllers": "cpu memory pids\n",
		"dev/net/tun": "",
	}
}

func TestEachThingThatIsMissingHasARemedy(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(files map[string]string)
		machine func(m *Machine)
		check   string // the only one with a remedy; empty: none
		remedy  string // a part of it
	}{
		{name: "nothing"},
		{name: "no range", change: func(f map[string]string) { delete(f, "etc/subuid") }, check: "user ids", remedy: "--add-subuids 100000-165535 --add-subgids 100000-165535 ada"},
		{name: "a short range", change: func(f map[string]string) { f["etc/subgid"] = "ada:1:10\n" }, check: "user ids", remedy: "usermod"},
		{name: "no newuidmap", machine: func(m *Machine) { m.Mapper = false }, check: "user ids", remedy: "uidmap"},
		{
			name: "root of a namespace with one id", change: func(f map[string]string) { f["proc/self/uid_map"] = "0 1000 1\n" }, machine: func(m *Machine) { m.UID = 0 },
			check: "user ids", remedy: "outside of the namespace",
		},
		{name: "root of a namespace with many ids", change: func(f map[string]string) { f["proc/self/uid_map"] = "0 1000 1\n1 100000 65536\n" }, machine: func(m *Machine) { m.UID = 0 }},
		{name: "no user namespaces", change: func(f map[string]string) { f["proc/sys/user/max_user_namespaces"] = "0\n" }, check: "user namespaces", remedy: "max_user_namespaces=15000"},
		{name: "Debian's switch", change: func(f map[string]string) { f["proc/sys/kernel/unprivileged_userns_clone"] = "0\n" }, check: "user namespaces", remedy: "unprivileged_userns_clone=1"},
		{name: "AppArmor", change: func(f map[string]string) { f["proc/sys/kernel/apparmor_restrict_unprivileged_userns"] = "1\n" }, check: "user namespaces", remedy: "apparmor_restrict"},
		{name: "version 1", change: func(f map[string]string) { delete(f, "sys/fs/cgroup/cgroup.controllers") }, check: "control groups", remedy: "unified_cgroup_hierarchy"},
		{name: "not delegated", change: func(f map[string]string) { f["sys/fs/cgroup/user.slice/a.scope/cgroup.controllers"] = "memory pids\n" }, check: "control groups", remedy: "Delegate="},
		{name: "no tun", change: func(f map[string]string) { delete(f, "dev/net/tun") }, check: "devices", remedy: "modprobe tun"},
		{name: "root needs little", change: func(f map[string]string) { clear(f); f["dev/net/tun"] = "" }, machine: func(m *Machine) { m.UID = 0 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := good()
			if tt.change != nil {
				tt.change(files)
			}
			m := machineWith(t, files)
			if tt.machine != nil {
				tt.machine(&m)
			}
			for _, c := range m.Checks(All...) {
				if c.Name != tt.check && c.Remedy != "" || c.Name == tt.check && !strings.Contains(c.Remedy, tt.remedy) {
					t.Errorf("%+v; want a remedy of %q with %q", c, tt.check, tt.remedy)
				}
			}
		})
	}
}
