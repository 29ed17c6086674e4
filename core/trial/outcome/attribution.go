package outcome

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/verifier"
)

// ErrPreempted is the cause with which a caller cancels an attempt because the
// owner of the machine needs it.
var ErrPreempted = errors.New("preempted")

// Stop is a failure after which the cell or the run cannot continue. The
// attempt says nothing about the agent: it counts as not run, and is repeated
// when the run is resumed. Its message is only the text of err, which must be
// enough to understand why the run was stopped.
func Stop(scope record.Scope, by record.Boundary, err error) *record.Error {
	return &record.Error{Boundary: by, Outcome: record.NotRun, Stops: scope, Message: err.Error(), Err: err}
}

// On attributes an error to a boundary, unless it was already attributed closer
// to its origin.
func On(b record.Boundary, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*record.Error](err); ok {
		return err
	}
	return Of(b, err)
}

// Model attributes an error of by, an agent or the simulated user, with the
// state of its models. The gateway knows what was wrong with the last answers,
// whatever by reports: if a provider could not serve, the model is at fault; if a
// request could not be served, by is. Without models, nothing is known.
func Model(by record.Boundary, m models.Session, err error) error {
	f := Of(by, err)
	if m == nil || f.Boundary != by || f.Outcome != usual[by].outcome && f.Outcome != record.ModelError || errors.Is(err, agent.ErrBadConfig) {
		return err
	}
	says := fmt.Sprintf("the %s says: %s", by, err.Error())
	s := m.State()
	if down := Down(s); down != nil {
		return On(record.ByModel, fmt.Errorf("%w; %s", down, says))
	}
	if s.Refused != nil {
		return On(by, fmt.Errorf("%w; %s", s.Refused, says))
	}
	if s.Served && errors.Is(err, agent.ErrModel) {
		return On(by, fmt.Errorf("the gateway answered all requests, but %s", says))
	}
	return err
}

// Down returns why a provider could not serve a session that did not end well, or
// nil. A request that waited for the rate limit is not a reason: an agent that sends many
// requests makes it wait.
func Down(s models.State) error {
	if s.Down == nil && !errors.Is(s.GaveUp, models.ErrRateLimited) {
		return s.GaveUp
	}
	return s.Down
}

// Of returns the failure that err wraps or, if it wraps none, the default
// failure for an error of b.
func Of(b record.Boundary, err error) *record.Error {
	if f, ok := errors.AsType[*record.Error](err); ok {
		return f
	}
	for _, r := range rules {
		if (r.by == "" || r.by == b) && errors.Is(err, r.is) {
			return &record.Error{Boundary: b, Err: err, Outcome: r.outcome, Retry: r.retry}
		}
	}
	return &record.Error{Boundary: b, Err: err, Outcome: usual[b].outcome, Retry: usual[b].retry}
}

// rules say how an error of a boundary affects an attempt; the first match
// counts. All other errors are in usual.
var rules = []struct {
	by      record.Boundary // empty: any
	is      error
	outcome record.Outcome
	retry   bool
}{
	// A verifier judges the work of the agent. If that work makes the verifier
	// fail, the agent must not get another attempt. These rules come first,
	// because a panic in a plugin's process is also an ErrPluginGone.
	{record.ByVerifier, fault.ErrPanic, record.VerifierError, false},
	// The same holds for a panic of the agent's plugin during a turn: it
	// depends on what the agent did.
	{record.ByAgent, fault.ErrPanic, record.AgentError, false},
	{"", plugin.ErrPluginGone, record.PluginCrashed, true},
	{"", fault.ErrUnavailable, record.PluginCrashed, true},
	{"", fault.ErrPanic, record.PluginCrashed, true},
	{record.ByAgent, agent.ErrNoSession, record.PluginCrashed, true}, // its plugin was restarted
	{record.ByAgent, agent.ErrModel, record.ModelError, true},
	// A plan checks configurations and settings. What is found only now says nothing
	// about the agent.
	{record.ByAgent, agent.ErrBadConfig, record.NotRun, false},
	{record.ByVerifier, fault.ErrBadConfig, record.TaskInvalid, false},
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
	{record.ByVerifier, verifier.ErrBadReply, record.JudgeError, true}, // its model's fault, not that of the work
}

// usual says how errors of a boundary affect an attempt when no rule matches. A
// failure of the core is a fault of the machine, not of the agent.
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

// ByHand is why a context ended whose attempt a person cancelled.
type ByHand string

// Error is who cancelled it, and why.
func (e ByHand) Error() string { return string(e) }

// Stopped reports whether ctx was ended from outside the attempt, and the
// outcome that follows.
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

// Check refuses a verdict that is empty or impossible.
func Check(v verifier.Verdict) error {
	switch v.Decision {
	case verifier.Pass, verifier.Fail, verifier.Continue, verifier.Scored:
	default:
		return fmt.Errorf("unknown decision %q", v.Decision)
	}
	if len(v.Scores) > limits.Scores {
		return fmt.Errorf("%w: %d scores, at most %d are allowed", verifier.ErrBadReward, len(v.Scores), limits.Scores)
	}
	for _, name := range slices.Sorted(maps.Keys(v.Scores)) {
		if err := v.Scores[name].Valid(); err != nil {
			return fmt.Errorf("score %q: %w", name, err)
		}
	}
	if err := v.ValidLabels(); err != nil {
		return err
	}
	size := len(v.Handoff) + len(v.Rationale)
	for _, c := range v.Checkpoints {
		size += len(c.Name) + len(c.Note)
		if math.IsNaN(c.Weight) || math.IsInf(c.Weight, 0) {
			return fmt.Errorf("%w: checkpoint %q has the weight %g", verifier.ErrBadReward, c.Name, c.Weight)
		}
	}
	if size > limits.VerdictBytes {
		return fmt.Errorf("its texts have %d bytes, at most %d are allowed", size, limits.VerdictBytes)
	}
	return nil
}
