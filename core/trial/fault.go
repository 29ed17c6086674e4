package trial

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/bound"
	"github.com/berth-eval/berth/core/trial/decide"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	wire "github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/verifier"
)

// errLost is the cause with which everything that needs the sandbox ends when
// that is gone.
var errLost = errors.New("the sandbox is gone")

// fault is an error with what it makes of the attempt.
type fault struct {
	by      record.Boundary
	outcome record.Outcome
	retry   bool
	err     error
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// by attributes an error to a boundary, once: one that was attributed nearer to
// its place stays as it is.
func by(b record.Boundary, err error) error {
	var f *fault
	if err == nil || errors.As(err, &f) {
		return err
	}
	f = &fault{by: b, err: err}
	f.outcome, f.retry = classify(b, err)
	return f
}

// rules say what an error of a boundary makes of an attempt; the first that
// fits. Whatever a sentinel does not say is in usual.
var rules = []struct {
	by      record.Boundary // empty: any
	is      error
	outcome record.Outcome
	retry   bool
}{
	{"", ErrPluginGone, record.PluginCrashed, true},
	{"", wire.ErrUnavailable, record.PluginCrashed, true},
	{"", wire.ErrPanic, record.PluginCrashed, true},
	{record.ByAgent, agent.ErrNoSession, record.PluginCrashed, true}, // its plugin was started anew
	{record.ByAgent, agent.ErrModel, record.ModelError, true},
	{record.ByAgent, agent.ErrBadConfig, record.AgentError, false},
	{record.ByEnvironment, environment.ErrNoCapacity, record.EnvironmentError, true},
	{record.ByEnvironment, environment.ErrBadImage, record.EnvironmentError, false},
	{record.ByEnvironment, environment.ErrBuildFailed, record.EnvironmentError, false},
	{record.ByEnvironment, environment.ErrRefused, record.EnvironmentError, false},
	{record.ByEnvironment, environment.ErrUnsupported, record.EnvironmentError, false},
	{record.ByVerifier, verifier.ErrArtifactMissing, record.ArtifactMissing, false},
	{record.ByVerifier, verifier.ErrBadReward, record.VerifierError, false},
}

// usual is what errors of a boundary make of an attempt when no rule fits. A
// failure of the core is the machine's: it is no fault of the agent.
var usual = map[record.Boundary]struct {
	outcome record.Outcome
	retry   bool
}{
	record.ByConfig:      {record.TaskInvalid, false},
	record.ByTask:        {record.EnvironmentError, false},
	record.ByAgent:       {record.AgentError, false},
	record.ByEnvironment: {record.EnvironmentError, true},
	record.ByVerifier:    {record.VerifierError, false},
	record.ByModel:       {record.ModelError, true},
	record.ByCore:        {record.EnvironmentError, true},
}

func classify(b record.Boundary, err error) (record.Outcome, bool) {
	for _, r := range rules {
		if (r.by == "" || r.by == b) && errors.Is(err, r.is) {
			return r.outcome, r.retry
		}
	}
	u := usual[b]
	return u.outcome, u.retry
}

// stopped says whether ctx was ended from outside the attempt, and as what
// that counts.
func stopped(ctx context.Context) (record.Outcome, bool) {
	switch {
	case ctx.Err() == nil:
		return "", false
	case errors.Is(context.Cause(ctx), ErrPreempted):
		return record.Preempted, true
	default:
		return record.Cancelled, true
	}
}

// failure is err as the record has it.
func (a *attempt) failure(err error, at record.Phase) *decide.Failure {
	f := &fault{by: at.Who, err: err}
	f.outcome, f.retry = classify(at.Who, err)
	_ = errors.As(err, &f)
	return &decide.Failure{
		Outcome: f.outcome,
		Error: record.Error{
			Boundary: f.by, Phase: at.Name, Stage: at.Stage, Retry: f.retry,
			Message: a.scribe.text(err.Error(), bound.ErrorText),
		},
	}
}

// deadline is the cause of a context that ran into a limit of ours.
type deadline struct {
	what  string
	limit time.Duration
}

func (d deadline) Error() string { return fmt.Sprintf("%s took longer than %s", d.what, d.limit) }

func (d deadline) Is(err error) bool { return err == context.DeadlineExceeded } //nolint:errorlint // that is what Is is for

// limited is context.WithTimeoutCause with a cause that says what took too long.
func limited(ctx context.Context, what string, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, deadline{what, limit})
}

// caused prefers the reason why ctx ended to the bare "context canceled" of
// whoever noticed.
func caused(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	cause := context.Cause(ctx)
	if errors.Is(err, cause) {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return cause
	}
	return fmt.Errorf("%w (%w)", cause, err)
}

// await calls f and waits for it no longer than bound.Return after ctx ended:
// a plugin that does not come back is left behind, with its own context
// cancelled.
func await[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	done := make(chan answer, 1)
	go func() {
		v, err := f(ctx)
		done <- answer{v, err}
	}()
	select {
	case r := <-done:
		return r.v, caused(ctx, r.err)
	case <-ctx.Done():
	}
	t := time.NewTimer(bound.Return)
	defer t.Stop()
	select {
	case r := <-done:
		return r.v, caused(ctx, r.err)
	case <-t.C:
		var zero T
		return zero, fmt.Errorf("%w, and did not come back within %s", context.Cause(ctx), bound.Return)
	}
}
