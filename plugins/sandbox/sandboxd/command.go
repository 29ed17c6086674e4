package sandboxd

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/internal/wire"
	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox/become"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/passwd"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/pid1"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/pipe"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/ring"
)

// command is one program that was started for an Exec, a terminal or a service.
type command struct {
	id      string
	session *session // nil for a service
	service string
	started chan struct{} // closed when process is set or the start has failed
	process *pid1.Process // nil if it did not start; read after started

	timedOut, killed atomic.Bool
	deadline         atomic.Pointer[deadline] // nil: none

	// For kept commands. done is closed when the command and its rings have
	// ended.
	stdout, stderr *ring.Ring
	terminal       *os.File // the master; its output is stdout
	stdin          *pipe.Input
	done           chan struct{}
}

func (c *command) kept() bool { return c.stdout != nil }

// over is true once the first process has ended.
func (c *command) over() bool {
	select {
	case <-c.started:
	default:
		return false
	}
	if c.process == nil {
		return true
	}
	select {
	case <-c.process.Ended:
		return true
	default:
		return false
	}
}

// exit returns how the command ended. It may be called after process.Ended.
func (c *command) exit() *pb.Exit {
	p := c.process
	e := &pb.Exit{
		Code: int32(p.Status.ExitStatus()), TimedOut: c.timedOut.Load(), Killed: c.killed.Load(),
	}
	if p.Status.Signaled() {
		e.Code, e.Signal = -1, int32(p.Status.Signal())
	}
	return e
}

// origin says for which session or service a process was started.
type origin struct{ session, service string }

// plan is a command that is ready to start.
type plan struct {
	path string
	argv []string
	attr syscall.ProcAttr

	guarded bool
}

// prepare makes a plan from a client's request.
func prepare(spec *pb.ExecStart, def defaults, extra ...string) (*plan, error) {
	argv := wire.Strings(spec.GetArgv())
	if len(argv) == 0 || argv[0] == "" {
		return nil, fmt.Errorf("%w: no program given", fault.ErrInvalid)
	}
	own, err := entries(spec.GetEnv())
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(argv, func(a string) bool { return strings.Contains(a, "\x00") }) {
		return nil, fmt.Errorf("%w: zero byte in an argument", fault.ErrInvalid)
	}
	defer pid1.Block()()
	u, err := passwd.Resolve(cmp.Or(spec.GetUser(), def.user))
	if err != nil {
		return nil, err
	}
	name, _ := os.Hostname() // as container engines do; empty if there is no name
	env := environment(append([]string{"PATH=" + defaultPath, "HOME=" + u.Home, "HOSTNAME=" + name}, extra...), def.env, own)
	dir := cmp.Or(string(spec.GetDir()), def.dir)
	if !strings.HasPrefix(dir, "/") {
		dir = def.dir + "/" + dir
	}
	path, err := lookPath(argv[0], dir, env)
	if err != nil {
		return nil, err
	}
	p := &plan{path: path, argv: argv, guarded: def.guarded}
	p.attr.Dir, p.attr.Env = dir, env
	// The credential is always set, also for root, because sandboxd has an id
	// of its own. If the kernel denies setgroups (one id only), there is
	// nothing to set.
	p.attr.Sys = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{
		Uid: u.UID, Gid: u.GID, Groups: u.Groups, NoSetGroups: oneID(),
	}}
	return p, nil
}

// oneID is true where only one user id is mapped.
var oneID = sync.OnceValue(become.OneID)

// start is the only place that starts programs of the sandbox. It does not
// close the files.
func (d *daemon) start(c *command, p *plan, files []uintptr) error {
	defer close(c.started)
	release := pid1.Block() // before any lock: a goroutine that holds a lock must not wait for a slot
	defer release()
	d.starts.RLock()
	defer d.starts.RUnlock()
	d.mu.Lock()
	frozen := d.frozen != nil
	d.mu.Unlock()
	if frozen {
		return fmt.Errorf("start %q: %w", p.argv[0], fault.ErrFrozen)
	}
	p.attr.Files = files
	process, err := d.reap.Start(p.path, p.argv, &p.attr, p.guarded)
	if err != nil {
		return startError(p, err)
	}
	c.process = process
	d.mu.Lock()
	defer d.mu.Unlock()
	d.commands[c] = struct{}{}
	if c.session != nil && !c.session.ours {
		d.turn.uids[p.attr.Sys.Credential.Uid] = true
	}
	return nil
}

