package outcome

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/verifier"
)

// ErrPreempted is the cause with which a caller cancels an attempt that the
// machine's owner takes away.
var ErrPreempted = errors.New("preempted")

// Stop is a failure after which the cell or the run cannot go on. The attempt
// says nothing about the agent: it counts as not run, and is made again when
// the run is resumed. Its message is the text of err alone, which is all that a
// reader has to know who sees why a run was stopped.
func Stop(scope record.Scope, by record.Boundary, err error) *record.Error {
	return &record.Error{Boundary: by, Outcome: record.NotRun, Stops: scope, Message: err.Error(), Err: err}
}

// On attributes an error to a boundary, once: one that was attributed nearer to
// its place stays as it is.
func On(b record.Boundary, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*record.Error](err); ok {
		return err
	}
	return Of(b, err)
}

// Model is who an error of by, an agent or the simulated user, is attributed to
// when the gateway is asked. What was wrong with the last answers the gateway
// knows, whatever by makes of it: a provider that could not serve is the model's
// fault, a request that could not be served by's. A nil gateway knows nothing,
// like one that nobody asked.
func Model(by record.Boundary, gateway Gateway, err error) error {
	f := Of(by, err)
	if gateway == nil || f.Boundary != by || f.Outcome != usual[by].outcome && f.Outcome != record.ModelError || errors.Is(err, agent.ErrBadConfig) {
		return err
	}
	says := fmt.Sprintf("the %s says: %s", by, err.Error())
	if down := gateway.Down(); down != nil {
		return On(record.ByModel, fmt.Errorf("%w; %s", down, says))
	}
	if refused := gateway.Refused(); refused != nil {
		return On(by, fmt.Errorf("%w; %s", refused, says))
	}
	if gateway.Served() && errors.Is(err, agent.ErrModel) {
		return On(by, fmt.Errorf("the gateway answered all requests, but %s", says))
	}
	return err
}

// Gateway is what is known of the models of a session.
type Gateway interface {
	Down() error    // why the provider could not serve, or nil
	Refused() error // why it refused what was asked, or nil
	Served() bool   // requests came, and each got a whole answer
}

// Of is the failure that err wraps or, if it wraps none, what an error of b
// makes of an attempt.
func Of(b record.Boundary, err error) *record.Error {
	if f, ok := errors.AsType[*record.Error](err); ok {
		return f
	}
	f := &record.Error{Boundary: b, Err: err}
	f.Outcome, f.Retry = classify(b, err)
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
	// What a verifier judges is the agent's: an agent that finds what a verifier
	// cannot take must not be tried again for it. These rules come first, because a
	// panic in a plugin's process is ErrPluginGone, too.
	{record.ByVerifier, fault.ErrPanic, record.VerifierError, false},
	// So is a bug of the agent's plugin that its turn met: it depends on what the
	// agent did.
	{record.ByAgent, fault.ErrPanic, record.AgentError, false},
	{"", plugin.ErrPluginGone, record.PluginCrashed, true},
	{"", fault.ErrUnavailable, record.PluginCrashed, true},
	{"", fault.ErrPanic, record.PluginCrashed, true},
	{record.ByAgent, agent.ErrNoSession, record.PluginCrashed, true}, // its plugin was started anew
	{record.ByAgent, agent.ErrModel, record.ModelError, true},
	{record.ByAgent, agent.ErrBadConfig, record.AgentError, false},
	{record.ByUser, agent.ErrNoSession, record.PluginCrashed, true},
	{record.ByUser, agent.ErrModel, record.ModelError, true},
	{record.ByUser, agent.ErrBadConfig, record.UserError, false},
	{record.ByEnvironment, environment.ErrNoCapacity, record.EnvironmentError, true},
	{record.ByEnvironment, environment.ErrBadImage, record.EnvironmentError, false},
	{record.ByEnvironment, environment.ErrBuildFailed, record.EnvironmentError, false},
	{record.ByEnvironment, environment.ErrRefused, record.EnvironmentError, false},
	{record.ByEnvironment, environment.ErrUnsupported, record.EnvironmentError, false},
	{record.ByModel, models.ErrRateLimited, record.RateLimited, true},
	{record.ByVerifier, verifier.ErrArtifactMissing, record.ArtifactMissing, false},
	{record.ByVerifier, verifier.ErrBadReward, record.VerifierError, false},
}

// usual is what errors of a boundary make of an attempt when no rule fits. A
// failure of the core is the machine's: it is no fault of the agent.
var usual = map[record.Boundary]struct {
	outcome record.Outcome
	retry   bool
}{
	record.ByConfig:      {record.NotRun, false},
	record.ByTask:        {record.EnvironmentError, false},
	record.ByAgent:       {record.AgentError, false},
	record.ByEnvironment: {record.EnvironmentError, true},
	record.ByVerifier:    {record.VerifierError, false},
	record.ByModel:       {record.ModelError, true},
	record.ByUser:        {record.UserError, true},
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

// Stopped says whether ctx was ended from outside the attempt, and as what
// that counts.
func Stopped(ctx context.Context) (record.Outcome, bool) {
	switch {
	case ctx.Err() == nil:
		return "", false
	case errors.Is(context.Cause(ctx), ErrPreempted):
		return record.Preempted, true
	default:
		return record.Cancelled, true
	}
}
