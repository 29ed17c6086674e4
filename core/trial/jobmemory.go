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
	// Kills returns what the kernel has counted so far.
	Kills() Kills
	// FreeMiB returns how much of it is left; limited is false if it has no limit.
	FreeMiB() (left int64, limited bool)
	// Limit names the limit of that memory, for people.
	Limit() string
}

// Kills are counters of the kernel, which only grow.
type Kills struct {
	Processes int64 // of the group that were ended for lack of memory
	Shortages int64 // how often a limit of the group, or of one around it, left no memory; 0 if this is not counted
}

// since returns at least how many processes were ended since before. A shortage
// without a process of the group itself ended one of a group below it.
func (k Kills) since(before Kills) int64 {
	return max(k.Processes-before.Processes, min(1, k.Shortages-before.Shortages))
}

var (
	// errJobMemory is in the errors that the memory of the job explains.
	errJobMemory = errors.New("out of memory")

	errKilled    = errors.New("the agent's program was killed")
	errDisturbed = errors.New("a verdict that was given meanwhile does not count")
)

// kills returns what the kernel has counted so far.
func (a *attempt) kills() Kills {
	if a.in.Memory == nil {
		return Kills{}
	}
	return a.in.Memory.Kills()
}

// noMemory returns an error of the environment because the kernel ended a process of
// this job. err is what followed.
func (a *attempt) noMemory(err error) *record.Error {
	a.short = true
	return &record.Error{Boundary: record.ByEnvironment, Outcome: record.EnvironmentError, Retry: true, Err: fmt.Errorf(
		"%w: %s was used up, and the kernel ended a process: give it more memory, or fewer attempts at a time (in_flight); %w", errJobMemory, a.in.Memory.Limit(), err)}
}

// starved records that the kernel ended processes of this job in a phase, since
// before, and attributes the error of the phase to that. An error of a turn stays
// the agent's unless the sandbox ended.
func (a *attempt) starved(p record.Phase, before Kills, err error) error {
	a.seen = a.kills()
	if a.ended = a.seen.since(before); a.ended <= 0 {
		return err
	}
	a.recorder.Note(p, "job_oom_kills", "%s: %s was used up, and the kernel ended at least %d of its processes, of this attempt or of another one at the same time",
		errJobMemory, a.in.Memory.Limit(), a.ended)
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
	return instead(err, *a.noMemory(err))
}

// killedExit reports whether an exit code is that of a killed program, or of a shell
// whose last command was killed.
func killedExit(code int) bool { return code == -1 || code == 137 }

// ownLimit makes the end of a turn the agent's if the sandbox has reached its own
// limit, too: it did not need the job's to end.
func (a *attempt) ownLimit() {
	r, limit := a.res.Remains, a.spec.Limits.MemoryMiB
	if !a.short || r == nil || r.OOMKills == 0 || limit == 0 || r.PeakMemoryMiB < limit {
		return
	}
	for i := range a.stages {
		if f := a.stages[i].Failure; f != nil && f.Phase == record.PhaseTurn && f.Outcome == record.EnvironmentError {
			f.Boundary, f.Outcome, f.Retry = record.ByAgent, record.AgentError, false
			f.Message = fmt.Sprintf("the sandbox reached its own memory limit of %d MiB; %s", limit, f.Message)
		}
	}
}
