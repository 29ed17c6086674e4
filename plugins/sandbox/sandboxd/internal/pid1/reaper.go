package pid1

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/sandbox/become"
)

// Reaper is the only caller of wait in this process.
//
// PID 1 must collect orphans, that is call wait4(-1), and must also learn how
// its own commands ended. With os/exec both wait for the same child: whoever
// comes second gets ECHILD, and exec.Cmd.Wait then reports "no child
// processes" for a command that ran well. So os/exec is not used here at all
// (a test looks for it in the dependency list); one loop collects every child
// and hands statuses out.
//
// The mutex closes the other race, a command that ends before Start has noted
// its pid: collecting waits while a fork is under way. That costs nothing, as
// the syscall package lets one fork run at a time anyhow.
type Reaper struct {
	mu      sync.Mutex
	running map[int]*Process
	first   chan struct{} // that there are children again; room for one
	oom     *os.File      // our own oom_score_adj
	oomOwn  []byte        // what it was at the start
}

// Process is one child that Start started.
type Process struct {
	PID   int
	Ended chan struct{} // closed after Status and Usage are set
	// Status and Usage may be read after Ended is closed.
	Status syscall.WaitStatus
	Usage  syscall.Rusage
}

func newReaper() *Reaper {
	r := &Reaper{running: map[int]*Process{}, first: make(chan struct{}, 1)}
	if f, err := os.OpenFile("/proc/self/oom_score_adj", os.O_RDWR, 0); err == nil {
		b := make([]byte, 16)
		n, _ := f.Read(b)
		r.oom, r.oomOwn = f, b[:n]
	}
	go r.watch()
	return r
}

// watch sits in the kernel, with a thread of its own, until a child has ended,
// and lets Collect collect it. A handler of SIGCHLD would come to the same by way
// of two more threads: the one that the signal interrupts, and that of package
// os/signal, each of which has to wake up first.
//
// Without children it waits for the next Start. What somebody outside put into
// the sandbox, and abandoned there, may then wait as a zombie until then, or
// until the next Renew.
func (r *Reaper) watch() {
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case err == nil:
			r.Collect()
		case !errors.Is(err, unix.EINTR): // ECHILD
			<-r.first
		}
	}
}

// Start forks and executes path. The files of attr are not closed.
func (r *Reaper) Start(path string, argv []string, attr *syscall.ProcAttr) (*Process, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// A child has the credentials of the thread that forks it, so it is this
	// one that must have nothing to hand on.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := become.DropInheritable(); err != nil {
		return nil, err
	}
	r.score(oomChild)
	pid, err := syscall.ForkExec(path, argv, attr)
	r.score(r.oomOwn)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	p := &Process{PID: pid, Ended: make(chan struct{})}
	r.running[pid] = p
	select {
	case r.first <- struct{}{}:
	default: // watch has not yet taken the last one's
	}
	return p, nil
}

// oomChild makes commands the first to go when memory runs out.
var oomChild = []byte("500")

// score sets our own oom_score_adj, since a child is born with its parent's:
// setting the child's after the fork would leave a moment to fork away in. Going
// back needs no capability, as we were there before. (For the same reason a
// command can go back, too: this protects from honest programs only.)
func (r *Reaper) score(value []byte) {
	if r.oom != nil {
		_, _ = r.oom.WriteAt(value, 0)
	}
}

// Score undoes the one thing that root of the sandbox can still do to PID 1:
// mark it as the first to kill when memory runs out.
func (r *Reaper) Score() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.score(r.oomOwn)
}

// Collect collects every child that has ended, our own and orphans. A pid
// cannot be used again before it is collected here, so the map is never wrong.
func (r *Reaper) Collect() {
	for {
		var status syscall.WaitStatus
		var usage syscall.Rusage
		r.mu.Lock()
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, &usage)
		if p := r.running[pid]; err == nil && pid > 0 && p != nil {
			p.Status, p.Usage = status, usage
			delete(r.running, pid)
			close(p.Ended)
		}
		r.mu.Unlock()
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
	}
}

// Signal sends sig to p's process group, or only to p itself. It holds the
// lock, so that p is not collected, and its pid not somebody else's, between
// looking and killing. One that has ended is no error.
func (r *Reaper) Signal(p *Process, sig syscall.Signal, group bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[p.PID] != p {
		return nil
	}
	pid := p.PID
	if group {
		pid = -pid // each command leads a session, so a group, of its own
	}
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %d to process %d: %w", sig, p.PID, err)
	}
	return nil
}
