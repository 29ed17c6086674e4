// Package ids decides which user ids a sandbox gets: a private range of the
// host's, the user's subordinate ones, or the user's own alone.
//
// It must not know what a sandbox is made of, and it never maps the host's
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

// Mode is how a sandbox gets its user ids. Which one is possible depends on
// who we are.
type Mode int

// The modes. The zero value is not valid.
const (
	OneID    Mode = iota + 1 // an ordinary user: root inside is that user, and there is nobody else
	Held                     // an ordinary user with subordinate ids, which this process holds since Enter
	RealRoot                 // the host's root: a private range of ids for each sandbox
)

// String is the mode as a person reads it.
func (m Mode) String() string {
	switch m {
	case OneID:
		return "one user id"
	case Held:
		return "the user's subordinate ids"
	case RealRoot:
		return "a range of ids of its own"
	default:
		return "no mode"
	}
}

// Many says whether a sandbox has users beside root.
func (m Mode) Many() bool { return m == Held || m == RealRoot }

// Count is how many ids a sandbox has in the modes above OneID.
const Count = 65536

// self is the id under which a process that holds the ranges sees its user:
// above those that it gives to sandboxes, so that no map begins with 0 0.
const self = Count

// Process is what this process can do.
type Process struct {
	Mode Mode
	// UID and GID are of the user who started us, as the host knows them. In
	// mode Held they are not what os.Getuid says.
	UID, GID int
	// Nested says that we are in a user namespace of somebody's, in which id 0
	// is not the host's.
	Nested bool
	// Why says in one sentence why the mode is not a better one; empty if it is
	// the best for this user.
	Why string

	outside *outside               // in mode Held: the process that waits in the host's namespace
	slots   func() (*slots, error) // in mode RealRoot; opens them once
}

// Maps are the ids of one sandbox, and how to write them.
type Maps struct {
	UID, GID  []syscall.SysProcIDMap
	Setgroups bool                // allowed, so that programs can change groups
	Become    *syscall.Credential // what the first process changes to before it executes; nil: it is that already
	Release   func()              // gives the range back; call it once the sandbox has ended
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
		// Two lines, since our own map has two: the kernel refuses (EPERM) a
		// line that does not lie within one of its parent's.
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
		// Without this the first process stays the host's user 0, with no name
		// for it in its own namespace.
		m.Become = &syscall.Credential{Uid: 0, Gid: 0}
	default:
		return m, fmt.Errorf("id mode %d: not known", p.Mode)
	}
	return m, nil
}

// errMixed is about a place where 0 is root of the host, or may be, but the
// host's root has not all of its rights.
var errMixed = errors.New("user 0 here is user 0 of the namespace around it, which may be the host's root, and other ids are missing: " +
	"run as an ordinary user, or as root outside of this container or namespace")

// where says whether we are in the host's user namespace, and refuses one in
// which the host's user 0 may be mapped.
func where() (initial bool, err error) {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false, fmt.Errorf("find out about user ids: %w", err)
	}
	return judgeMap(string(text))
}

// judgeMap is where for the text of a uid_map.
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
