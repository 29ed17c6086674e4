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
}

// fault is what is wrong with a box; the zero value is nothing.
type fault struct {
	replace []string                     // in command: pairs of a text and what is there instead
	forbid  []uint32                     // system calls that fail with EPERM
	before  func(environment.Spec) error // is called first by Create
	made    func(*environment.Sandbox)   // changes what Create returns
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
	return env(f, func(b *box) environment.Environment { return b })
}

// env is an environment that wraps boxes.
func env(f fault, wrap func(*box) environment.Environment) func(plugins.Info) plugins.Plugin {
	return func(i plugins.Info) plugins.Plugin {
		b := &box{Plain: environment.Plain{Name: i.Name}, fault: f, running: map[string]inside{}}
		return plugins.Environment(i, nil, wrap(b))
	}
}

func (b *box) Create(ctx context.Context, s environment.Spec) (made environment.Sandbox, err error) {
	if report, _ := b.Check(ctx, s); report.Err() != nil {
		return made, report.Err()
	}
	return b.make(ctx, s)
}

func (b *box) make(ctx context.Context, s environment.Spec) (made environment.Sandbox, err error) {
	if _, err = os.Stat(s.Control); err != nil || ctx.Err() != nil {
		return made, errors.Join(err, ctx.Err())
	}
	if b.before != nil {
		if err = b.before(s); err != nil {
			return made, err
		}
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
	for from, to := range pairs(b.replace) {
		if !strings.Contains(text, from) {
			panic("no " + from + " in the command")
		}
		text = strings.Replace(text, from, to, 1)
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

func pairs(list []string) func(func(string, string) bool) {
	return func(yield func(string, string) bool) {
		for two := range slices.Chunk(list, 2) {
			if !yield(two[0], two[1]) {
				return
			}
		}
	}
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

func (b *box) List(_ context.Context, owner string) ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ids := maps.Clone(b.running)
	maps.DeleteFunc(ids, func(_ string, in inside) bool { return owner != "" && in.owner != owner })
	return slices.Sorted(maps.Keys(ids)), nil
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
