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
// its own commands ended. With os/exec both would wait for the same child: the
// second one gets ECHILD, and exec.Cmd.Wait then reports "no child processes"
// for a command that ran well. So os/exec is not used here at all (a test
// checks the dependency list). One loop collects every child and passes on the
// statuses.
//
// The mutex prevents another race, in which a command ends before Start has
// noted its pid: collecting waits while a fork is in progress. That costs
// nothing, because the syscall package runs only one fork at a time anyway.
type Reaper struct {
	mu      sync.Mutex
	running map[int]*Process
	first   chan struct{} // signals that there are children again; room for one
	oom     *os.File      // our own oom_score_adj
	oomOwn  []byte        // its value at the start
	guarded chan<- func() // to the thread that starts guarded programs; nil: there is none
}

// Process is one child that Start started.
type Process struct {
	PID   int
	Ended chan struct{} // closed after Status and Usage are set
	// Status and Usage may be read after Ended is closed.
	Status syscall.WaitStatus
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

// passOn makes a thread that starts guarded programs. It is made before any other
// program is started: a thread that has given up what it passes on cannot get it
// back.
func passOn() (chan<- func(), error) {
	forks, ready := make(chan func()), make(chan error)
	go func() {
		runtime.LockOSThread()
		err := become.PassOwn()
		if ready <- err; err != nil {
			runtime.UnlockOSThread() // nothing has changed on it
			return
		}
		for f := range forks {
			f()
		}
	}()
	return forks, <-ready
}

// watch waits in the kernel, on its own thread, until a child has ended,
// and then lets Collect collect it. A handler of SIGCHLD would need two more
// threads, each of which has to wake up first: the one that the signal
// interrupts, and that of package os/signal.
//
// Without children it waits for the next Start. A process that was put into the
// sandbox from outside and abandoned there may then stay a zombie until that
// Start or the next Renew.
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

// Start forks and executes path. It does not close the files of attr. No other
// program of the sandbox, not even of root, can look into a guarded one, where
// Settle has no finding about that.
func (r *Reaper) Start(path string, argv []string, attr *syscall.ProcAttr, guarded bool) (*Process, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.score(oomChild)
	pid, err := r.fork(path, argv, attr, guarded)
	r.score(r.oomOwn)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	p := &Process{PID: pid, Ended: make(chan struct{})}
	r.running[pid] = p
	select {
	case r.first <- struct{}{}:
	default: // watch has not taken the last signal yet
	}
	return p, nil
}

// fork forks on a thread that has no capability to pass on, or only the one that
// guards: a child has the credentials of the thread that forks it.
func (r *Reaper) fork(path string, argv []string, attr *syscall.ProcAttr, guarded bool) (pid int, err error) {
	if guarded && r.guarded != nil {
		done := make(chan struct{})
		r.guarded <- func() {
			defer close(done)
			pid, err = syscall.ForkExec(path, argv, attr)
		}
		<-done
		return pid, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err = become.DropInheritable(); err != nil {
		return 0, err
	}
	return syscall.ForkExec(path, argv, attr)
}

// oomChild makes the kernel kill commands first when memory runs out.
var oomChild = []byte("500")

// score sets our own oom_score_adj, because a child starts with its parent's
// value. If the child's value were set after the fork, the child could fork
// before that. Setting our old value again needs no capability. A command can
// set it too, so this protects only against programs that do not try to evade
// it.
func (r *Reaper) score(value []byte) {
	if r.oom != nil {
		_, _ = r.oom.WriteAt(value, 0)
	}
}

// Score restores our oom_score_adj. It is the one setting of PID 1 that root of
// the sandbox can still change, to make the kernel kill PID 1 first when memory
// runs out.
func (r *Reaper) Score() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.score(r.oomOwn)
}

// Collect collects every child that has ended, our own and orphans. The kernel
// cannot reuse a pid before it is collected here, so the map is always right.
func (r *Reaper) Collect() {
	for {
		var status syscall.WaitStatus
		r.mu.Lock()
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if p := r.running[pid]; err == nil && pid > 0 && p != nil {
			p.Status = status
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
// lock, so that p cannot be collected and its pid reused between the check and
// the kill. If p has ended, Signal returns no error.
func (r *Reaper) Signal(p *Process, sig syscall.Signal, group bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[p.PID] != p {
		return nil
	}
	pid := p.PID
	if group {
		pid = -pid // each command leads its own session, and so its own group
	}
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %d to process %d: %w", sig, p.PID, err)
	}
	return nil
}
