package sandboxd

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/internal/wire"
	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/pid1"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/proc"
)

// Settle ends an agent and reports what it left.
func (c *control) Settle(_ context.Context, q *pb.SettleRequest) (*pb.SettleReply, error) {
	bundles := wire.Strings(q.GetBundles())
	for _, b := range bundles {
		if !strings.HasPrefix(b, "/") || path.Clean(b) != b || b == "/" {
			return nil, fmt.Errorf("%w: bundle %q is not absolute and clean", fault.ErrInvalid, b)
		}
	}
	if err := c.d.untouched(); err != nil {
		return nil, err
	}
	t, err := table()
	if err != nil {
		return nil, err
	}
	before, _ := c.d.describe(t, true)
	s := settling{d: c.d, seen: map[int64]*pb.Process{}, reply: &pb.SettleReply{}}
	for _, p := range before {
		s.seen[p.GetPid()] = p
	}
	executions, terminals := c.d.running(q.GetSessions())
	if err = s.kill(executions); err != nil {
		return nil, err
	}
	if len(bundles) > 0 {
		killed, failed := c.d.killBundles(bundles)
		if failed != nil {
			return nil, failed
		}
		s.reply.Killed = add(s.reply.Killed, killed...)
	}
	// Processes of a terminal may just have died, so read the table again.
	if t, err = table(); err != nil {
		return nil, err
	}
	var idle []*command
	for _, one := range terminals {
		if one.over() || !busy(t, one.process.PID) {
			idle = append(idle, one)
			continue
		}
		_ = c.d.reap.Signal(one.process, syscall.SIGSTOP, false)
		if err = stopped(one); err != nil {
			return nil, err
		}
		s.reply.Stopped = add(s.reply.Stopped, s.seen[int64(one.process.PID)])
	}
	if err = s.kill(idle); err != nil {
		return nil, err
	}
	if err = ended(restTime); err != nil {
		return nil, err
	}
	return s.reply, c.d.atRest(func(t proc.Table) error {
		s.reply.Left, s.reply.Unattributed = c.d.describe(t, true)
		return nil
	})
}

// settling is the state of one call of Settle.
type settling struct {
	d     *daemon
	seen  map[int64]*pb.Process // as they were at the beginning, by pid
	reply *pb.SettleReply
}

// kill kills the first process of each command and waits until it has ended.
func (s *settling) kill(commands []*command) error {
	for _, one := range commands {
		if one.over() {
			continue
		}
		one.killed.Store(true)
		_ = s.d.reap.Signal(one.process, syscall.SIGKILL, false)
		s.reply.Killed = add(s.reply.Killed, s.seen[int64(one.process.PID)])
	}
	for _, one := range commands {
		select {
		case <-one.process.Ended:
		case <-time.After(killTime):
			return fmt.Errorf("%w: process %d does not die", fault.ErrTimeout, one.process.PID)
		}
	}
	return nil
}

// add adds processes to a list, each one once. nil is one that began after the table
// was read.
func add(list []*pb.Process, more ...*pb.Process) []*pb.Process {
	for _, p := range more {
		if p != nil && !slices.ContainsFunc(list, func(q *pb.Process) bool { return q.GetPid() == p.GetPid() && q.GetStarted() == p.GetStarted() }) {
			list = append(list, p)
		}
	}
	return list
}

// running lists the running commands and terminals of some sessions, or of all.
func (d *daemon) running(sessions []string) (executions, terminals []*command) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.commands {
		if c.session == nil || c.over() || len(sessions) > 0 && !slices.Contains(sessions, c.session.id) {
			continue
		}
		if c.terminal != nil {
			terminals = append(terminals, c)
		} else {
			executions = append(executions, c)
		}
	}
	return executions, terminals
}

// ended waits until the processes that are ending now have ended, and what they
// held, such as ports, is free. It does not wait for others that end meanwhile,
// nor longer than within: a process can be kept from ending.
func ended(within time.Duration) error {
	var ending map[int]uint64 // start time by pid; nil: not looked at yet
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		t, err := table()
		if err != nil {
			return err
		}
		still := map[int]uint64{}
		for _, p := range t {
			if p.Ending && !p.Zombie() && (ending == nil || ending[p.PID] == p.Started) {
				still[p.PID] = p.Started
			}
		}
		if len(still) == 0 || time.Since(begin) > within {
			return nil
		}
		ending = still
	}
}

// stopped waits until a command's first process has stopped or ended.
func stopped(c *command) error {
	for begin := time.Now(); time.Since(begin) < killTime; time.Sleep(100 * time.Microsecond) {
		if p, ok := proc.Stat(c.process.PID); !ok || p.Still() {
			return nil
		}
	}
	return fmt.Errorf("%w: process %d does not stop", fault.ErrTimeout, c.process.PID)
}

