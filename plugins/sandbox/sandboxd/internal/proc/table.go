// Package proc looks at the processes of a sandbox through /proc and netlink.
//
// Processes choose some of the bytes that are read here (names, arguments). So
// the parser must not rely on these bytes, and everything is cut to a limit.
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
)

// Process is one line of the process table.
type Process struct {
	PID, Parent, Session int
	State                byte // of all its threads, see stat
	Ending               bool // all its threads have ended or are in the kernel's exit: none runs code or starts a process again
	Threads              int  // including those that have ended and were not yet waited for
	Thread               int  // a living thread if there is one: the first, if it lives
	Comm                 []byte
	Started              uint64 // clock ticks since boot
}

// Zombie is true for a process that has ended with all its threads and was not
// yet waited for.
func (p Process) Zombie() bool { return p.State == 'Z' || p.State == 'X' }

// Dead is true for a Zombie, and for a process that is Ending: it may still have
// memory, files and ports, for a moment or longer.
func (p Process) Dead() bool { return p.Zombie() || p.Ending }

// Still is true for a process that is stopped, traced or dead: none of its
// threads runs, or will run until another process makes it.
func (p Process) Still() bool {
	return p.State == 'T' || p.State == 't' || p.Dead()
}

// Moving returns the first process that is not Still, or nil. A process in
// vfork waits for its child to exec or end and cannot be stopped in that wait.
// It counts as Still if one of its children is.
func (t Table) Moving() *Process {
	parents := map[int]bool{} // parents of stopped processes
	for _, p := range t {
		if p.Still() && !p.Dead() {
			parents[p.Parent] = true
		}
	}
	for i, p := range t {
		if !p.Still() && (p.State != 'D' || !parents[p.PID]) {
			return &t[i]
		}
	}
	return nil
}

// Table lists the processes of our pid namespace except ourselves, by pid.
type Table []Process

// List reads the table. It returns the whole table or an error. So a process
// cannot hide by using up the memory or descriptors that reading needs.
func List() (Table, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	self := strconv.Itoa(os.Getpid())
	buf := make([]byte, 1024)
	t := make(Table, 0, len(names))
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' || name == self {
			continue
		}
		p, err := stat(name, buf)
		switch {
		case err == nil:
			t = append(t, p)
		case !gone(err):
			return nil, fmt.Errorf("process %s: %w", name, err)
		}
	}
	slices.SortFunc(t, func(a, b Process) int { return a.PID - b.PID })
	return t, nil
}

// Stat reads one process. It returns false if the process is gone.
func Stat(pid int) (Process, bool) {
	p, err := stat(strconv.Itoa(pid), make([]byte, 1024))
	return p, err == nil
}

func stat(pid string, buf []byte) (Process, error) {
	b, err := readAll("/proc/"+pid+"/stat", buf)
	if err != nil {
		return Process{}, err
	}
	p, ok := parseStat(b)
	if !ok {
		return Process{}, fmt.Errorf("/proc/%s/stat is %q", pid, b)
	}
	switch {
	case !p.Still():
	case p.Threads > 1:
		p.State, p.Thread, p.Ending = together(p, buf)
	case p.Ending && !p.Zombie():
		// The kernel reads the number of threads before the flags, so a thread
		// may have begun in between. Of a thread that is ending none begins.
		if b, err = readAll("/proc/"+pid+"/stat", buf); err != nil {
			return Process{}, err
		}
		again, ok := parseStat(b)
		p.Ending = ok && again.Ending && again.Threads == 1
	}
	return p, nil
}

