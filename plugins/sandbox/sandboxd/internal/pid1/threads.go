package pid1

import (
	"runtime"
	"sync"

	"github.com/berth-eval/berth/plugins/sandbox/become"
)

// The Go runtime ends the process when the kernel refuses to create a thread,
// which happens during a fork bomb. The runtime keeps idle threads, so all the
// threads that we will ever need are created before the first command runs.
//
// Two limits bound their number. GOMAXPROCS limits the threads that run Go
// code: by default it is the number of cores, so a reserve that suffices on a
// laptop would not suffice on a machine with 128. The slots limit the threads
// that are in system calls; network and pipe I/O does not block a thread. The
// core has its own slots, so that a session's blocked calls (for example on a
// file system of its own making) cannot keep the core from ending it.
const (
	shellSlots   = 8
	controlSlots = 4
	reserve      = become.Procs + shellSlots + controlSlots + 5 // the Reaper, that of guarded programs, and the runtime's own: sysmon, template, signals
)

// unlimited is set by Without.Reserve.
var unlimited bool

var (
	shell   = make(chan struct{}, shellSlots)
	control = make(chan struct{}, controlSlots)
)

// Block takes a slot for work of a session that may stay in a system call for
// long: forks and file I/O. At most eight run at once.
func Block() (release func()) { return hold(shell) }

// BlockControl is Block for calls of the core.
func BlockControl() (release func()) { return hold(control) }

func hold(slots chan struct{}) func() {
	if unlimited {
		return func() {}
	}
	slots <- struct{}{}
	return sync.OnceFunc(func() { <-slots })
}

// reserveThreads makes threads by locking that many goroutines to one thread
// each at the same time. They unlock before they end, because a thread ends
// with a goroutine that is still locked to it.
func reserveThreads() {
	var ready, done sync.WaitGroup
	gate := make(chan struct{})
	for range reserve {
		ready.Add(1)
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready.Done()
			<-gate
		})
	}
	ready.Wait()
	close(gate)
	done.Wait()
}
