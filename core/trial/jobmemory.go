package trial

import (
	"errors"
	"fmt"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/outcome"
)

// JobMemory is what the kernel says about the memory of the control group that this
// process is in. Plugins are in the same group, and so are sandboxes without a
// group of their own. It is safe for concurrent use.
type JobMemory interface {
	// Kills returns how many processes of the group were ended for lack of memory.
	Kills() int64
	// FreeMiB returns how much of it is left; limited is false if it has no limit.
	FreeMiB() (left int64, limited bool)
}

var (
	// errJobMemory is in the errors that the memory of the job explains.
	errJobMemory = errors.New("out of memory: the memory limit of this job was used up, and the kernel ended a process: give it more memory, or fewer attempts at a time (in_flight)")

	errKilled    = errors.New("the agent's program was killed")
	errDisturbed = errors.New("a verdict that was given meanwhile does not count")
)

// kills returns what the kernel has counted so far.
func (a *attempt) kills() int64 {
	if a.in.Memory == nil {
		return 0
	}
	return a.in.Memory.Kills()
}

// noMemory returns an error of the environment because the kernel ended a process of
// this job. err is what followed.
func noMemory(err error) *record.Error {
	return &record.Error{Boundary: record.ByEnvironment, Outcome: record.EnvironmentError, Retry: true, Err: fmt.Errorf("%w; %w", errJobMemory, err)}
}

// starved records that the kernel ended processes of this job in a phase, since
// before, and attributes the error of the phase to that. A sandbox with a limit of its
// own is in another group. An error of a turn stays the agent's unless the sandbox ended.
func (a *attempt) starved(p record.Phase, before int64, err error) error {
	if a.ended = a.kills() - before; a.ended <= 0 {
		return err
	}
	a.recorder.Note(p, "job_oom_kills", "the memory limit of this job was used up, and the kernel ended %d of its processes, of this attempt or of another one at the same time", a.ended)
	if err == nil || errors.Is(err, errJobMemory) {
		return err
	}
	switch outcome.Of(record.ByCore, err).Outcome {
	case record.EnvironmentError, record.VerifierError, record.PluginCrashed:
	case record.AgentError:
		if p.Name == record.PhaseTurn && !a.sandbox.Gone() {
			return err
		}
	default:
		return err
	}
	return instead(err, *noMemory(err))
}

// killedExit reports whether an exit code is that of a killed program, or of a shell
// whose last command was killed.
func killedExit(code int) bool { return code == -1 || code == 137 }