// together returns the state of a process whose first thread is stopped or has
// ended, one of its living threads, and whether all threads are ending. The stat line of a process shows the
// state of its first thread only. That thread may end, or be stopped by a
// tracer, while others run, and the process must then not count as dead or
// stopped. Threads can begin and end while they are read: unless all of them
// were seen, the process counts as running.
func together(p Process, buf []byte) (state byte, thread int, ending bool) {
	state, thread, ending = p.State, p.PID, p.Dead()
	if p.Dead() {
		state, thread = 'Z', 0
	}
	dying := state // of a thread that is ending and has not ended
	names, err := names(p.dir() + "/task")
	whole := err == nil && len(names) == p.Threads
	for _, name := range names {
		b, err := readAll(p.dir()+"/task/"+name+"/stat", buf)
		t, ok := parseStat(b)
		if err != nil || !ok {
			whole = false
			continue
		}
		whole = whole && t.Threads == p.Threads
		if t.Dead() {
			if !t.Zombie() {
				dying = t.State
			}
			continue
		}
		ending = false
		if thread == 0 {
			thread = t.PID
		}
		if rank(t.State) > rank(state) {
			state = t.State
		}
	}
	if !whole && rank(state) < rank('R') {
		state, ending = 'R', false
	}
	if ending {
		state = dying
	}
	if thread == 0 {
		thread = p.PID
	}
	return state, thread, ending
}

// rank orders states. The state of a process is the highest of its threads.
func rank(state byte) int {
	switch state {
	case 'Z', 'X':
		return 0
	case 't':
		return 1
	case 'T': // above traced, because SIGCONT resumes it
		return 2
	default:
		return 3
	}
}

// dir is the folder of a process in /proc.
func (p Process) dir() string { return "/proc/" + strconv.Itoa(p.PID) }

// names returns the entries of a folder.
func names(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// gone reports whether reading failed because the process has ended.
func gone(err error) bool { return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ESRCH) }

// readAll reads a small file of /proc without the overhead of os.File.
func readAll(path string, buf []byte) ([]byte, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd) //nolint:errcheck // it was only read
	n := 0
	for n < len(buf) {
		m, err := syscall.Read(fd, buf[n:])
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if m == 0 {
			break
		}
		n += m
	}
	return buf[:n], nil
}

// exiting is the flag PF_EXITING of a thread (linux/sched.h).
const exiting = 0x4

// parseStat reads a line of /proc/<pid>/stat. The kernel writes it, but the
// process chooses its name, which may contain anything, including parentheses
// and newlines. So fields are counted from the last parenthesis.
func parseStat(b []byte) (p Process, ok bool) {
	begin, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if begin < 1 || end < begin {
		return p, false
	}
	pid, ok := number(bytes.TrimSpace(b[:begin]))
	f := bytes.Fields(b[end+1:])
	if !ok || len(f) < 20 || len(f[0]) != 1 {
		return p, false
	}
	// Numbered as in proc_pid_stat(5), whose field 3, the state, is f[0].
	fields := [...]int{4, 6, 20, 22, 9}
	var v [len(fields)]uint64
	for i, n := range fields {
		if v[i], ok = number(bytes.TrimPrefix(f[n-3], []byte("-"))); !ok {
			return p, false
		}
	}
	return Process{
		PID: int(pid), State: f[0][0], Comm: bytes.Clone(b[begin+1 : end]), Parent: int(v[0]), Session: int(v[1]),
		Threads: int(v[2]), Thread: int(pid), Started: v[3], Ending: v[4]&exiting != 0,
	}, true
}

func number(b []byte) (uint64, bool) {
	n, err := strconv.ParseUint(string(b), 10, 63)
	return n, err == nil
}

// Index returns the processes by pid.
func (t Table) Index() map[int]*Process {
	m := make(map[int]*Process, len(t))
	for i := range t {
		m[t[i].PID] = &t[i]
	}
	return m
}

// Ancestors calls visit for p and each process above it, up to PID 1, until
// visit returns false. A table that was read while processes began and ended
// may contain a cycle, so the number of steps is limited.
func Ancestors(index map[int]*Process, p *Process, visit func(*Process) bool) {
	for steps := 0; p != nil && steps <= len(index); steps++ {
		if !visit(p) {
			return
		}
		p = index[p.Parent]
	}
}

// Generations sorts the table by distance from PID 1, nearest first.
func (t Table) Generations() [][]Process {
	index := t.Index()
	var g [][]Process
	for i := range t {
		depth := -1
		Ancestors(index, &t[i], func(*Process) bool { depth++; return depth < 256 })
		for len(g) <= depth {
			g = append(g, nil)
		}
		g[depth] = append(g[depth], t[i])
	}
	return g
}
