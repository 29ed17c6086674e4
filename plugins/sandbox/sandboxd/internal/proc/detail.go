package proc

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/sandbox/become"
)

// Detail is what is known of a process in addition to its line in the table.
type Detail struct {
	UID         uint32   // effective
	CommandLine []byte   // zero bytes between arguments; at most 4096 bytes
	Executable  string   // empty if it cannot be read
	Folder      string   // its working folder; empty if it cannot be read
	Inodes      []uint64 // of its sockets, if asked for
}

const (
	maxCommandLine = 4096
	maxDescriptors = 4096 // the largest number looked at per process
)

// Look reads the details of a process, and with sockets also those of its
// sockets. It must not run on a goroutine that is locked to a thread.
//
// A process's executable and descriptors can be read only by a process that may
// trace it: one with SYS_PTRACE, which nothing in the sandbox has, or one with
// equal ids and no fewer capabilities. The ids that count are those for file
// access. A thread of ours may set these (SETUID, SETGID) without letting that
// user trace it, because the check for that user uses our real ids. So a thread
// takes the ids of the process while it looks. A process that has mixed ids, is
// not dumpable, or is in its own user namespace stays unread.
//
// It looks at a living thread, because the first thread loses all of this
// information when it ends, while the others keep it.
func Look(p Process, sockets bool) (d Detail) {
	dir := p.dir() + "/task/" + strconv.Itoa(p.Thread)
	buf := make([]byte, maxCommandLine)
	ids, ok := identity(dir, buf)
	d.UID = ids.uid
	if b, err := readAll(dir+"/cmdline", buf); err == nil {
		d.CommandLine = bytes.Clone(b)
	}
	if !ok {
		return d
	}
	as(ids, func() {
		d.Executable, _ = os.Readlink(dir + "/exe")
		d.Folder, _ = os.Readlink(dir + "/cwd")
		if sockets {
			d.Inodes = socketInodes(dir + "/fd")
		}
	})
	return d
}

// ids are the ids that a process has for all purposes.
type ids struct{ uid, gid uint32 }

// identity reads the effective ids of a process. same is false if its other ids
// differ.
func identity(dir string, buf []byte) (id ids, same bool) {
	b, err := readAll(dir+"/status", buf)
	if err != nil {
		return id, false
	}
	u, okU := four(b, "\nUid:")
	g, okG := four(b, "\nGid:")
	if !okU || !okG {
		return id, false
	}
	id = ids{u[1], g[1]}
	return id, u[0] == u[1] && u[1] == u[2] && g[0] == g[1] && g[1] == g[2]
}

// four reads the four numbers of a line of /proc/<pid>/status. The name of the
// process comes before these lines, and the kernel escapes newlines in it.
func four(status []byte, key string) (v [4]uint32, ok bool) {
	f := bytes.Fields(lineOf(status, key))
	if len(f) != len(v) {
		return v, false
	}
	for i := range v {
		n, ok := number(f[i])
		if !ok {
			return v, false
		}
		v[i] = uint32(n)
	}
	return v, true
}

// lineOf returns what follows a key on its line; nil: there is none.
func lineOf(status []byte, key string) []byte {
	_, line, _ := bytes.Cut(status, []byte(key))
	line, _, _ = bytes.Cut(line, []byte("\n"))
	return line
}

// as runs f on a thread whose ids for file access are set to id.
func as(id ids, f func()) {
	if os.Getuid() == int(id.uid) && os.Getgid() == int(id.gid) {
		f()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer func() {
		_ = unix.Setfsuid(os.Getuid())
		_ = unix.Setfsgid(os.Getgid())
		// Leaving id 0 drops the thread's capabilities for file access.
		_ = become.DropInheritable()
		// The kernel has set it to fs.suid_dumpable, which an administrator may
		// have changed from 0.
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	}()
	_ = unix.Setfsgid(int(id.gid))
	_ = unix.Setfsuid(int(id.uid))
	f()
}

// socketInodes reads which sockets a process has open.
func socketInodes(dir string) (inodes []uint64) {
	fd, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer fd.Close()
	names, _ := fd.Readdirnames(maxDescriptors)
	buf := make([]byte, 64)
	for _, n := range names {
		m, err := syscall.Readlink(dir+"/"+n, buf)
		if err != nil {
			continue
		}
		text, ok := strings.CutPrefix(string(buf[:m]), "socket:[")
		if !ok {
			continue
		}
		if inode, ok := number([]byte(strings.TrimSuffix(text, "]"))); ok {
			inodes = append(inodes, inode)
		}
	}
	return inodes
}

// Runs reports whether a process runs a file below one of the folders, which
// are clean and absolute paths. It looks at the executable and, for scripts, at
// the first argument or the first one after an interpreter. A process can forge
// its arguments, but can only make Runs true in this way.
func (d Detail) Runs(folders []string) bool {
	names := []string{strings.TrimSuffix(d.Executable, " (deleted)")}
	for i, a := range bytes.SplitN(d.CommandLine, []byte{0}, 4) {
		if i > 2 {
			break
		}
		names = append(names, string(a))
	}
	for _, f := range folders {
		for _, n := range names {
			if strings.HasPrefix(n, strings.TrimSuffix(f, "/")+"/") {
				return true
			}
		}
	}
	return false
}

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
		one, isNumber := number(bytes.TrimSpace(lineOf(status, key)))
		if !isNumber {
			return 0, false
		}
		n += one
	}
	return n, true
}
