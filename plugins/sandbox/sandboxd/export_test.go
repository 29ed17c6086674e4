package sandboxd

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

// LeaveOff leaves a protection off, so that a test can show the damage that it
// prevents.
func LeaveOff(names []string) {
	for _, n := range names {
		switch n {
		case "deafness":
			without.Deafness = true
		case "reserve":
			without.Reserve = true
		case "secrecy":
			without.Secrecy = true
		case "mixture":
			without.Mixture = true
		case "silence":
			go report()
		}
	}
}

// Self is a file of the sandbox with the goroutines, descriptors and threads of
// sandboxd, with LeaveOff("silence").
const Self = "/tmp/self"

func report() {
	for ; ; time.Sleep(20 * time.Millisecond) {
		files, _ := os.ReadDir("/proc/self/fd")
		threads, _ := os.ReadDir("/proc/self/task")
		text := fmt.Sprint(runtime.NumGoroutine(), len(files), len(threads), "\n")
		_ = os.WriteFile(Self+".new", []byte(text), 0o600)
		_ = os.Rename(Self+".new", Self)
	}
}

// FrozenAtItsEnd freezes and thaws a deadline whose time is over, and that has not
// been noticed: the machine is busy. It calls expired when the deadline is.
func FrozenAtItsEnd(expired func()) {
	d := newDeadline(time.Hour, expired)
	d.end = time.Now()
	d.freeze()
	d.thaw()
}
