// Package hostcheck checks what sandboxes need from this machine: user ids,
// namespaces, control groups and devices. It says how to fix what is missing. Each
// environment returns the checks that it needs, and `berth doctor` prints them. The
// package changes nothing.
package hostcheck

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/plugins/environment"
)

// Machine is where the facts come from.
type Machine struct {
	Root   string // of the file system; "" is this machine's
	UID    int
	User   string // name; empty: the account has none
	Mapper bool   // newuidmap and newgidmap are there
}

// Here is this machine, for the user of that id.
func Here(uid int) Machine {
	m := Machine{UID: uid}
	if u, err := user.LookupId(strconv.Itoa(m.UID)); err == nil {
		m.User = u.Username
	}
	_, noUIDs := exec.LookPath("newuidmap")
	_, noGIDs := exec.LookPath("newgidmap")
	m.Mapper = noUIDs == nil && noGIDs == nil
	return m
}

// The names of checks, in the order of importance.
const (
	UserIDs        = "user ids"
	UserNamespaces = "user namespaces"
	ControlGroups  = "control groups"
	Devices        = "devices"
)

// All is every check: what an engine without root depends on.
var All = []string{UserIDs, UserNamespaces, ControlGroups, Devices}

// Checks returns the result of each named check.
func (m Machine) Checks(names ...string) []environment.MachineCheck {
	looks := map[string]func() (text, remedy string){
		UserIDs: m.ids, UserNamespaces: m.namespaces, ControlGroups: m.groups, Devices: m.devices,
	}
	all := make([]environment.MachineCheck, len(names))
	for i, name := range names {
		all[i].Name = name
		all[i].Text, all[i].Remedy = looks[name]()
	}
	return all
}

func (m Machine) read(path string) string {
	text, err := os.ReadFile(m.Root + path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// enough is how many ids a sandbox with its own users needs.
const enough = 65536

// subordinate is how many ids a file of ranges gives to the user.
func (m Machine) subordinate(path string) (n int) {
	for line := range strings.Lines(m.read(path)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) != 3 || f[0] != m.User && f[0] != strconv.Itoa(m.UID) {
			continue
		}
		if count, err := strconv.Atoi(f[2]); err == nil {
			n += count
		}
	}
	return n
}

// every is how many ids the machine's own namespace has.
const every = 1<<32 - 1

// mapped is how many user ids the namespace has that this process is in.
func (m Machine) mapped() (n int) {
	for line := range strings.Lines(m.read("/proc/self/uid_map")) {
		if f := strings.Fields(line); len(f) == 3 {
			if count, err := strconv.Atoi(f[2]); err == nil {
				n += count
			}
		}
	}
	if n == 0 { // no such file: a kernel without user namespaces
		return every
	}
	return n
}

// root says whether this process is the machine's root.
func (m Machine) root() bool { return m.UID == 0 && m.mapped() == every }

func (m Machine) ids() (text, remedy string) {
	if n := m.mapped(); m.UID == 0 && n == every {
		return "root gives each sandbox its own ids", ""
	} else if m.UID == 0 && n < enough {
		return fmt.Sprintf("root of a user namespace that has %d of the machine's ids: sandboxes have one id, root, and tasks with a second user are refused", n),
			"start berth outside of the namespace, or make one with a range of ids (unshare --map-auto --map-root-user)"
	} else if m.UID == 0 {
		return fmt.Sprintf("root of a user namespace that has %d of the machine's ids", n), ""
	}
	name := m.User
	if name == "" {
		name = strconv.Itoa(m.UID)
	}
	uids, gids := m.subordinate("/etc/subuid"), m.subordinate("/etc/subgid")
	switch {
	case uids < enough || gids < enough:
		return fmt.Sprintf("%s has %d subordinate user ids and %d subordinate group ids: sandboxes have one id, root, and tasks with a second user are refused", name, uids, gids),
			"assign a free range, or ask an administrator for one: sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 " + name
	case !m.Mapper:
		return "newuidmap and newgidmap are not installed: the ids in /etc/subuid cannot be used", "sudo apt-get install uidmap (dnf install shadow-utils)"
	default:
		return fmt.Sprintf("%s gives sandboxes %d of its subordinate ids", name, uids), ""
	}
}

func (m Machine) namespaces() (text, remedy string) {
	for _, c := range []struct{ file, bad, text, remedy string }{
		{"/proc/sys/user/max_user_namespaces", "0", "not allowed (user.max_user_namespaces is 0)", "sudo sysctl user.max_user_namespaces=15000"},
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "allowed for root only (kernel.unprivileged_userns_clone is 0)", "sudo sysctl kernel.unprivileged_userns_clone=1"},
		{
			"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor restricts programs without a profile",
			"use an engine from the distribution's packages, which have a profile, or run sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0",
		},
	} {
		if m.read(c.file) == c.bad && (m.UID != 0 || c.file == "/proc/sys/user/max_user_namespaces") {
			return c.text, c.remedy
		}
	}
	return "allowed", ""
}

func (m Machine) groups() (text, remedy string) {
	const delegate = "delegate them to this user with systemd (Delegate=cpu memory pids in user@.service.d), or start berth with systemd-run --user --scope -p Delegate=yes"
	if m.read("/sys/fs/cgroup/cgroup.controllers") == "" {
		text = "version 1"
		if _, err := os.Stat(m.Root + "/sys/fs/cgroup/unified/cgroup.procs"); err == nil {
			text = "version 1 beside version 2"
		}
		if m.root() {
			return text, ""
		}
		return text + ": limits on memory, processors and processes need root",
			"boot with systemd.unified_cgroup_hierarchy=1, or rely on deadlines and rlimits; `granted` in each result says which limits were enforced"
	}
	path := "/"
	for line := range strings.Lines(m.read("/proc/self/cgroup")) {
		if own, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			path = own
		}
	}
	given := m.read(filepath.Join("/sys/fs/cgroup", path, "cgroup.controllers"))
	if m.root() {
		return "version 2, with " + given, ""
	}
	var missing []string
	for _, c := range []string{"cpu", "memory", "pids"} {
		if !strings.Contains(" "+given+" ", " "+c+" ") {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		return fmt.Sprintf("version 2, without %s for this user", strings.Join(missing, ", ")), delegate
	}
	return "version 2, with " + given, ""
}

func (m Machine) devices() (text, remedy string) {
	const tun = "/dev/net/tun"
	f, err := os.OpenFile(m.Root+tun, os.O_RDWR, 0)
	switch {
	case os.IsNotExist(err):
		return tun + " does not exist (needed for networks of rootless sandboxes)", "sudo modprobe tun"
	case os.IsPermission(err):
		return tun + " cannot be opened (needed for networks of rootless sandboxes)", "sudo chmod 666 " + tun
	case err == nil:
		_ = f.Close()
	}
	return tun + " can be opened", ""
}
