package sandboxd

import (
	"maps"
	"time"

	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/proc"
)

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