// ended removes a command from the running ones.
func (d *daemon) ended(c *command) {
	if t := c.deadline.Load(); t != nil {
		t.stop()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.commands, c)
	if c.session == nil {
		return
	}
	d.past[c.process.PID] = c.session.id
	if len(d.past) > d.pastLimit {
		d.prune()
	}
}

// startError finds out what is missing, because the kernel returns the same
// error number for all cases.
func startError(p *plan, err error) error {
	var st syscall.Stat_t
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		if e := syscall.Stat(p.attr.Dir, &st); e != nil || st.Mode&syscall.S_IFMT != syscall.S_IFDIR {
			return fmt.Errorf("start %q: %w: the working folder %q is not there", p.argv[0], fault.ErrNotFound, p.attr.Dir)
		}
		if e := syscall.Stat(p.path, &st); e == nil {
			return fmt.Errorf("start %q: %w: the interpreter of %s is missing", p.argv[0], fault.ErrNoProgram, p.path)
		}
		return fmt.Errorf("start %q: %w", p.argv[0], fault.ErrNoProgram)
	case errors.Is(err, syscall.EINVAL) && oneID():
		return fmt.Errorf("start %q: %w: this sandbox has one user id, 0, and the command wants %d", p.argv[0], fault.ErrDenied, p.attr.Sys.Credential.Uid)
	}
	return fmt.Errorf("start %q: %w", p.argv[0], fault.Errno(err))
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// lookPath finds argv[0] like execvp, with the PATH that the command will have.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil // relative to dir: the child changes into it before it executes the program
	}
	path := defaultPath
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
		}
	}
	sentinel := fault.ErrNoProgram
	for d := range strings.SplitSeq(path, ":") {
		if !strings.HasPrefix(d, "/") {
			d = dir + "/" + d
		}
		switch info, err := os.Stat(d + "/" + name); { // which repeats a look that is interrupted
		case err != nil:
		case info.Mode().IsRegular() && info.Mode()&0o111 != 0:
			return d + "/" + name, nil
		default:
			sentinel = fault.ErrDenied
		}
	}
	return "", fmt.Errorf("start %q: %w in PATH %q", name, sentinel, path)
}

// environment merges layers of K=V. Later layers win; the order is kept.
func environment(layers ...[]string) (out []string) {
	at := map[string]int{}
	for _, layer := range layers {
		for _, e := range layer {
			k, _, _ := strings.Cut(e, "=")
			if i, ok := at[k]; ok {
				out[i] = e
				continue
			}
			at[k] = len(out)
			out = append(out, e)
		}
	}
	return out
}

// entries checks environment entries.
func entries(in [][]byte) ([]string, error) {
	for _, e := range in {
		if bytes.IndexByte(e, '=') < 1 || bytes.IndexByte(e, 0) >= 0 {
			return nil, fmt.Errorf("%w: environment entry %q is not K=V", fault.ErrInvalid, e)
		}
	}
	return wire.Strings(in), nil
}

// deadline is a command's timeout. Time in which the sandbox is frozen does not
// count.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer // nil if stopped
	end   time.Time
	left  time.Duration // while frozen
}

func newDeadline(after time.Duration, expired func()) *deadline {
	d := &deadline{end: time.Now().Add(after)}
	d.timer = time.AfterFunc(after, expired)
	return d
}

func (d *deadline) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

// freeze stops the clock, and thaw starts it again.
func (d *deadline) freeze() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && d.timer.Stop() {
		d.left = max(time.Until(d.end), 1) // 0 would be: not frozen
	}
}

func (d *deadline) thaw() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && d.left > 0 {
		d.end = time.Now().Add(d.left)
		d.timer.Reset(d.left)
		d.left = 0
	}
}
