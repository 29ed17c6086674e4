package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/environment"
)

// environments are the broken environments.
var environments = table{
	"sound": {"not broken", boxed(fault{})},
	"stranded": {"its engine is not there; not broken, and cannot be tried", boxed(fault{check: func(*box, environment.Spec) (environment.Report, error) {
		return environment.Report{Refusals: []environment.Problem{{Summary: "No engine runs here", Detail: "Start it."}}}, nil
	}})},
	"unfurnished": {"its registry is not reached; not broken, and cannot be tried", boxed(fault{as: prepared(func(environment.Image) (environment.Image, error) {
		return environment.Image{}, errors.New("pull: no such host")
	})})},

	"hollow":      {"starts another program than sandboxd", boxed(fault{replace: []string{" /berth/sandboxd", " sleep 1000"}})},
	"initiated":   {"puts an init in front of sandboxd", boxed(fault{replace: []string{" --as-pid-1", ""}})},
	"vintage":     {"runs its own sandboxd", boxed(fault{replace: []string{"/berth --ro", "/berth --ro-bind SCRATCH/sandboxd /berth/sandboxd --ro"}, create: ownSandboxd})},
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

	"forgetful": {"loses sight of its sandboxes", boxed(fault{list: func(*box, string) []string { return nil }})},
	"hoarding":  {"lists sandboxes that are gone", boxed(fault{list: func(b *box, owner string) []string { return append(b.owned(owner), b.gone...) }})},
	"clinging": {"removes nothing", boxed(fault{destroy: func(context.Context, *box, string) (environment.Remains, error) {
		return environment.Remains{}, nil
	}})},
	"pedantic": {"fails to remove what is gone", boxed(fault{destroy: func(_ context.Context, b *box, id string) (environment.Remains, error) {
		if !slices.Contains(b.owned(""), id) {
			return environment.Remains{}, fmt.Errorf("no sandbox %q", id)
		}
		return b.end(id)
	}})},
	"polite": {"waits before it removes", boxed(fault{destroy: func(ctx context.Context, b *box, id string) (environment.Remains, error) {
		if asked.Add(1) == 1 {
			<-ctx.Done() // of the caller, who has lost patience
		}
		return b.end(id)
	}})},
	"negative": {"measures less than nothing", boxed(fault{destroy: func(_ context.Context, b *box, id string) (environment.Remains, error) {
		_, err := b.end(id)
		return environment.Remains{PeakMemoryMiB: -1}, err
	}})},
	"undecided-box": {"checks a spec differently each time", boxed(fault{check: func(*box, environment.Spec) (environment.Report, error) {
		return environment.Report{About: fmt.Sprint("asked ", asked.Add(1), " times")}, nil
	}})},
	"littering-box": {"leaves a process in its own session", boxed(fault{check: func(b *box, s environment.Spec) (environment.Report, error) {
		report, _ := b.Plain.Check(context.Background(), s)
		return report, leave()
	}})},
	"stubborn": {"leaves what it made when it is canceled", boxed(fault{create: func(ctx context.Context, b *box, s environment.Spec) (environment.Sandbox, error) {
		made, err := b.make(ctx, s)
		select {
		case <-ctx.Done():
			return environment.Sandbox{}, ctx.Err()
		case <-time.After(time.Second): // most of the time that the kit takes until it is connected, on a busy machine, too
			return made, err
		}
	}})},
	"resentful-box": {"makes nothing more after a failure", boxed(fault{create: func(ctx context.Context, b *box, s environment.Spec) (environment.Sandbox, error) {
		if asked.Load() > 0 {
			return environment.Sandbox{}, errors.New("not after what happened")
		}
		made, err := b.make(ctx, s)
		if err != nil {
			asked.Add(1)
		}
		return made, err
	}})},
	"narrow": {"makes four sandboxes at most", boxed(fault{create: func(ctx context.Context, b *box, s environment.Spec) (environment.Sandbox, error) {
		if asked.Add(1) > 4 { // counted before one is made: they are wanted at the same time
			return environment.Sandbox{}, environment.ErrNoCapacity
		}
		return b.make(ctx, s)
	}})},
	"phoenix": {"starts what has ended again", boxed(fault{create: func(ctx context.Context, b *box, s environment.Spec) (environment.Sandbox, error) {
		made, err := b.make(ctx, s)
		if err != nil {
			return made, err
		}
		b.mu.Lock()
		in := b.running[made.ID]
		b.mu.Unlock()
		go func() {
			<-in.ended
			if slices.Contains(b.owned(""), made.ID) {
				_, _ = b.start(s)
			}
		}()
		return made, nil
	}})},
	"lenient": {"makes what it refuses", boxed(fault{create: func(ctx context.Context, b *box, s environment.Spec) (environment.Sandbox, error) {
		return b.make(ctx, environment.Spec{Labels: s.Labels, Control: s.Control})
	}})},
	"sociable": {"accepts users that it has not", boxed(fault{ignore: func(s *environment.Spec) { s.Users = nil }})},
	"solitary": {"ignores sidecars", boxed(fault{ignore: func(s *environment.Spec) { s.Sidecars, s.Volumes = nil, nil }})},

	"loose": {"makes sidecars that are separate sandboxes", boxed(fault{
		capabilities: []string{environment.CapabilitySidecars}, create: loose,
		check: func(b *box, s environment.Spec) (environment.Report, error) {
			s.Sidecars, s.Volumes = nil, nil
			return b.Plain.Check(context.Background(), s)
		},
	})},
	"blurred": {"prepares images without a digest, and any name", boxed(fault{as: prepared(func(i environment.Image) (environment.Image, error) { return i, nil })})},
	"faceless": {"makes no image of what it prepares", boxed(fault{
		ignore: func(s *environment.Spec) { s.Image = environment.Image{} },
		as: prepared(func(i environment.Image) (environment.Image, error) {
			i.Digest = "sha256:0"
			return i, nil
		}),
	})},
	"sweeping": {"says that it drops every image", boxed(fault{as: func(b *box) environment.Environment { return sweeping{b} }})},
}

