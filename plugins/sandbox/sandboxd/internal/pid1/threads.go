package pid1

import (
	"runtime"
	"sync"

	"github.com/berth-eval/berth/plugins/sandbox/become"
)

// The Go runtime ends the process when the kernel refuses it a thread, and a
// fork bomb makes the kernel refuse. Threads are never given back, so those we
// will ever need are made before the first command runs.
//
// How many is bounded from two sides. GOMAXPROCS limits those that run Go code:
// left alone it is the number of cores, so a reserve that holds on a laptop
// would not on a machine with 128. The slots limit those that sit in system
// calls; network and pipe I/O does not block a thread. The core has slots of
// its own, so that what a session hangs in (a file system of its making) cannot
// keep the core from ending it.
const (
	shellSlots   = 8
	controlSlots = 4
	reserve      = become.Procs + shellSlots + controlSlots + 4 // the Reaper, and the runtime's own: sysmon, template, signals
)

// unlimited is set by Without.Reserve.
var unlimited bool

var (
	shell   = make(chan struct{}, shellSlots)
	control = make(chan struct{}, controlSlots)
)

// Block is held around everything of a session that may sit in a system call
// for long: forks and file I/O. At most eight at once.
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

// reserveThreads makes threads by keeping that many goroutines locked to one
// each at the same time. They unlock before they end: a goroutine that ends
// locked takes its thread with it.
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
