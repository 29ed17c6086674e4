package outcome_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/verifier"
)

func TestWhatAnErrorMakesOfAnAttempt(t *testing.T) {
	t.Parallel()
	other := errors.New("something else")
	for _, tt := range []struct {
		by      record.Boundary
		err     error
		outcome record.Outcome
		retry   bool
	}{
		{record.ByAgent, other, record.AgentError, false},
		{record.ByAgent, agent.ErrBadConfig, record.NotRun, false},
		{record.ByVerifier, fault.ErrBadConfig, record.TaskInvalid, false},
		{record.ByAgent, agent.ErrModel, record.ModelError, true},
		{record.ByAgent, agent.ErrNoSession, record.PluginCrashed, true},
		{record.ByAgent, plugin.ErrPluginGone, record.PluginCrashed, true},
		{record.ByEnvironment, plugin.ErrPluginGone, record.PluginCrashed, true},
		{record.ByEnvironment, other, record.EnvironmentError, true},
		{record.ByEnvironment, environment.ErrNoCapacity, record.EnvironmentError, true},
		{record.ByEnvironment, environment.ErrBadImage, record.EnvironmentError, false},
		{record.ByEnvironment, environment.ErrBuildFailed, record.EnvironmentError, false},
		{record.ByEnvironment, environment.ErrRefused, record.EnvironmentError, false},
		{record.ByVerifier, other, record.VerifierError, false},
		{record.ByVerifier, verifier.ErrArtifactMissing, record.ArtifactMissing, false},
		{record.ByVerifier, verifier.ErrBadReward, record.VerifierError, false},
		{record.ByVerifier, fault.ErrPanic, record.VerifierError, false},
		{record.ByVerifier, fmt.Errorf("%w: %w", plugin.ErrPluginGone, fault.ErrPanic), record.VerifierError, false}, // as the host of plugins says it
		{record.ByVerifier, plugin.ErrPluginGone, record.PluginCrashed, true},
		{record.ByAgent, fault.ErrPanic, record.AgentError, false},
		{record.ByAgent, fmt.Errorf("%w: %w", plugin.ErrPluginGone, fault.ErrPanic), record.AgentError, false},
		{record.ByEnvironment, fault.ErrPanic, record.PluginCrashed, true},
		{record.ByUser, other, record.UserError, true},
		{record.ByUser, agent.ErrModel, record.ModelError, true},
		{record.ByUser, agent.ErrNoSession, record.PluginCrashed, true},
		{record.ByUser, agent.ErrBadConfig, record.UserError, false},
		{record.ByAgent, verifier.ErrArtifactMissing, record.AgentError, false}, // not its to say
		{record.ByModel, other, record.ModelError, true},
		{record.ByModel, models.ErrRateLimited, record.RateLimited, true},
		{record.ByConfig, other, record.NotRun, false},
		{record.ByTask, other, record.EnvironmentError, false},
		{record.ByCore, other, record.EnvironmentError, true},
	} {
		f := outcome.Of(tt.by, fmt.Errorf("call: %w", tt.err))
		if f.Outcome != tt.outcome || f.Retry != tt.retry || f.Boundary != tt.by || !errors.Is(f, tt.err) {
			t.Errorf("%s, %v: %+v; want %s, retry %v", tt.by, tt.err, f, tt.outcome, tt.retry)
		}
	}
}

func TestTheNearestAttributionStands(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("phase: %w", outcome.On(record.ByTask, errors.New("setup")))
	if f := outcome.Of(record.ByEnvironment, outcome.On(record.ByVerifier, err)); f.Boundary != record.ByTask {
		t.Errorf("blamed on %s", f.Boundary)
	}
	if outcome.On(record.ByAgent, nil) != nil {
		t.Error("nothing was blamed on somebody")
	}
}

func TestStopped(t *testing.T) {
	t.Parallel()
	if o, ok := outcome.Stopped(t.Context()); ok {
		t.Errorf("stopped as %s", o)
	}
	for cause, want := range map[error]record.Outcome{
		nil: record.Cancelled, errors.New("Ctrl-C"): record.Cancelled, fmt.Errorf("slurm: %w", outcome.ErrPreempted): record.Preempted,
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		if o, ok := outcome.Stopped(ctx); !ok || o != want {
			t.Errorf("cause %v: %s; want %s", cause, o, want)
		}
	}
}
