package main

import (
	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/environment"
)

// environments are the broken environments.
var environments = table{
	"sound":    {"not broken", boxed(fault{})},
	"stranded": {"its engine is not there; not broken, and cannot be tried", env(fault{}, func(b *box) environment.Environment { return &stranded{b} })},
	"unfurnished": {
		"its registry is not reached; not broken, and cannot be tried",
		env(fault{}, func(b *box) environment.Environment { return &unfurnished{b} }),
	},

	"hollow":      {"starts another program than sandboxd", boxed(fault{replace: []string{" /berth/sandboxd", " sleep 1000"}})},
	"initiated":   {"puts an init in front of sandboxd", boxed(fault{replace: []string{" --as-pid-1", ""}})},
	"vintage":     {"runs its own sandboxd", boxed(fault{replace: []string{"/berth --ro", "/berth --ro-bind SCRATCH/sandboxd /berth/sandboxd --ro"}, before: ownSandboxd})},
	"roaming":     {"ignores the working folder", boxed(fault{replace: []string{"--dir WORKDIR", "--dir /app"}})},
	"stuffy":      {"has a /tmp for root only", boxed(fault{replace: []string{"--perms 1777 --tmpfs /tmp", "--dir /tmp"}})},
	"cramped":     {"has a /tmp of 32 MiB", boxed(fault{replace: []string{"--perms 1777 --tmpfs /tmp", "--perms 1777 --size 33554432 --tmpfs /tmp"}})},
	"deviceless":  {"has three devices and no terminals", boxed(fault{replace: []string{"--dev /dev", threeDevices}})},
	"rigid":       {"has a read-only root", boxed(fault{replace: []string{" /berth/sandboxd", " --remount-ro / /berth/sandboxd"}})},
	"stingy":      {"allows 24 open files", boxed(fault{replace: []string{"bwrap ", "prlimit --nofile=24:24 bwrap "}})},
	"antique":     {"has a seccomp profile from before openat2", boxed(fault{forbid: []uint32{unix.SYS_OPENAT2}})},
	"handcuffed":  {"has a seccomp profile without kill", boxed(fault{forbid: []uint32{unix.SYS_KILL, unix.SYS_PIDFD_SEND_SIGNAL}})},
	"serverless":  {"has a seccomp profile without listen", boxed(fault{forbid: []uint32{unix.SYS_LISTEN}})},
	"trustful":    {"mounts folders so that they can be written", boxed(fault{replace: []string{"--ro-mounts", "--mounts"}})},
	"careless":    {"mounts the control folder so that it can be written", boxed(fault{replace: []string{"--ro-bind CONTROL", "--bind CONTROL"}})},
	"tunable":     {"lets root change the kernel's settings", boxed(fault{replace: []string{" --ro-bind /proc/sys /proc/sys", ""}})},
	"mighty":      {"gives capabilities that cannot be dropped", boxed(fault{replace: []string{"--cap-add ALL", "--cap-add ALL --cap-drop CAP_SETPCAP"}})},
	"transparent": {"shows the host's processes", boxed(fault{replace: []string{"--proc /proc", "--ro-bind /proc /proc"}})},
	"open":        {"shows the host's /tmp", boxed(fault{replace: []string{"--perms 1777 --tmpfs /tmp", "--bind /tmp /tmp"}})},
	"bare":        {"shows the host's devices", boxed(fault{replace: []string{"--dev /dev", "--dev-bind /dev /dev"}})},
	"online":      {"has the host's network", boxed(fault{replace: []string{"--unshare-all", "--unshare-user --unshare-ipc --unshare-pid --unshare-uts"}})},
	"communal":    {"has one /dev/shm for all", boxed(fault{replace: []string{"--dev /dev", "--dev /dev --bind SCRATCH/.. /dev/shm"}})},

	"anonymous":  {"does not say what its image is", boxed(fault{made: func(m *environment.Sandbox) { m.Image.Base = "" }})},
	"namesake":   {"gives all sandboxes one id", boxed(fault{made: func(m *environment.Sandbox) { m.ID = "box" }})},
	"leaky":      {"gives its own variables to every command", boxed(fault{made: leak})},
	"speechless": {"does not say which limits it keeps", boxed(fault{made: func(m *environment.Sandbox) { m.Granted = environment.Granted{} }})},
	"boastful-box": {"claims limits that it does not keep", boxed(fault{made: func(m *environment.Sandbox) {
		m.Granted.Memory, m.Granted.Pids, m.Granted.Disk = environment.GrantEnforced, environment.GrantEnforced, environment.GrantEnforced
	}})},

	"forgetful":     {"loses sight of its sandboxes", env(fault{}, func(b *box) environment.Environment { return &forgetful{b} })},
	"hoarding":      {"lists sandboxes that are gone", env(fault{}, func(b *box) environment.Environment { return &hoarding{box: b} })},
	"clinging":      {"removes nothing", env(fault{}, func(b *box) environment.Environment { return &clinging{b} })},
	"pedantic":      {"fails to remove what is gone", env(fault{}, func(b *box) environment.Environment { return &pedantic{b} })},
	"polite":        {"waits before it removes", env(fault{}, func(b *box) environment.Environment { return &polite{b} })},
	"negative":      {"measures less than nothing", env(fault{}, func(b *box) environment.Environment { return &negative{b} })},
	"undecided-box": {"checks a spec differently each time", env(fault{}, func(b *box) environment.Environment { return &wandering{b} })},
	"stubborn":      {"leaves what it made when it is canceled", env(fault{}, func(b *box) environment.Environment { return &stubborn{b} })},
	"resentful-box": {"makes nothing more after a failure", env(fault{}, func(b *box) environment.Environment { return &grudging{box: b} })},
	"narrow":        {"makes four sandboxes at most", env(fault{}, func(b *box) environment.Environment { return &narrow{b} })},
	"phoenix":       {"starts what has ended again", env(fault{}, func(b *box) environment.Environment { return &phoenix{b} })},
	"lenient":       {"makes what it refuses", env(fault{}, func(b *box) environment.Environment { return &lenient{b} })},
	"sociable": {"accepts users that it has not", env(fault{}, func(b *box) environment.Environment {
		return &accepting{b, func(s *environment.Spec) { s.Users = nil }}
	})},
	"solitary": {"ignores sidecars", env(fault{}, func(b *box) environment.Environment {
		return &accepting{b, func(s *environment.Spec) { s.Sidecars, s.Volumes = nil, nil }}
	})},
	"littering-box": {"leaves a process in its own session", env(fault{}, func(b *box) environment.Environment { return &messy{b} })},

	"loose":      {"makes sidecars that are sandboxes of their own", withSidecars},
	"blurred":    {"prepares images without a digest, and any name", env(fault{}, func(b *box) environment.Environment { return &blurred{b} })},
	"faceless":   {"makes no image of what it prepares", env(fault{}, func(b *box) environment.Environment { return &faceless{b} })},
	"sweeping":   {"says that it drops every image", env(fault{}, func(b *box) environment.Environment { return &sweeping{b} })},
	"unchanging": {"makes snapshots of nothing", env(fault{}, func(b *box) environment.Environment { return &unchanging{b} })},
}

const threeDevices = "--dir /dev --dev-bind /dev/null /dev/null --dev-bind /dev/zero /dev/zero --dev-bind /dev/urandom /dev/urandom"
