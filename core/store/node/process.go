// Package node manages the places of running processes on the local disk of
// this machine: the folders for their sockets, locks and control folders. It
// knows who owns a place, and which places were left by dead processes. It also
// identifies processes, so that another process, perhaps on another machine,
// can name one and check whether it still lives.
//
// It must not know what a run folder contains, and must not touch anything
// outside its own folder.
package node

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/berth-eval/berth/plugins/runtimedir"
)

// Process identifies a process, so that others can name it and check whether it
// lives.
type Process struct {
	Host string `json:"host"`
	PID  int    `json:"pid"`
	// Start is the start time of the process, in clock ticks after the boot: a
	// PID may be reused, but the pair is unique. 0: not known.
	Start uint64 `json:"start,omitempty"`
	// Boot and Namespace identify the boot of the machine and the PID namespace
	// in which PID is valid.
	Boot      string `json:"boot,omitempty"`
	Namespace string `json:"pid_namespace,omitempty"`
}

// Self returns this process.
func Self() Process {
	p := Process{PID: os.Getpid()}
	p.Host, _ = os.Hostname() //nolint:errcheck // an unknown host stays unnamed
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		p.Boot = strings.TrimSpace(string(b))
	}
	if ns, err := os.Readlink("/proc/self/ns/pid"); err == nil {
		p.Namespace = ns
	}
	p.Start, _ = started(p.PID) //nolint:errcheck // 0 is: not known
	return p
}

// String names the process for people.
func (p Process) String() string { return fmt.Sprintf("pid %d on %s", p.PID, p.Host) }

// State is what is known about a process.
type State int

// The states.
const (
	Unknown State = iota // on another machine, or in another container
	Alive
	Dead
)

// State returns whether p lives, as far as this process can see.
func (p Process) State() State {
	self := Self()
	switch {
	case p.Host != self.Host && p.Boot != self.Boot:
		return Unknown
	case p.Host == self.Host && p.Boot != self.Boot:
		return Dead // this machine was rebooted since then
	case p.Namespace != self.Namespace:
		return Unknown
	}
	if err := syscall.Kill(p.PID, 0); errors.Is(err, syscall.ESRCH) {
		return Dead
	}
	now, err := started(p.PID)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return Dead
	case err == nil && p.Start != 0 && now != p.Start:
		return Dead // the PID belongs to another process now
	default:
		return Alive
	}
}

// started reads the start time of a process: field 22 of /proc/PID/stat,
// counted after the name, which is in parentheses and may contain anything.
func started(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), "(")
	fields := strings.Fields(rest[strings.LastIndexByte(rest, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat is %q", pid, b)
	}
	if fields[0] == "Z" { // a zombie
		return 0, os.ErrNotExist
	}
	var start uint64
	_, err = fmt.Sscan(fields[19], &start)
	return start, err
}

// EnvDir is the variable that overrides the runtime folder.
const EnvDir = runtimedir.Env

// Dir returns the folder for files that must not lie on a shared file system:
// see [runtimedir.Finder.Dir].
func Dir() (string, error) { return runtimedir.Dir() }

// disk returns a folder of this user on a local disk for files that are too
// large for memory; empty when dir is on a disk itself, or there is no such
// folder.
func disk(dir string) string {
	if !runtimedir.InMemory(dir) {
		return ""
	}
	return runtimedir.Disk()
}
