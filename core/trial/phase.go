package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/core/trial/recorder"
	"github.com/berth-eval/berth/core/trial/sandbox"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	shell "github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/task"
)

// attempt is one attempt in progress. Its phases run one after another in one
// goroutine. Other goroutines use only recorder and sandbox, which have locks.
type attempt struct {
	in       Input
	task     *task.Task
	success  task.Success
	recorder *recorder.Recorder
	now      func() time.Time
	res      record.Result
	stages   []outcome.Stage

	agent        agent.Agent
	agentUsed    record.PluginUsed
	needs        agent.Needs
	verifiers    map[string]VerifierPlugin // by the name that the task uses
	env          environment.Environment
	envUsed      record.PluginUsed
	spec         environment.Spec
	sideEnv      map[string]map[string]string // of the sidecars, by name
	sandboxes    map[string]*sandbox.Sandbox  // all that exist, by name
	sandbox      *sandbox.Sandbox             // the one of the agent; nil before create and after destroy
	degraded     []string                     // what the environment could not fully enforce, each once
	session      *session                     // the agent's, while one is open
	scratch      string                       // what the agent's last session left on the host
	agentActed   bool                         // the agent may have run a command, or acted on the surface
	commanded    bool                         // the agent may have run a command
	missingUsers map[string]bool              // users of the task that the sandbox lacked before that
	leftRunning  bool                         // the agent left processes running in mode live, or a service runs that it could have changed
	surface      surfaced                     // of the task
	systemListed bool                         // the files of the system were listed before the agent's first command
	listedAt     time.Time                    // before that list was made
	oomKilled    int64                        // processes of the job that the kernel ended in the last phase
}

// phase runs one phase with its own deadline, and a line in the record at its
// start and end; at attributes its errors. When the record cannot
// be written any more, only the sandboxes are still destroyed.
func (a *attempt) phase(ctx context.Context, p record.Phase, limit time.Duration, f func(context.Context) error) error {
	if ctx.Err() != nil {
		return a.at(p, context.Cause(ctx))
	}
	if err := a.recorder.Broken(); err != nil && p.Name != record.PhaseDestroy {
		return a.at(p, outcome.On(record.ByCore, err))
	}
	p.Start = a.now()
	before := a.kills()
	event := record.Event{Type: record.EventPhaseStart, Phase: p.Name, Stage: p.Stage, Round: p.Round, Turn: p.Turn, Who: p.Who}
	a.recorder.Event(event)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, a.deadline(p.Name, limit))
	err := a.starved(p, before, a.at(p, limits.Caused(ctx, f(ctx))))
	cancel()
	p.End = a.now()
	if w := a.sandbox; w != nil && !w.Frozen().IsZero() && !w.Frozen().After(p.Start) {
		p.Frozen = p.End.Sub(p.Start)
	}
	if err != nil {
		p.Error = a.recorder.Text(err.Error(), limits.ErrorText)
	}
	a.res.Phases = append(a.res.Phases, p)
	event.Type, event.Error = record.EventPhaseEnd, p.Error
	a.recorder.Event(event)
	return err
}

// at makes the error of a phase: attributed, and with the phase.
func (a *attempt) at(p record.Phase, err error) error {
	if err == nil {
		return nil
	}
	f := *outcome.Of(a.owner(p.Who), err)
	f.Err = err
	if f.Phase == "" {
		f.Phase, f.Stage = p.Name, p.Stage
	}
	return &f
}

// explain returns f, which explains err, with the phase of err.
func explain(err error, f record.Error) error {
	at := outcome.Of(record.ByCore, err)
	f.Phase, f.Stage = at.Phase, at.Stage
	return &f
}

// environmentFailed returns err as one of the environment, after which the attempt is
// made again.
func environmentFailed(err error) error {
	return explain(err, record.Error{Boundary: record.ByEnvironment, Outcome: record.EnvironmentError, Retry: true, Err: err})
}

// owner returns who is at fault for an error in work of that boundary. Once the
// agent has used the sandbox, failures there may be caused by the agent: then
// the error is the agent's, and it gets no further attempt. Causes that the
// host can prove to be others are attributed where they happen.
func (a *attempt) owner(work record.Boundary) record.Boundary {
	if a.agentActed && (work == record.ByEnvironment || work == record.ByTask) {
		return record.ByAgent
	}
	return work
}

// failure returns an error of a phase in the form of the record.
func (a *attempt) failure(err error) *record.Error {
	f := *outcome.Of(record.ByCore, err)
	f.Err = nil
	f.Message = a.recorder.Text(cmp.Or(f.Message, err.Error()), limits.ErrorText)
	return &f
}

// JobMemory is what the kernel says about the memory of the control group that this
// process is in. Plugins are in the same group, and so are sandboxes without a
// their own group. It is safe for concurrent use.
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
	if a.oomKilled = a.kills() - before; a.oomKilled <= 0 {
		return err
	}
	a.recorder.Note(p, "job_oom_kills", "the memory limit of this job was used up, and the kernel ended %d of its processes, of this attempt or of another one at the same time", a.oomKilled)
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
	return explain(err, *noMemory(err))
}

// imageFault returns an error of the task, or nil, when the agent's first
// session could not start anything: the image lacks the user, the folder or the
// shell that the agent needs, which would fail every agent. After one program
// has run, the agent may have removed what is missing.
func (s *stage) imageFault(ctx context.Context) error {
	if s.i > 0 || s.a.sandbox.Gone() {
		return nil
	}
	starts, err := s.a.sandbox.Starts(ctx, sessionID(s.a.role(), s.i+1))
	if err != nil || starts.Started > 0 || starts.Refused == "" {
		return nil //nolint:nilerr // without certainty it is not an excuse
	}
	return outcome.On(record.ByTask, fmt.Errorf("no program of the agent could be started in the sandbox: %s", starts.Refused))
}

// findMissingUsers records which users of verifiers the sandbox lacks before
// the agent starts. The setup of a later stage may still create one.
func (a *attempt) findMissingUsers(ctx context.Context) error {
	a.missingUsers = map[string]bool{}
	for i := range a.task.Stages {
		user := a.newStage(i).verifyUser()
		if _, known := a.missingUsers[user]; known || user == "" {
			continue
		}
		err := a.sandbox.HasUser(ctx, user)
		if a.missingUsers[user] = errors.Is(err, shell.ErrNotFound); err != nil && !a.missingUsers[user] {
			return fmt.Errorf("look up user %q: %w", user, err)
		}
	}
	return nil
}
