package conformance

import (
	"context"
	"time"
)

// Load is what the processes of a plugin come to: those that it started, with
// their descendants, and itself.
type Load struct {
	Processes int
	// Running says that a thread of theirs has something to do, whether or not it
	// has a processor.
	Running bool
}

// A plugin is looked at several times. It is at rest if it has nothing to do at
// most of them.
const (
	looks    = 10
	lookTime = 25 * time.Millisecond
)

// Calms fails the clause unless the plugin comes to rest within d, on a machine
// that is not busy: as many processes as before at most, and nothing to do. A
// call that is cancelled returns to the caller at once, whatever the plugin
// does, so its end does not show that the plugin has stopped. A nil load shows
// nothing: the plugin is in the process of the kit.
func (t *T) Calms(ctx context.Context, load func() Load, before Load, d time.Duration) {
	if load == nil {
		return
	}
	for deadline := time.Now().Add(Patience(d)); ; {
		var last Load
		busy := 0
		for range looks {
			select {
			case <-time.After(lookTime):
			case <-ctx.Done():
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
			t.Errorf("%v after nobody waits for it, the plugin still works: %d processes, %d before, and %d of %d times it had something to do",
				d, last.Processes, before.Processes, busy, looks)
			return
		}
	}
}
