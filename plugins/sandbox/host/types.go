package host

import (
	"strings"

	"github.com/berth-eval/berth/plugins/sandbox"
)

// Hello is what sandboxd reports about itself and its sandbox.
type Hello struct {
	// BoundingCapabilities is a mask of 1<<CAP_X: the most that a command can
	// have.
	BoundingCapabilities uint64
	// Findings are protections that are not available here, for people.
	Findings []string
}

// Session is one agent or verifier in the sandbox, with the defaults of its
// commands.
type Session struct {
	ID   string   // chosen by the caller; not empty
	User string   // as in sandbox.Command; empty: 0
	Dir  string   // absolute; empty: /
	Env  []string // K=V
	// Grading is set for the core's own and a verifier's: sandbox.Client.Read and
	// sandbox.Command.Sweep work in it, and it does not count as an agent's.
	Grading bool
	// Guarded protects its commands from all other programs of the sandbox, also
	// those of root: no process can trace them, read their memory or open their pipes.
	// An agent's session must not have it. Hello has a finding where it is not
	// possible.
	Guarded bool
}

// Process is one process in the sandbox. Its text comes from the sandbox: it
// may be truncated, may contain any bytes, and cannot be trusted.
type Process struct {
	PID         int      `json:"pid"`     // in the sandbox
	Parent      int      `json:"parent"`  // 1: sandboxd, so also an orphan
	Started     uint64   `json:"started"` // clock ticks since boot; with PID it identifies the process uniquely
	UID         uint32   `json:"uid"`     // effective
	State       string   `json:"state"`   // one letter, as in /proc/<pid>/stat, of all threads: Z when all have ended, X when all are ending
	Comm        string   `json:"comm"`
	CommandLine string   `json:"command_line"` // see Argv
	Executable  string   `json:"executable"`   // empty where it cannot be read
	Service     string   `json:"service"`      // the service that it is, or descends from
	Session     string   `json:"session"`      // the session whose command or terminal it is, or descends from
	Listening   []Socket `json:"listening"`
}

// Argv returns the program and its arguments; nil where they cannot be read.
func (p Process) Argv() []string {
	if line := strings.TrimRight(p.CommandLine, "\x00"); line != "" {
		return strings.Split(line, "\x00")
	}
	return nil
}

// Key returns the key of the process.
func (p Process) Key() Key { return Key{p.PID, p.Started} }

// Key identifies a process uniquely.
type Key struct {
	PID     int
	Started uint64
}

// Socket is something that listens.
type Socket struct {
	Network string `json:"network"` // tcp, udp, unix
	Address string `json:"address"` // ip:port, a path, or @name
}

// Processes is what runs in a sandbox, by PID.
type Processes struct {
	List []Process `json:"processes"`
	// Unattributed are listening sockets whose process cannot be told.
	Unattributed []Socket `json:"unattributed"`
}

// Keys names all that run now, for a later Sweep or Since.
func (p Processes) Keys() []Key {
	keys := make([]Key, len(p.List))
	for i, q := range p.List {
		keys[i] = q.Key()
	}
	return keys
}

// Since returns what Sweep would kill: processes that are not in known, do not
// descend from one in known, and belong to no service. Dead processes are left
// out, including those that are ending.
func (p Processes) Since(known []Key) []Process {
	old := map[Key]bool{}
	for _, k := range known {
		old[k] = true
	}
	byPID := map[int]Process{}
	for _, q := range p.List {
		byPID[q.PID] = q
	}
	var out []Process
	for _, q := range p.List {
		if q.Service != "" || q.State == "Z" || q.State == "X" {
			continue
		}
		descends := false
		for at, steps := q, 0; steps <= len(p.List); steps++ {
			if old[at.Key()] {
				descends = true
				break
			}
			next, ok := byPID[at.Parent]
			if !ok {
				break
			}
			at = next
		}
		if !descends {
			out = append(out, q)
		}
	}
	return out
}

// Frozen is the result of Freeze.
type Frozen struct {
	Stopped int `json:"stopped"` // processes that are stopped now
	// Moved are processes that ran although the sandbox was frozen before, or that
	// ended: one can have itself continued, with a timer.
	Moved []Process `json:"moved"`
}

// Settled is the result of Settle.
type Settled struct {
	Killed       []Process `json:"killed"`
	Stopped      []Process `json:"stopped"`      // shells of terminals, with something running under them
	Left         []Process `json:"left"`         // what still runs
	Unattributed []Socket  `json:"unattributed"` // as in Processes
}

// Service is a program that belongs to the task, not to the agent.
type Service struct {
	Name string // unique
	Argv []string
	Env  []string // K=V; PATH and HOME are set if missing
	Dir  string   // empty: /
	User string   // empty: 0
}

// ServiceState is the state of a service.
type ServiceState struct {
	Name   string
	PID    int             // 0: it does not run
	Exit   *sandbox.Result // of its last run, once ended
	Output []byte          // the last 64 KiB of both outputs
}

// ServiceChange is a service that an agent could have changed.
type ServiceChange struct {
	Name string `json:"name"`
	// Files are those of its program, interpreter and script, and of the
	// programs it started, that changed after Mark or are gone. At most 100.
	Files []string `json:"files"`
	// Traceable: it ran while an agent's commands could trace it.
	Traceable bool `json:"traceable"`
}

// Changed is what changed after Mark. The names come from the sandbox and
// cannot be trusted.
type Changed struct {
	Files    []string        `json:"files"` // sorted; at most 100
	More     int             `json:"more"`  // files that changed, too
	Services []ServiceChange `json:"services"`
}

// Moved is something that stood where a fresh folder had to be.
type Moved struct {
	Path    string       `json:"path"`  // the folder asked for, or a link or file above it
	Aside   string       `json:"aside"` // where it is now; empty: it could not be moved and was emptied
	Kind    sandbox.Kind `json:"kind"`
	Entries int          `json:"entries"` // names in it, if a folder
}
