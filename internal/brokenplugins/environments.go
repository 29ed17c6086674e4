package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/environment"
)

// environments are the broken environments.
var environments = table{
	"sound":     {"not broken", env(func(b *box) environment.Environment { return b })},
	"forgetful": {"loses sight of its sandboxes", env(func(b *box) environment.Environment { return &forgetful{b} })},
	"clinging":  {"removes nothing", env(func(b *box) environment.Environment { return &clinging{b} })},
	"stranded": {
		"its engine is not there; not broken, and cannot be tried",
		env(func(b *box) environment.Environment { return &stranded{b} }),
	},
	"unfurnished": {
		"its registry is not reached; not broken, and cannot be tried",
		env(func(b *box) environment.Environment { return &unfurnished{b} }),
	},
}

func env(made func(*box) environment.Environment) func(plugins.Info) plugins.Plugin {
	return func(i plugins.Info) plugins.Plugin {
		return plugins.Environment(i, nil, made(&box{Plain: environment.Plain{Name: i.Name}, running: map[string]inside{}}))
	}
}

// box is bubblewrap around the host's programs, as in examples/plugins/plainbox.
type box struct {
	environment.Plain

	mu      sync.Mutex
	running map[string]inside
}

// inside is one sandbox.
type inside struct {
	owner string
	cmd   *exec.Cmd
	ended chan struct{}
}

const view = `--unshare-all --die-with-parent --as-pid-1 --clearenv --uid 0 --gid 0 --cap-add ALL --hostname sandbox --chdir /
	--ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/sbin /sbin --symlink usr/lib /lib --symlink usr/lib64 /lib64
	--ro-bind /etc/passwd /etc/passwd --ro-bind /etc/group /etc/group --ro-bind-try /etc/alternatives /etc/alternatives
	--proc /proc --ro-bind /proc/sys /proc/sys --dev /dev --perms 1777 --tmpfs /tmp --perms 1777 --dir /var/tmp --dir /root`

func (b *box) Create(ctx context.Context, s environment.Spec) (made environment.Sandbox, err error) {
	if report, _ := b.Check(ctx, s); report.Err() != nil {
		return made, report.Err()
	}
	if _, err := os.Stat(s.Control); err != nil || ctx.Err() != nil {
		return made, errors.Join(err, ctx.Err())
	}
	workdir := cmp.Or(s.Workdir, "/app")
	args := append(strings.Fields(view), "--dir", workdir, "--ro-bind", s.Control, "/berth")
	for _, m := range s.Mounts {
		args = append(args, "--ro-bind", m.Source, m.Target)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "bwrap", append(args, "/berth/sandboxd")...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return made, err
	}
	id, in := strconv.Itoa(cmd.Process.Pid), inside{s.Labels.Owner, cmd, make(chan struct{})}
	go func() { _ = cmd.Wait(); close(in.ended) }()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running[id] = in
	no := environment.GrantNo
	return environment.Sandbox{
		ID: id, Image: environment.ImageFacts{Base: "host", Workdir: workdir},
		Granted: environment.Granted{CPU: no, Memory: no, Pids: no, Disk: no, Network: environment.GrantEnforced},
	}, nil
}

func (b *box) Destroy(_ context.Context, id string) (environment.Remains, error) {
	b.mu.Lock()
	in, ok := b.running[id]
	delete(b.running, id)
	b.mu.Unlock()
	if ok {
		_ = syscall.Kill(-in.cmd.Process.Pid, syscall.SIGKILL)
		<-in.ended
	}
	return environment.Remains{}, nil
}

func (b *box) List(_ context.Context, owner string) (ids []string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, in := range b.running {
		if owner == "" || in.owner == owner {
			ids = append(ids, id)
		}
	}
	return slices.Sorted(slices.Values(ids)), nil
}

type forgetful struct{ *box }

func (*forgetful) List(context.Context, string) ([]string, error) { return nil, nil }

type clinging struct{ *box }

func (*clinging) Destroy(context.Context, string) (environment.Remains, error) {
	return environment.Remains{}, nil
}

type stranded struct{ *box }

func (*stranded) Check(context.Context, environment.Spec) (environment.Report, error) {
	return environment.Report{Refusals: []environment.Problem{{Summary: "No engine runs here", Detail: "Start it."}}}, nil
}

type unfurnished struct{ *box }

func (*unfurnished) Prepare(context.Context, environment.Image, json.RawMessage, func(string)) (environment.Image, error) {
	return environment.Image{}, errors.New("pull: no such host")
}
