package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/environment"
)

// box is bubblewrap around the host's programs, as in examples/plugins/plainbox.
type box struct {
	environment.Plain
	fault

	mu      sync.Mutex
	running map[string]inside
	gone    []string
}

// fault is what is wrong with a box; the zero value is nothing.
type fault struct {
	replace []string                   // in command: pairs of a text and what is there instead
	forbid  []uint32                   // system calls that fail with EPERM
	ignore  func(*environment.Spec)    // takes away what Check and Create do not look at
	made    func(*environment.Sandbox) // changes what Create returns

	// These stand for the methods of the same name.
	check   func(*box, environment.Spec) (environment.Report, error)
	create  func(context.Context, *box, environment.Spec) (environment.Sandbox, error)
	destroy func(context.Context, *box, string) (environment.Remains, error)
	list    func(*box, string) []string

	capabilities []string
	as           func(*box) environment.Environment // adds optional interfaces
}

// inside is one sandbox.
type inside struct {
	owner string
	cmd   *exec.Cmd
	ended chan struct{}
}

// command makes a sandbox. WORKDIR, CONTROL and SCRATCH are of the spec,
// and --ro-mounts is its mounts and volumes.
const command = `bwrap --unshare-all --die-with-parent --as-pid-1 --clearenv --uid 0 --gid 0 --cap-add ALL --hostname sandbox --chdir /
	--ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/sbin /sbin --symlink usr/lib /lib --symlink usr/lib64 /lib64
	--ro-bind /etc/passwd /etc/passwd --ro-bind /etc/group /etc/group --ro-bind-try /etc/alternatives /etc/alternatives
	--proc /proc --ro-bind /proc/sys /proc/sys --dev /dev --perms 1777 --tmpfs /tmp --perms 1777 --dir /var/tmp --dir /root
	--dir WORKDIR --ro-bind CONTROL /berth --ro-mounts /berth/sandboxd`

// boxed is an environment of boxes with a fault.
func boxed(f fault) func(plugins.Info) plugins.Plugin {
	return func(i plugins.Info) plugins.Plugin {
		b := &box{Plain: environment.Plain{Name: i.Name}, fault: f, running: map[string]inside{}}
		i.Capabilities = f.capabilities
		if f.as != nil {
			return plugins.Environment(i, nil, f.as(b))
		}
		return plugins.Environment(i, nil, b)
	}
}

func (b *box) Check(ctx context.Context, s environment.Spec) (environment.Report, error) {
	if b.ignore != nil {
		b.ignore(&s)
	}
	if b.check != nil {
		return b.check(b, s)
	}
	return b.Plain.Check(ctx, s)
}

func (b *box) Create(ctx context.Context, s environment.Spec) (environment.Sandbox, error) {
	if b.create != nil {
		return b.create(ctx, b, s)
	}
	if report, err := b.Check(ctx, s); err != nil || report.Err() != nil {
		return environment.Sandbox{}, errors.Join(err, report.Err())
	}
	return b.make(ctx, s)
}

// make creates a sandbox, also one that Check refuses.
func (b *box) make(ctx context.Context, s environment.Spec) (made environment.Sandbox, err error) {
	if b.ignore != nil {
		b.ignore(&s)
	}
	if _, err = os.Stat(s.Control); err != nil || ctx.Err() != nil {
		return made, errors.Join(err, ctx.Err())
	}
	facts, err := b.Facts(s.Image)
	if err != nil {
		return made, err
	}
	s.Workdir = cmp.Or(s.Workdir, facts.Workdir, "/app")
	facts.Workdir = s.Workdir
	id, err := b.start(s)
	if err != nil {
		return made, err
	}
	no := environment.GrantNo
	made = environment.Sandbox{
		ID: id, Image: facts,
		Granted: environment.Granted{CPU: no, Memory: no, Pids: no, Disk: no, Network: environment.GrantEnforced},
	}
	if b.made != nil {
		b.made(&made)
	}
	return made, nil
}

// start runs a sandbox and returns its id.
func (b *box) start(s environment.Spec) (string, error) {
	argv := b.argv(s)
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx,gosec // outlives the call; the arguments are the kit's
	if len(b.forbid) > 0 {
		profile, err := seccomp(b.forbid)
		if err != nil {
			return "", err
		}
		defer profile.Close()
		cmd.ExtraFiles = []*os.File{profile}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	id, in := strconv.Itoa(cmd.Process.Pid), inside{s.Labels.Owner, cmd, make(chan struct{})}
	go func() { _ = cmd.Wait(); close(in.ended) }()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running[id] = in
	return id, nil
}

// argv is the command for a sandbox.
func (b *box) argv(s environment.Spec) (argv []string) {
	text := command
	if len(b.forbid) > 0 {
		text = strings.Replace(text, "bwrap ", "bwrap --seccomp 3 ", 1)
	}
	for i := 0; i < len(b.replace); i += 2 {
		if !strings.Contains(text, b.replace[i]) {
			panic("no " + b.replace[i] + " in the command")
		}
		text = strings.Replace(text, b.replace[i], b.replace[i+1], 1)
	}
	for word := range strings.FieldsSeq(text) {
		switch word {
		case "WORKDIR":
			argv = append(argv, cmp.Or(s.Workdir, "/app"))
		case "CONTROL":
			argv = append(argv, s.Control)
		case "--ro-mounts", "--mounts":
			for _, m := range s.Mounts {
				argv = append(argv, strings.Replace(word, "mounts", "bind", 1), m.Source, m.Target)
			}
			for _, v := range s.Volumes {
				argv = append(argv, "--dir", v.Target)
			}
		default:
			argv = append(argv, strings.ReplaceAll(word, "SCRATCH", s.Scratch))
		}
	}
	return argv
}

func (b *box) Destroy(ctx context.Context, id string) (environment.Remains, error) {
	if b.destroy != nil {
		return b.destroy(ctx, b, id)
	}
	return b.end(id)
}

// end ends a sandbox.
func (b *box) end(id string) (environment.Remains, error) {
	b.mu.Lock()
	in, ok := b.running[id]
	delete(b.running, id)
	b.gone = append(b.gone, id)
	b.mu.Unlock()
	if ok {
		_ = syscall.Kill(-in.cmd.Process.Pid, syscall.SIGKILL)
		<-in.ended
	}
	return environment.Remains{}, nil
}

func (b *box) List(_ context.Context, owner string) ([]string, error) {
	if b.list != nil {
		return b.list(b, owner), nil
	}
	return b.owned(owner), nil
}

// owned are the ids of an owner; empty: all.
func (b *box) owned(owner string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	ids := maps.Clone(b.running)
	maps.DeleteFunc(ids, func(_ string, in inside) bool { return owner != "" && in.owner != owner })
	return slices.Sorted(maps.Keys(ids))
}

// seccomp is a file with a program for the kernel, which refuses calls with
// EPERM and allows every other.
func seccomp(calls []uint32) (*os.File, error) {
	const load, equal, give = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	program := []unix.SockFilter{{Code: load}}
	for _, c := range calls {
		program = append(program, unix.SockFilter{Code: equal, Jf: 1, K: c},
			unix.SockFilter{Code: give, K: unix.SECCOMP_RET_ERRNO | uint32(syscall.EPERM)})
	}
	program = append(program, unix.SockFilter{Code: give, K: unix.SECCOMP_RET_ALLOW})
	var text bytes.Buffer
	if err := binary.Write(&text, binary.NativeEndian, program); err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	_, err = w.Write(text.Bytes()) // less than a pipe holds
	return r, errors.Join(err, w.Close())
}