const threeDevices = "--dir /dev --dev-bind /dev/null /dev/null --dev-bind /dev/zero /dev/zero --dev-bind /dev/urandom /dev/urandom"

// ownSandboxd lays a sandboxd beside the one that the core gives.
func ownSandboxd(ctx context.Context, b *box, s environment.Spec) (environment.Sandbox, error) {
	data, err := os.ReadFile(filepath.Join(s.Control, "sandboxd"))
	if err == nil {
		err = os.WriteFile(filepath.Join(s.Scratch, "sandboxd"), append(data, '\n'), 0o755)
	}
	if err != nil {
		return environment.Sandbox{}, err
	}
	return b.make(ctx, s)
}

// leak gives the variables of this process to the sandbox.
func leak(m *environment.Sandbox) {
	m.Image.Env = map[string]string{}
	for _, e := range os.Environ() {
		if name, value, ok := strings.Cut(e, "="); ok {
			m.Image.Env[name] = value
		}
	}
}

// leave starts a process in its own session, which stays.
func leave() error {
	cmd := exec.Command("sleep", "600") //nolint:noctx // stays
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Start()
}

// loose makes a sidecar as a separate sandbox: without the network and the
// volumes of the main one, and without its end.
func loose(ctx context.Context, b *box, s environment.Spec) (environment.Sandbox, error) {
	made, err := b.make(ctx, s)
	if err != nil {
		return made, err
	}
	for _, side := range s.Sidecars {
		if _, err = os.Stat(side.Control); err != nil {
			return environment.Sandbox{}, err
		}
		id, err := b.start(environment.Spec{Control: side.Control, Volumes: side.Volumes})
		if err != nil {
			return environment.Sandbox{}, err
		}
		b.mu.Lock()
		delete(b.running, id)
		b.mu.Unlock()
		made.Sidecars = append(made.Sidecars, environment.SidecarSandbox{Name: side.Name})
	}
	return made, nil
}

// preparer is a box that has images.
type preparer struct {
	*box

	prepare func(environment.Image) (environment.Image, error)
}

func prepared(by func(environment.Image) (environment.Image, error)) func(*box) environment.Environment {
	return func(b *box) environment.Environment { return preparer{b, by} }
}

func (p preparer) Prepare(_ context.Context, i environment.Image, _ json.RawMessage, _ func(string)) (environment.Image, error) {
	return p.prepare(i)
}

type sweeping struct{ *box }

func (sweeping) Kept(context.Context) ([]environment.KeptImage, error) { return nil, nil }
func (sweeping) Drop(context.Context, string) (bool, error)            { return true, nil }
