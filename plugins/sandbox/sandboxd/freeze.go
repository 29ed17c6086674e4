package sandboxd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/berth-eval/berth/plugins/fault"
	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/pid1"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/proc"
)

// freeze is the state of a frozen sandbox.
type freeze struct {
	already map[int]uint64 // processes stopped before, start time by pid; Thaw leaves them stopped
	still   map[int]still  // those that are stopped, by pid; nil: not all are yet
}

// How long to wait for processes to stop. One in an uninterruptible wait stops
// late.
const (
	freezeTime = 5 * time.Second
	restTime   = 2 * time.Second
	killTime   = 10 * time.Second
)

// Freeze stops parents before children, and waits for each generation to stop
// before it stops the next. A shell that waits for its foreground job is woken
// by its own SIGSTOP, and checks its children once more before it stops. If the
// job were already stopped then, the shell would take the terminal from it
// after Thaw ("Stopped").
//
// kill(-1) then catches the processes that the walk missed: from PID 1 it
// reaches every process of the namespace except ourselves. The kernel restarts
// a fork that is in progress after the signal, so no process escapes.
func (c *control) Freeze(context.Context, *pb.FreezeRequest) (*pb.FreezeReply, error) {
	frozen, first := c.d.noStarts()
	t, err := table()
	if err != nil {
		return nil, err
	}
	if first {
		frozen.already = stoppedNow(t)
	}
	t, moving, err := stopAll(t, freezeTime)
	switch {
	case err != nil:
		return nil, err
	case moving != nil:
		return nil, fmt.Errorf("%w: process %d (%q) does not stop", fault.ErrTimeout, moving.PID, moving.Comm)
	}
	now, err := stillness(t)
	if err != nil {
		return nil, err
	}
	c.d.mu.Lock()
	ran := proc.Table(nil)
	if frozen.still != nil {
		ran = moved(frozen.still, now)
	}
	frozen.still = now
	c.d.mu.Unlock()
	list, _ := c.d.describe(ran, false)
	return &pb.FreezeReply{Stopped: int64(len(t)), Moved: list}, nil
}

// stoppedNow returns the stopped processes in t, start time by pid.
func stoppedNow(t proc.Table) map[int]uint64 {
	stopped := map[int]uint64{}
	for _, p := range t {
		if p.State == 'T' {
			stopped[p.PID] = p.Started
		}
	}
	return stopped
}

// stopAll stops every process and returns a complete process table. A process
// with a pending signal cannot fork. So when two tables in a row, each read
// after a signal to all processes, list the same processes, none is left that
// could fork. One table is not enough: it could miss a chain of processes that
// each start the next one and exit. moving is a process that has not stopped
// within the time, or nil.
func stopAll(t proc.Table, within time.Duration) (_ proc.Table, moving *proc.Process, err error) {
	begin := time.Now()
	for _, generation := range t.Generations() {
		stopGeneration(generation)
	}
	for last := proc.Table(nil); ; last = t {
		_ = syscall.Kill(-1, syscall.SIGSTOP)
		if t, err = table(); err != nil {
			return nil, nil, err
		}
		moving = t.Moving()
		if moving == nil && slices.EqualFunc(t, last, func(p, q proc.Process) bool { return p.PID == q.PID && p.Started == q.Started }) {
			return t, nil, nil
		}
		if time.Since(begin) > within {
			return t, moving, nil
		}
		if moving != nil {
			time.Sleep(100 * time.Microsecond)
		}
	}
}

// contAll continues processes, except those that were stopped before. Children
// go first: a shell that wakes before its job would find the job stopped.
func contAll(t proc.Table, already map[int]uint64) {
	generations := t.Generations()
	slices.Reverse(generations)
	for _, generation := range generations {
		for _, p := range generation {
			if began, ok := already[p.PID]; !ok || began != p.Started {
				_ = syscall.Kill(p.PID, syscall.SIGCONT)
			}
		}
	}
}

// atRest calls do with the process table while all processes are stopped, so
// that none can fork or exit before do returns. New commands start after it.
func (d *daemon) atRest(do func(proc.Table) error) error {
	d.starts.Lock()
	defer d.starts.Unlock()
	d.mu.Lock()
	frozen := d.frozen != nil
	d.mu.Unlock()
	t, err := table()
	if err != nil {
		return err
	}
	if frozen || errors.Is(syscall.Kill(-1, 0), syscall.ESRCH) { // there are no other processes
		return do(t)
	}
	already := stoppedNow(t)
	defer func() {
		if now, failed := table(); failed == nil {
			contAll(now, already)
		}
	}()
	// A process that does not stop, as in an uninterruptible wait, is in the
	// table. That is enough here.
	if t, _, err = stopAll(t, restTime); err != nil {
		return err
	}
	return do(t)
}

// noStarts begins a freeze. After it returns no start of a program is in
// progress, and the timeouts of running commands are paused.
func (d *daemon) noStarts() (f *freeze, first bool) {
	d.starts.Lock()
	defer d.starts.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.frozen != nil {
		return d.frozen, false
	}
	d.frozen = &freeze{already: map[int]uint64{}}
	for one := range d.commands {
		if t := one.deadline.Load(); t != nil {
			t.freeze()
		}
	}
	return d.frozen, true
}

// stopGeneration stops processes and waits briefly. Freeze waits for those that
// take longer.
func stopGeneration(generation []proc.Process) {
	for _, p := range generation {
		_ = syscall.Kill(p.PID, syscall.SIGSTOP)
	}
	for _, p := range generation {
		for range 50 {
			if now, ok := proc.Stat(p.PID); !ok || now.Still() {
				break
			}
			time.Sleep(20 * time.Microsecond)
		}
	}
}

