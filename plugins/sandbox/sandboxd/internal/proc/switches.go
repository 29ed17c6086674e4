package proc

import (
	"bytes"
	"fmt"
)

// Switches returns how often each living thread of a process was taken off a
// processor, by its number. The kernel counts that, and no process can set it back: of
// a thread that is stopped it stays the same. A process that is gone has none.
func (p Process) Switches() (map[int]uint64, error) {
	all, err := names(p.dir() + "/task")
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", p.PID, err)
	}
	count, buf := map[int]uint64{}, make([]byte, 4096)
	for _, name := range all {
		status, err := readAll(p.dir()+"/task/"+name+"/status", buf)
		if gone(err) {
			continue
		}
		n, ok := switches(status)
		tid, isNumber := number([]byte(name))
		if err != nil || !ok || !isNumber {
			return nil, fmt.Errorf("thread %s of process %d: %w", name, p.PID, err)
		}
		count[int(tid)] = n
	}
	return count, nil
}

// switches adds the two numbers at the end of a status file. A process cannot put a
// line into it, since the kernel escapes its name.
func switches(status []byte) (n uint64, ok bool) {
	for _, key := range []string{"\nvoluntary_ctxt_switches:", "\nnonvoluntary_ctxt_switches:"} {
		_, line, found := bytes.Cut(status, []byte(key))
		line, _, _ = bytes.Cut(line, []byte("\n"))
		one, isNumber := number(bytes.TrimSpace(line))
		if !found || !isNumber {
			return 0, false
		}
		n += one
	}
	return n, true
}