// busy reports whether a process runs under a terminal's shell: a child, or a
// member of its kernel session.
func busy(t proc.Table, shell int) bool {
	return slices.ContainsFunc(t, func(p proc.Process) bool {
		return p.PID != shell && !p.Dead() && (p.Parent == shell || p.Session == shell)
	})
}

// respawns is how often a process may start a bundle's program again before it
// counts as part of the bundle. quiet is how long no process may have to be
// killed until killBundles is sure that none comes back. It waits for longer, up
// to reaction, while a parent of a killed process is about to run: on a busy
// machine it may not have got a processor yet.
const (
	respawns = 3
	quiet    = 50 * time.Millisecond
	reaction = 500 * time.Millisecond
)

// killBundles kills every process that runs a file of the agent's bundles, and
// also any process that starts such a file again each time it dies.
func (d *daemon) killBundles(bundles []string) (killed []*pb.Process, err error) {
	started := map[int]int{} // how many killed processes each parent had started
	counted := map[int]uint64{}
	which := func(t proc.Table) proc.Table {
		defer pid1.BlockControl()()
		of := d.attribution(t)
		return keep(t, func(p *proc.Process) bool {
			if of(p).service != "" {
				return false
			}
			if !proc.Look(*p, false).Runs(bundles) {
				return started[p.PID] > respawns
			}
			if p.Parent > 1 && counted[p.PID] != p.Started {
				counted[p.PID] = p.Started
				started[p.Parent]++
			}
			return true
		})
	}
	var last time.Time // when a process was last killed
	for {
		t, err := table()
		var more []*pb.Process
		if err == nil && len(which(t)) > 0 { // else there is no need to stop all processes
			more, err = d.killAll(which)
		}
		killed = append(killed, more...)
		if len(more) > 0 {
			last = time.Now()
		}
		if since := time.Since(last); err != nil || since > quiet && (since > reaction || !reacting(t, started)) {
			return killed, err
		}
		time.Sleep(quiet / 10)
	}
}

// reacting reports whether one of some processes (keys of parents, by pid), or a
// child of one, has something to run.
func reacting(t proc.Table, parents map[int]int) bool {
	return slices.ContainsFunc(t, func(p proc.Process) bool {
		_, itself := parents[p.PID]
		_, child := parents[p.Parent]
		return (itself || child) && (p.State == 'R' || p.State == 'D') && !p.Dead()
	})
}

// Sweep kills the processes that were not there before.
func (c *control) Sweep(_ context.Context, q *pb.SweepRequest) (*pb.SweepReply, error) {
	known := make(map[int64]uint64, len(q.GetKnown()))
	for _, k := range q.GetKnown() {
		known[k.GetPid()] = k.GetStarted()
	}
	killed, err := c.d.sweep(known)
	if err != nil {
		return nil, err
	}
	return &pb.SweepReply{Killed: killed}, nil
}

// sweep kills each process that is not in known (start time by pid), does not
// descend from one in known, and is not a service.
func (d *daemon) sweep(known map[int64]uint64) ([]*pb.Process, error) {
	return d.killAll(func(t proc.Table) proc.Table {
		of, index := d.attribution(t), t.Index()
		return keep(t, func(p *proc.Process) bool {
			spared := of(p).service != ""
			proc.Ancestors(index, p, func(q *proc.Process) bool {
				began, old := known[int64(q.PID)]
				spared = spared || old && began == q.Started
				return !spared
			})
			return !spared
		})
	})
}

func keep(t proc.Table, which func(*proc.Process) bool) (out proc.Table) {
	for i := range t {
		if !t[i].Zombie() && which(&t[i]) {
			out = append(out, t[i])
		}
	}
	return out
}

// killAll kills the processes that which picks, repeatedly until it picks none,
// and returns them. All processes are stopped during this, so that none is
// missed and none that is picked can start another.
func (d *daemon) killAll(which func(proc.Table) proc.Table) (killed []*pb.Process, err error) {
	seen := map[int]uint64{}
	err = d.atRest(func(t proc.Table) error {
		for begin := time.Now(); ; {
			picked := which(t)
			if len(picked) == 0 {
				return nil
			}
			if time.Since(begin) > killTime {
				return fmt.Errorf("%w: process %d (%q) does not die", fault.ErrTimeout, picked[0].PID, picked[0].Comm)
			}
			fresh := keep(picked, func(p *proc.Process) bool { return seen[p.PID] != p.Started })
			if len(killed) < maxKilled {
				list, _ := d.describe(fresh[:min(len(fresh), maxKilled-len(killed))], true)
				killed = append(killed, list...)
			}
			pids := map[int]bool{}
			for _, p := range picked {
				pids[p.PID], seen[p.PID] = true, p.Started
			}
			d.noteKilled(func(c *command) bool { return pids[c.process.PID] })
			for pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			time.Sleep(200 * time.Microsecond)
			if t, err = table(); err != nil {
				return err
			}
		}
	})
	return killed, err
}