// Thaw continues the processes that Freeze stopped.
func (c *control) Thaw(context.Context, *pb.ThawRequest) (*pb.ThawReply, error) {
	d := c.d
	t, err := table()
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.frozen == nil {
		return &pb.ThawReply{}, nil
	}
	contAll(t, d.frozen.already)
	d.frozen = nil
	for one := range d.commands {
		if t := one.deadline.Load(); t != nil {
			t.thaw()
		}
	}
	return &pb.ThawReply{}, nil
}

// Quiesce kills all processes until none is left, and returns what it killed.
func (c *control) Quiesce(context.Context, *pb.QuiesceRequest) (*pb.QuiesceReply, error) {
	t, err := table()
	if err != nil {
		return nil, err
	}
	before, _ := c.d.describe(t, true)
	c.d.noteKilled(func(*command) bool { return true })
	for begin := time.Now(); ; {
		err := syscall.Kill(-1, syscall.SIGKILL)
		c.d.reap.Collect()
		if errors.Is(err, syscall.ESRCH) {
			c.d.mu.Lock()
			clear(c.d.turn.uids) // no process is left that could trace programs started from now on
			c.d.mu.Unlock()
			return &pb.QuiesceReply{Killed: before}, nil // there was nothing to kill, not even zombies
		}
		if time.Since(begin) > killTime {
			return nil, fmt.Errorf("%w: processes do not die", fault.ErrTimeout)
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// noteKilled marks commands that we are about to kill.
func (d *daemon) noteKilled(which func(*command) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.commands {
		if which(c) && !c.over() {
			c.killed.Store(true)
		}
	}
}

// killTree kills p, its descendants, and its kernel session. It stops each
// process when it finds it, so that the process cannot fork during the search.
// It does not find processes that left the session and lost their parent
// before; Sweep or Quiesce kills those. If p has ended, killTree does nothing,
// because p's tree is no longer known.
func (d *daemon) killTree(p *pid1.Process) {
	select {
	case <-p.Ended:
		return
	default:
	}
	defer pid1.BlockControl()() // what hangs in the sessions' slots may be what is to be killed
	found := map[int]bool{}
	for grew := true; grew; {
		t, err := proc.List()
		if err != nil {
			break
		}
		grew = stopTree(t, p.PID, found)
	}
	// The root comes last: once its command has ended, all others are dead.
	delete(found, p.PID)
	for pid := range found {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for begin := time.Now(); len(found) > 0 && time.Since(begin) < killTime; time.Sleep(50 * time.Microsecond) {
		for pid := range found {
			if now, ok := proc.Stat(pid); !ok || now.Zombie() {
				delete(found, pid)
			}
		}
	}
	_ = d.reap.Signal(p, syscall.SIGKILL, true)
}

// stopTree stops the processes that belong to root and are not in found yet,
// and adds them.
func stopTree(t proc.Table, root int, found map[int]bool) (grew bool) {
	index := t.Index()
	for i := range t {
		p := &t[i]
		if found[p.PID] || p.Zombie() {
			continue
		}
		belongs := p.Session == root
		proc.Ancestors(index, p, func(q *proc.Process) bool {
			belongs = belongs || q.PID == root || found[q.PID]
			return !belongs
		})
		if belongs {
			_ = syscall.Kill(p.PID, syscall.SIGSTOP)
			found[p.PID], grew = true, true
		}
	}
	return grew
}

// A process that is stopped can have itself continued: by a timer that sends it
// SIGCONT, by a signal of a file descriptor. It can do what it wants then, and stop
// again. This cannot be prevented with signals, and the control group of the
// sandbox has sandboxd in it, which must continue. But it can be seen, because the
// kernel counts how often each thread was taken off a processor.

// atRestTime is how long these counts must be the same before they count: a thread
// shows as stopped shortly before it leaves its processor.
const atRestTime = time.Millisecond

// still is what is known of a process that was stopped.
type still struct {
	proc.Process
	switches map[int]uint64 // by thread
}

// stillness reads what is known of the stopped processes in t, by pid. It waits
// briefly until all have left their processors.
func stillness(t proc.Table) (map[int]still, error) {
	last, err := readStillness(t)
	for begin := time.Now(); err == nil && len(last) > 0 && time.Since(begin) < restTime; {
		time.Sleep(atRestTime)
		now, failed := readStillness(t)
		if failed != nil {
			return nil, failed
		}
		if maps.EqualFunc(last, now, func(p, q still) bool { return maps.Equal(p.switches, q.switches) }) {
			break
		}
		last = now
	}
	return last, err
}

func readStillness(t proc.Table) (map[int]still, error) {
	all := map[int]still{}
	for _, p := range t {
		if p.Dead() { // it may still be on its way out, and runs nothing
			continue
		}
		n, err := p.Switches()
		if err != nil {
			return nil, err
		}
		all[p.PID] = still{p, n}
	}
	return all, nil
}

// moved returns the processes that ran since before was read: those that have
// begun, or of which a thread was on a processor, and those that have ended.
func moved(before, now map[int]still) (t proc.Table) {
	for pid, p := range now {
		was, known := before[pid]
		if !known || was.Started != p.Started || !maps.Equal(was.switches, p.switches) {
			t = append(t, p.Process)
		}
	}
	for pid, p := range before {
		if now[pid].Started != p.Started {
			t = append(t, p.Process)
		}
	}
	return t
}
