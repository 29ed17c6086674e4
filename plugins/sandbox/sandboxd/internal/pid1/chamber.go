package pid1

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/sandbox/become"
)

// Chamber is a thread in a mount namespace of its own, whose commands hold
// become.TestCap. A process of the sandbox's namespace cannot enter it: it would
// have to trace one of its processes, or to read their links in /proc, and lacks
// that capability.
type Chamber struct {
	work chan func()
	home *os.File // the namespace of the sandbox
}

// NewChamber makes one, which stays until this process ends. It is still in the
// sandbox's namespace. It must be made before the first command is started: a
// thread that has started one has given up the capability for good.
func NewChamber(w Without) (*Chamber, error) {
	c := &Chamber{work: make(chan func())}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread cannot be used for anything else
		err := enterChamber(w)
		failed <- err
		if err != nil {
			return // which ends the thread
		}
		for do := range c.work {
			do()
		}
	}()
	return c, <-failed
}

func enterChamber(w Without) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare the working folder: %w", err)
	}
	if w.Holding {
		return become.DropInheritable()
	}
	return become.PassTestCap()
}

// Renew gives the thread a new namespace, a copy of the sandbox's, in which build
// changes the mounts.
func (c *Chamber) Renew(build func() error) (err error) {
	c.Do(func() {
		if err = c.leave(); err != nil {
			return
		}
		if err = unix.Unshare(unix.CLONE_NEWNS); err != nil {
			err = fmt.Errorf("make a mount namespace: %w", err)
			return
		}
		if err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			err = fmt.Errorf("make its mounts private: %w", err)
			return
		}
		err = build()
	})
	return err
}

// Leave brings the thread back into the sandbox's namespace. The other one, and
// what is mounted in it alone, goes away with its last process.
func (c *Chamber) Leave() (err error) {
	c.Do(func() { err = c.leave() })
	return err
}

func (c *Chamber) leave() (err error) {
	if c.home == nil { // it has not left the sandbox's yet
		if c.home, err = os.Open("/proc/thread-self/ns/mnt"); err != nil {
			return err
		}
	}
	if err := unix.Setns(int(c.home.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("go back to the sandbox's mount namespace: %w", err)
	}
	return nil
}

// Do runs f on the thread and waits for its end. f must not call Do.
func (c *Chamber) Do(f func()) {
	done := make(chan struct{})
	c.work <- func() {
		defer close(done)
		f()
	}
	<-done
}
