// Command plainbox is an environment that uses bubblewrap around the host's
// programs.
package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/environment"
)

// view lists what a sandbox sees of the host, and what is its own.
const view = `--unshare-all --die-with-parent --as-pid-1 --clearenv --uid 0 --gid 0 --cap-add ALL --hostname sandbox --chdir /
	--ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/sbin /sbin --symlink usr/lib /lib --symlink usr/lib64 /lib64
	--ro-bind /etc/passwd /etc/passwd --ro-bind /etc/group /etc/group --ro-bind-try /etc/alternatives /etc/alternatives
	--proc /proc --ro-bind /proc/sys /proc/sys --dev /dev --perms 1777 --tmpfs /tmp --perms 1777 --dir /var/tmp --dir /root`

// hosts lists what of it is the host's or sandboxd's: a task can copy no files
// there.
var hosts = strings.Fields("/usr /bin /sbin /lib /lib64 /etc/passwd /etc/group /etc/alternatives /proc /dev /berth /copied")

type plainboxEnvironment struct {
	environment.Plain // refuses the features that this environment does not have

	mu    sync.Mutex
	boxes map[string]box
}

type box struct {
	owner string
	cmd   *exec.Cmd
	ended chan struct{}
}

func (p *plainboxEnvironment) Check(ctx context.Context, s environment.Spec) (environment.Report, error) {
	report, err := p.Plain.Check(ctx, s)
	if _, missing := exec.LookPath("bwrap"); missing != nil {
		report.Refusals = append(report.Refusals, environment.Problem{Summary: "bwrap is not installed", Detail: "apt-get install bubblewrap"})
	}
	return report, err
}

func (p *plainboxEnvironment) Create(ctx context.Context, s environment.Spec) (made environment.Sandbox, err error) {
	if report, _ := p.Check(ctx, s); report.Err() != nil {
		return made, report.Err()
	}
	if _, err = os.Stat(s.Control); err != nil || ctx.Err() != nil { // bubblewrap itself would fail too late to report it
		return made, errors.Join(err, ctx.Err())
	}
	image, err := p.Facts(s.Image)
	if err != nil {
		return made, err
	}
	copied := filepath.Join(s.Scratch, "copied")
	if err = os.Mkdir(copied, 0o755); err == nil {
		err = p.Files(s.Image, copied)
	}
	if err != nil {
		return made, err
	}
	image.Workdir = cmp.Or(s.Workdir, image.Workdir, "/app")
	args := append(strings.Fields(view), "--dir", image.Workdir, "--ro-bind", s.Control, "/berth", "--ro-bind", copied, "/copied")
	for _, m := range s.Mounts {
		args = append(args, "--ro-bind", m.Source, m.Target)
	}
	args = append(args, "/bin/sh", "-c", "cp -a /copied/. / && umount /copied && rmdir /copied && exec /berth/sandboxd")
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "bwrap", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return made, err
	}
	id, b := strconv.Itoa(cmd.Process.Pid), box{s.Labels.Owner, cmd, make(chan struct{})}
	go func() { _ = cmd.Wait(); close(b.ended) }()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.boxes[id] = b
	no, yes := environment.GrantNo, environment.GrantEnforced
	return environment.Sandbox{
		ID: id, Image: image,
		Granted: environment.Granted{CPU: no, Memory: no, Pids: no, Disk: no, Network: yes, How: "bubblewrap"},
	}, nil
}

func (p *plainboxEnvironment) Destroy(_ context.Context, id string) (r environment.Remains, err error) {
	p.mu.Lock()
	b, ok := p.boxes[id]
	delete(p.boxes, id)
	p.mu.Unlock()
	if ok {
		_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL) // the whole group: bubblewrap starts children before it makes the sandbox
		<-b.ended
	}
	return r, nil
}

func (p *plainboxEnvironment) List(_ context.Context, owner string) (ids []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, b := range p.boxes { // this is enough, because sandboxes die with this process
		if owner == "" || b.owner == owner {
			ids = append(ids, id)
		}
	}
	return slices.Sorted(slices.Values(ids)), nil
}

func main() {
	info := plugins.Info{Name: "plainbox", Version: "1.0.0", Doc: "Bubblewrap around the host's own programs; no limits, no images."}
	plain := environment.Plain{Name: info.Name, Copies: true, Hidden: hosts}
	plugins.Serve(plugins.Environment(info, nil, &plainboxEnvironment{Plain: plain, boxes: map[string]box{}}))
}
