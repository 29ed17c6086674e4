package trial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/core/trial/recorder"
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
	select {
	case <-over:
	case <-time.After(limits.Farewell):
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
	r := m.State().Refusal
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

// waited returns how long requests of the session waited for a provider.
func (s *session) waited() time.Duration {
	if s.models == nil {
		return 0
	}
	return s.models.Waited()
}

// silencePoll is the interval of the checks for an answer of the provider.
const silencePoll = 50 * time.Millisecond

// bounds are the limits of the time of a turn; zero means none. All but total
// leave out the time that the session waits for a provider.
type bounds struct {
	limit   time.Duration
	setting string // that limit comes from
	total   time.Duration
	startup time.Duration // until the first step or line of the log
	stall   time.Duration // between two of them; also at the start without startup
}

// left returns how long a turn may continue, and the cause with which it ends then.
// used is its time so far, without the time that it waited for a provider.
func (b *bounds) left(begin time.Time, used time.Duration, r *recorder.SessionRecorder) (left time.Duration, cause error) {
	left, cause = b.limit-used, fmt.Errorf("%w: %w", errTurnTime, limits.Deadline{What: "it was", Limit: b.limit, Setting: b.setting})
	if rest := b.total - time.Since(begin); b.total > 0 && rest < left {
		left, cause = rest, errTotal
	}
	heard, spoke := r.Heard()
	quiet := b.stall
	if !spoke && b.startup > 0 {
		quiet = b.startup
	}
	if rest := heard + quiet - used; quiet > 0 && rest < left {
		left, cause = rest, fmt.Errorf("%w for %s", errStalled, quiet)
	}
	return left, cause
}

// watch returns why a turn must end, or nil when it has ended by itself. left
// returns how long the turn may continue. When that time is used up while a provider
// is silent, the turn ends with the provider's first byte; if none comes, that
// silence does not count as the agent's time either. The total time does not wait.
func (s *session) watch(outside, turn context.Context, left func() (time.Duration, error)) error {
	var spent <-chan struct{}
	if s.models != nil {
		spent = s.models.Spent()
	}
	var lost, surface <-chan struct{}
	var ends <-chan error
	if s.door != nil {
		surface = s.a.surface.open.Lost()
	}
	if s.role != agent.RoleUser {
		lost, ends = s.a.sandbox.Lost(), s.a.in.Ends
	}
	var over time.Time // when the time was used up
	for {
		rest, why := left()
		switch {
		case rest > 0:
			over = time.Time{}
		case over.IsZero() && !errors.Is(why, errTotal):
			over = time.Now()
			rest = 0
		case errors.Is(why, errTotal) || s.models == nil || !s.models.Silent(over):
			return why
		default: // it is not known yet whether that time is the agent's
			rest = silencePoll
		}
		select {
		case <-time.After(rest):
		case why = <-ends:
			return why
		case <-spent:
			return errBudget
		case <-lost:
			return sandbox.ErrLost
		case <-surface:
			return s.a.surface.open.Err()
		case <-outside.Done():
			return context.Cause(outside)
		case <-turn.Done():
			return nil
		}
	}
}

// turnFailed decides whether an attempt continues after a turn. What the
// gateway knows of the last answers takes precedence over the agent's report: a
// provider that did not serve ends the attempt, even if the agent says that it
// is done. An agent whose plugin failed is still graded on its work.
func (s *stage) turnFailed(ctx context.Context, p record.Phase, err error) error {
	a, models := s.a, s.a.session.models
	if err == nil && s.out.AgentEnd == record.Crashed {
		if why := s.imageFault(ctx); why != nil {
			return why
		}
		code := s.out.LastTurn.ExitCode
		if a.oomKilled > 0 && (code == -1 || code == 137) { // it, or the last command of a shell, was killed
			return noMemory(errKilled)
		}
	}
	switch {
	case err == nil && models == nil:
		return nil
	case err == nil:
		if down := a.session.down(s.out.AgentEnd); down != nil {
			return outcome.On(record.ByModel, down)
		}
		if refused := models.State().Refused; refused != nil && (s.out.AgentEnd == record.Crashed || s.out.AgentEnd == record.Yielded && unanswered(models)) {
			s.out.Failure = a.failure(a.at(p, refused))
		}
		return nil
	case a.sandbox.Gone() || ctx.Err() != nil || errors.Is(err, errNotCut) || errors.Is(err, surfaces.ErrLost):
		return err
	case models != nil && s.out.AgentEnd != record.SandboxLost:
		err = outcome.Model(record.ByAgent, models, err)
	}
	f := a.failure(a.at(p, err))
	if f.Outcome != record.AgentError {
		return err
	}
	if why := s.imageFault(ctx); why != nil {
		return why
	}
	s.out.Failure = f
	return nil
}

// unanswered reports whether no request of a session got an answer.
func unanswered(m models.Session) bool {
	return !slices.ContainsFunc(m.Usage(), func(u record.Usage) bool { return u.Requests > 0 })
}

// modelled records what a session that has ended used of its models.
func (a *attempt) modelled(m models.Session, who string) {
	a.res.Usage = append(a.res.Usage, m.Usage()...)
	for _, f := range m.Findings() {
		a.recorder.Finding(record.Phase{Name: record.PhaseTurn, Who: record.ByModel}, who, f)
	}
}

// claim adds the usage that the agent reports for a turn.
func (s *session) claim(c *agent.Claim) {
	if c == nil || c.Input == nil || c.Output == nil {
		s.silent = true
		return
	}
	if s.claimed == nil {
		s.claimed = &agent.Claim{}
	}
	plus(&s.claimed.Input, c.Input)
	plus(&s.claimed.Cached, c.Cached)
	plus(&s.claimed.Output, c.Output)
	plus(&s.claimed.Cost, c.Cost)
}

func plus[N int64 | float64](sum **N, n *N) {
	if n == nil {
		return
	}
	if *sum == nil {
		*sum = new(N)
	}
	**sum += *n
}

// compare stores the usage that the agent reported next to the gateway's, and
// reports a difference. An agent that was stopped in a turn cannot have
// reported everything.
func (s *session) compare(used []record.Usage) {
	if s.claimed == nil || s.role != agent.RoleAgent {
		return
	}
	s.a.res.Claimed = append(s.a.res.Claimed, *s.claimed)
	var in, out int64
	for _, u := range used {
		in, out = in+u.InputTokens, out+u.OutputTokens
	}
	if !s.silent && (in != *s.claimed.Input || out != *s.claimed.Output) {
		s.a.recorder.Note(record.Phase{Name: record.PhaseTurn, Who: record.ByAgent}, "usage_differs",
			"the agent says that it used %d input and %d output tokens, and the gateway counted %d and %d", *s.claimed.Input, *s.claimed.Output, in, out)
	}
}
