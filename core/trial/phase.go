package trial

import (
	"cmp"
	"context"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/core/trial/recorder"
	"github.com/berth-eval/berth/core/trial/sandbox"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
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
	touched      bool                         // the agent may have run a command, or acted on the surface
	commanded    bool                         // the agent may have run a command
	missingUsers map[string]bool              // users of the task that the sandbox lacked before that
	leftRunning  bool                         // the agent left processes running in mode live, or a service runs that it could have changed
	surface      surfaced                     // of the task
	marked       bool                         // a turn has begun, and its changes have not been looked for yet
	markedAt     time.Time                    // before that list was made
	ended        int64                        // processes of the job that the kernel ended in the last phase
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
	a.recorder.Event(record.Event{Type: record.EventPhaseStart, Phase: p.Name, Stage: p.Stage, Round: p.Round, Turn: p.Turn, Who: p.Who})
	ctx, cancel := context.WithTimeoutCause(ctx, limit, a.deadline(p.Name, limit))
	err := a.starved(p, before, a.at(p, limits.Caused(ctx, f(ctx))))
	cancel()
	p.End = a.now()
	if a.frozenSince(p) {
		p.Frozen = p.End.Sub(p.Start)
	}
	if err != nil {
		p.Error = a.recorder.Text(err.Error(), limits.ErrorText)
	}
	a.res.Phases = append(a.res.Phases, p)
	a.recorder.Event(record.Event{
		Type: record.EventPhaseEnd, Phase: p.Name, Stage: p.Stage, Round: p.Round, Turn: p.Turn, Who: p.Who, Error: p.Error,
	})
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

// instead returns f, which explains err, with the phase of err.
func instead(err error, f record.Error) error {
	at := outcome.Of(record.ByCore, err)
	f.Phase, f.Stage = at.Phase, at.Stage
	return &f
}

// owner returns who is at fault for an error in work of that boundary. Once the
// agent has used the sandbox, failures there may be caused by the agent: then
// the error is the agent's, and it gets no further attempt. Causes that the
// host can prove to be others are attributed where they happen.
func (a *attempt) owner(work record.Boundary) record.Boundary {
	if a.touched && (work == record.ByEnvironment || work == record.ByTask) {
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

// frozenSince reports whether the sandbox was frozen during all of a phase.
func (a *attempt) frozenSince(p record.Phase) bool {
	return a.sandbox != nil && !a.sandbox.Frozen().IsZero() && !a.sandbox.Frozen().After(p.Start)
}
