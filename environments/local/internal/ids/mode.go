// Package ids decides which user ids a sandbox gets: a private range of the
// host's ids, the user's subordinate ids, or only the user's own id.
//
// It must not know what a sandbox consists of, and it never maps the host's
// user 0 into one: root of such a sandbox could write the host's settings.
package ids

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Mode is how a sandbox gets its user ids. It depends on the user who runs us
// which modes are possible.
type Mode int

// The modes. The zero value is not valid.
const (
	OneID    Mode = iota + 1 // an ordinary user: root inside is that user, and there are no other users
	Held                     // an ordinary user with subordinate ids, which this process has since Enter
	RealRoot                 // the host's root: a private range of ids for each sandbox
)

// String returns the mode for people to read.
func (m Mode) String() string {
	switch m {
	case OneID:
		return "one user id"
	case Held:
		return "the user's subordinate ids"
	case RealRoot:
		return "its own range of ids"
	default:
		return "no mode"
	}
}

// Many reports whether a sandbox has users other than root.
func (m Mode) Many() bool { return m == Held || m == RealRoot }

// Count is how many ids a sandbox has in the modes other than OneID.
const Count = 65536

// self is the id of the user in the namespace of a process that has the ranges.
// It is above the ids that the process gives to sandboxes, so that no map
// begins with 0 0.
const self = Count

// Process describes what this process can do.
type Process struct {
	Mode Mode
	// UID and GID belong to the user who started us, on the host. In mode Held
	// they differ from os.Getuid.
	UID, GID int
	// Nested says that we are in another user namespace, in which id 0 is not
	// the host's.
	Nested bool
	// Why says in one sentence why the mode is not a better one. It is empty if
	// the mode is the best for this user.
	Why string

	slots func() (*slots, error) // in mode RealRoot; opens them once
}

// Maps are the ids of one sandbox, and how to write them.
type Maps struct {
	UID, GID  []syscall.SysProcIDMap
	Setgroups bool                // setgroups is allowed, so that programs can change groups
	Become    *syscall.Credential // the user that the first process becomes before it executes; nil: it is that user already
	Release   func()              // returns the range; call it once the sandbox has ended
}

// Maps returns the ids of a new sandbox. Fails with ErrNoRange when all
// ranges are in use.
func (p *Process) Maps() (Maps, error) {
	one := func(host, n int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: 0, HostID: host, Size: n}}
	}
	m := Maps{Release: func() {}}
	switch p.Mode {
	case OneID:
		m.UID, m.GID = one(os.Geteuid(), 1), one(os.Getegid(), 1)
	case Held:
		// Two lines, because our own map has two: the kernel refuses (EPERM) a
		// line that is not within one line of the parent's map.
		two := []syscall.SysProcIDMap{{ContainerID: 0, HostID: self, Size: 1}, {ContainerID: 1, HostID: 1, Size: Count - 1}}
		m.UID, m.GID, m.Setgroups = two, two, true
	case RealRoot:
		all, err := p.slots()
		if err != nil {
			return m, err
		}
		base, release, err := all.take()
		if err != nil {
			return m, err
		}
		m.UID, m.GID, m.Setgroups, m.Release = one(base, Count), one(base, Count), true, release
		// Without this the first process would stay the host's user 0, which
		// has no id in its own namespace.
		m.Become = &syscall.Credential{Uid: 0, Gid: 0}
	default:
		return m, fmt.Errorf("id mode %d: not known", p.Mode)
	}
	return m, nil
}

// errMixed is returned if user 0 is the host's root, or may be, but does not
// have all of its rights.
var errMixed = errors.New("user 0 here is user 0 of the namespace around it, which may be the host's root, and other ids are missing: " +
	"run as an ordinary user, or as root outside of this container or namespace")

// where reports whether we are in the host's user namespace. It refuses another
// namespace in which the host's user 0 may be mapped.
func where() (initial bool, err error) {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false, fmt.Errorf("find out about user ids: %w", err)
	}
	return judgeMap(string(text))
}

// judgeMap does the work of where for the text of a uid_map.
func judgeMap(text string) (initial bool, err error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 {
			return false, fmt.Errorf("find out about user ids: uid_map has the line %q", line)
		}
		if n, err := strconv.ParseUint(f[2], 10, 64); err == nil && n == 1<<32-1 && f[0] == "0" && f[1] == "0" {
			return true, nil
		}
		if f[1] == "0" {
			return false, errMixed
		}
	}
	return false, nil
}
