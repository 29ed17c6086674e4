package pid1

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/fault"
)

// Own are the settings of PID 1 that another process could change: one with
// equal ids, or one with capabilities that no command has. They are resource
// limits, and the scheduling policy and processors of each thread. Commands
// inherit them.
type Own struct {
	limits   [len(limitNames)]unix.Rlimit
	policy   int
	affinity unix.CPUSet
}

// limitNames are the names of the resource limits, by number.
var limitNames = [...]string{
	"CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC", "NOFILE", "MEMLOCK", "AS", "LOCKS", "SIGPENDING", "MSGQUEUE", "NICE", "RTPRIO", "RTTIME",
}

// readOwn reads the current settings of PID 1.
func readOwn() (o *Own, err error) {
	o = &Own{}
	for i := range o.limits {
		if err = unix.Prlimit(0, i, nil, &o.limits[i]); err != nil {
			return nil, err
		}
	}
	if o.policy, err = policy(0); err != nil {
		return nil, err
	}
	return o, unix.SchedGetaffinity(0, &o.affinity)
}

// Changed is an error that wraps fault.ErrTampered and says which settings are
// no longer as they were at the start. Nothing can be set back: that would take
// capabilities which sandboxd does not have. A nil Own never reports a change.
func (o *Own) Changed() error {
	if o == nil {
		return nil
	}
	// Check the limits first: with too few descriptors everything else would
	// fail.
	for i, was := range o.limits {
		var now unix.Rlimit
		if err := unix.Prlimit(0, i, nil, &now); err != nil {
			return fmt.Errorf("read limit %s of PID 1: %w", limitNames[i], err)
		}
		if now != was {
			return fmt.Errorf("%w: limit %s is %s, and was %s at its start", fault.ErrTampered, limitNames[i], limit(now), limit(was))
		}
	}
	dir, err := os.Open("/proc/self/task")
	if err != nil {
		return fmt.Errorf("list the threads of PID 1: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("list the threads of PID 1: %w", err)
	}
	for _, name := range names {
		thread, err := strconv.Atoi(name)
		if err == nil {
			err = o.changed(thread)
		}
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// changed checks one thread.
func (o *Own) changed(thread int) error {
	now, err := policy(thread)
	if err != nil {
		return err
	}
	if now != o.policy {
		return fmt.Errorf("%w: the scheduling policy of its thread %d is %d, and was %d at its start", fault.ErrTampered, thread, now, o.policy)
	}
	var cpus, again unix.CPUSet
	if err = unix.SchedGetaffinity(thread, &cpus); err != nil || cpus == o.affinity {
		return err
	}
	// The owner of the machine may have given the sandbox other processors
	// through its control group. Then asking for those of the start adds none.
	if unix.SchedSetaffinity(thread, &o.affinity) != nil {
		return nil //nolint:nilerr // none of them is available any more
	}
	if err = unix.SchedGetaffinity(thread, &again); err != nil {
		return err
	}
	for i := range again {
		if again[i]&^cpus[i] != 0 {
			return fmt.Errorf("%w: its thread %d was kept to %d of %d processors", fault.ErrTampered, thread, cpus.Count(), again.Count())
		}
	}
	return nil
}

// policy is the scheduling policy of a thread, with its flags.
func policy(thread int) (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, uintptr(thread), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func limit(l unix.Rlimit) string { return number(l.Cur) + ":" + number(l.Max) }

func number(n uint64) string {
	if n == unix.RLIM_INFINITY {
		return "unlimited"
	}
	return strconv.FormatUint(n, 10)
}
