package trial

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/core/trial/sandbox"
	"github.com/berth-eval/berth/plugins/agent"
	surfaces "github.com/berth-eval/berth/plugins/surface/host"
)

// conclude says how a turn ended. cause is why the core ended it, and err what the
// plugin returned.
func (s *session) conclude(ctx context.Context, f *finished, stage string, cause, err error) {
	early, byHand := errors.AsType[outcome.ByHand](cause)
	switch {
	case byHand && ctx.Err() == nil: // otherwise the whole attempt is cancelled
		f.end, f.err = record.EndedEarly, nil
		s.a.recorder.Note(record.Phase{Name: record.PhaseTurn, Stage: stage}, string(f.end), "%s", early)
	case errors.Is(cause, errTurnTime):
		f.end, f.err = record.Timeout, nil
		f.yield.Reason = strings.TrimSuffix(cause.Error()+"; "+f.yield.Reason, "; ")
	case errors.Is(cause, errBudget):
		if f.err = refused(s.models); f.err == nil {
			f.end = record.Budget
		}
	case errors.Is(cause, surfaces.ErrLost):
		f.end, f.err = s.a.surfaceLost(cause)
	case errors.Is(cause, sandbox.ErrLost):
		f.end, f.err = record.SandboxLost, outcome.On(record.ByAgent, sandbox.ErrLost)
	case cause != nil:
		f.err = cause
	case err != nil:
		f.end = record.Crashed
	default:
		f.end, err = endOf(f.yield)
		if f.end == record.Yielded && s.door != nil && s.a.surface.open.OutOfSteps() {
			f.end = record.MaxSteps
		}
		f.err = outcome.On(boundary(s.role), err)
	}
}

// farewell waits briefly for the end of a turn whose time or budget is used up, or
// that a person ends, but not when the run itself ends.
func farewell(ctx context.Context, cause error, over <-chan struct{}) {
	if _, byHand := errors.AsType[outcome.ByHand](cause); !byHand && !errors.Is(cause, errTurnTime) && !errors.Is(cause, errBudget) {
		return
	}
	t := time.NewTimer(limits.Farewell)
	defer t.Stop()
	select {
	case <-over:
	case <-t.C:
	case <-ctx.Done():
	}
}

// endOf converts the agent's own report of a turn to the form of the record.
func endOf(y agent.Yield) (record.AgentEnd, error) {
	switch y.End {
	case agent.Done, agent.Asked:
		return record.Yielded, nil
	case agent.MaxSteps:
		return record.MaxSteps, nil
	case agent.Refused:
		return record.Refused, nil
	case agent.Crashed:
		return record.Crashed, nil
	default:
		return record.Crashed, fmt.Errorf("unknown turn end %q", y.End)
	}
}

// broke reports whether a budget of the session's models is used up.
func (s *session) broke() bool {
	if s.models == nil {
		return false
	}
	select {
	case <-s.models.Spent():
		return true
	default:
		return false
	}
}

// refused returns why an attempt cannot continue after a budget has refused a
// request. It returns nil if no budget did, or if it was the attempt's own
// budget, which ends only the turn. An attempt without a request, or one for
// which others left no budget, says nothing about its agent.
func refused(m models.Session) error {
	if m == nil {
		return nil
	}
	r := m.Refusal()
	switch {
	case r == nil:
		return nil
	case r.Provider && r.Scope == "":
		return outcome.On(record.ByModel, r.Err)
	case r.Provider:
		return outcome.Stop(r.Scope, record.ByModel, r.Err)
	case r.Scope != "":
		return outcome.Stop(r.Scope, record.ByConfig, fmt.Errorf("limit used: %w: raise it, and resume with --experiment PATH", r.Err))
	case r.First:
		return &record.Error{Boundary: record.ByConfig, Outcome: record.NotRun, Err: fmt.Errorf("%w: raise it in the experiment, and start a new run", r.Err)}
	default:
		return nil
	}
}
