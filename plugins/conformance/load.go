package conformance

import "time"

// Load describes the processes of a plugin: itself and those that it started,
// with their descendants.
type Load struct {
	Processes int
	// Running means that one of their threads is runnable, whether or not it
	// has a processor.
	Running bool
}

// A plugin is checked several times. It is at rest if it has nothing to do in
// most of the checks.
const (
	looks    = 10
	lookTime = 25 * time.Millisecond
)

// Calms calls do and fails the clause unless the plugin comes to rest within d
// after it on an idle machine: it has at most as many processes as before, and
// nothing to do. A cancelled call returns to the caller at once, whatever the
// plugin does, so its return does not show that the plugin has stopped. If load
// is nil, the plugin runs in the process of the kit, and its rest is not seen.
func (t *T) Calms(load func() Load, d time.Duration, do func()) {
	if load == nil {
		do()
		return
	}
	before := load()
	do()
	for deadline := time.Now().Add(Patience(d)); ; {
		var last Load
		busy := 0
		for range looks {
			select {
			case <-time.After(lookTime):
			case <-t.ctx.Done():
				return
			}
			if last = load(); last.Running || last.Processes > before.Processes {
				busy++
			}
		}
		if busy < looks/2 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%v after its caller has given up, the plugin still works: %d processes, %d before, and %d of %d times it had something to do",
				d, last.Processes, before.Processes, busy, looks)
			return
		}
	}
}
