package trial_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/verifier"
)

// purse is a gateway whose budget runs out when a test says so.
type purse struct {
	spent   chan struct{}
	waited  atomic.Int64 // nanoseconds
	silent  atomic.Bool
	refusal *models.Refusal
	down    error
	gaveUp  error
	refused error
	served  bool
	last    *record.Exchange
	allowed int
	revoked int
	spec    *models.Spec // of the last session
}

func (p *purse) Session(_ context.Context, s models.Spec) (models.Session, error) {
	if p.spec != nil {
		*p.spec = s
	}
	return p, nil
}

func (p *purse) Endpoints() map[string]model.Endpoint {
	return map[string]model.Endpoint{"default": {Name: "m", Token: "token-of-the-session"}}
}
func (p *purse) Variables() (keys, addresses map[string]string) { return nil, nil }

func (p *purse) Allow(context.Context) error  { p.allowed++; return nil }
func (p *purse) Revoke(context.Context) error { p.revoked++; return nil }
func (p *purse) Spent() <-chan struct{}       { return p.spent }
func (p *purse) Refusal() *models.Refusal     { return p.refusal }
func (p *purse) Down() error                  { return p.down }
func (p *purse) GaveUp() error                { return p.gaveUp }
func (p *purse) Refused() error               { return p.refused }
func (p *purse) Last() *record.Exchange       { return p.last }
func (p *purse) Served() bool                 { return p.served }
func (p *purse) Silent(time.Time) bool        { return p.silent.Load() }
func (p *purse) Waited() time.Duration        { return time.Duration(p.waited.Load()) }
func (p *purse) Usage() []record.Usage {
	return []record.Usage{{Role: "agent", Model: "m", Requests: 3}}
}
func (p *purse) Findings() []verifier.Finding { return nil }
func (p *purse) Close(context.Context) error  { return nil }

func TestABudgetEndsTheTurnAndTheWorkIsGraded(t *testing.T) {
	t.Parallel()
	p := &purse{spent: make(chan struct{})}
	a := turn(func(ctx context.Context, act *actor) (agent.Yield, error) {
		if err := act.sh(ctx, "echo 1 > /app/x"); err != nil {
			return agent.Yield{}, err
		}
		close(p.spent)
		<-ctx.Done()
		return agent.Yield{}, ctx.Err()
	})
	r := withModel(t, a, tests("test -s /app/x"), p).run(t.Context(), t)
	want(t, r, record.Passed, record.Budget, record.Checked)
	if len(r.Usage) != 1 || p.allowed != 2 || p.revoked < 2 || a.setups[0].Models["default"].Token == "" {
		t.Errorf("usage %+v, allowed %d, revoked %d", r.Usage, p.allowed, p.revoked)
	}
}

// withModel returns an attempt whose agent has a model.
func withModel(t *testing.T, a *scripted, j *judge, p *purse) *bench {
	t.Helper()
	a.needs.Dialects = []model.Dialect{model.DialectAnthropic}
	b := newBench(t, a, j)
	b.gateway = p
	b.cell.Agent.Models = map[string]*cell.Model{"default": {Label: "m"}}
	return b
}

// judgeModel gives the verifier "judge" a model with that name.
func (b *bench) judgeModel(name string) {
	b.cell.Verifiers = map[string]cell.Verifier{"judge": {Label: "judge", Models: map[string]*cell.Model{name: {Label: "m"}}}}
}

// When its time ends, the agent is waiting for a provider that does not
// respond. Only the end of the wait tells whether the time counts as the
// agent's.
func TestATurnDoesNotEndWhileAProviderIsSilent(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		p := &purse{spent: make(chan struct{})}
		p.silent.Store(true)
		a := turn(func(ctx context.Context, _ *actor) (agent.Yield, error) {
			select {
			case <-ctx.Done():
				t.Error("the turn ended while the provider was silent")
			case <-time.After(time.Second):
			}
			end := agent.Done
			if fails {
				p.waited.Store(int64(time.Hour))
				end = agent.Crashed
			}
			p.silent.Store(false)
			if !fails {
				<-ctx.Done()
			}
			return agent.Yield{End: end}, nil
		})
		b := withModel(t, a, tests("true"), p)
		b.cell.Limits.AgentTime = 200 * time.Millisecond
		end := record.Timeout
		if fails {
			end = record.Crashed
		}
		want(t, b.run(t.Context(), t), record.Passed, end, record.Checked)
	}
}

func TestAProviderThatIsDownIsNotTheAgentsFault(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		down, gaveUp error
		end          agent.End
		want         record.Outcome
	}{
		{errors.New("529"), nil, agent.Crashed, record.ModelError},
		{models.ErrRateLimited, nil, agent.Crashed, record.RateLimited},
		{models.ErrRateLimited, nil, agent.Done, record.RateLimited}, // its last request was not served, whatever it makes of that
		{errors.New("an answer in HTML"), nil, agent.Done, record.ModelError},
		{errors.New("an answer in HTML"), nil, agent.MaxSteps, record.ModelError},
		{nil, errors.New("status 503"), agent.Crashed, record.ModelError},
		// An agent that leaves a request behind has ended by itself, and a rate limit
		// is no reason to leave.
		{nil, errors.New("status 503"), agent.Done, record.Failed},
		{nil, models.ErrRateLimited, agent.Done, record.Failed},
		{nil, models.ErrRateLimited, agent.Crashed, record.Failed},
	} {
		a := turn(func(context.Context, *actor) (agent.Yield, error) { return agent.Yield{End: tt.end}, nil })
		b := withModel(t, a, tests("false"), &purse{spent: make(chan struct{}), down: tt.down, gaveUp: tt.gaveUp})
		if r := b.run(t.Context(), t); r.Outcome != tt.want {
			t.Errorf("%v, %v, %s: %s; want %s", tt.down, tt.gaveUp, tt.end, r.Outcome, tt.want)
		}
	}
	// One that says so itself does not know what of the model was wrong.
	a := turn(func(context.Context, *actor) (agent.Yield, error) {
		return agent.Yield{}, fmt.Errorf("ask: 429: %w", agent.ErrModel)
	})
	b := withModel(t, a, tests("true"), &purse{spent: make(chan struct{}), down: models.ErrRateLimited})
	if r := b.run(t.Context(), t); r.Outcome != record.RateLimited || r.Error == nil || r.Error.Boundary != record.ByModel || !strings.Contains(r.Error.Message, "ask: 429") {
		t.Errorf("%s, %+v; want %s", r.Outcome, r.Error, record.RateLimited)
	}
	// So is the model of a verifier, which nothing in the sandbox can take down.
	judge := says(verifier.Verdict{})
	judge.traits.Models = []string{"default"}
	judge.verify = func(context.Context, verifier.Request) (verifier.Verdict, error) {
		return verifier.Verdict{}, errors.New("no answer from the judge")
	}
	b = newBench(t, does("true"), judge)
	b.gateway = &purse{spent: make(chan struct{}), down: errors.New("529")}
	b.judgeModel("default")
	if r := b.run(t.Context(), t); r.Outcome != record.ModelError || r.Error == nil || !strings.Contains(r.Error.Message, "529; the verifier says: no answer from the judge") {
		t.Errorf("%s, %+v; want %s", r.Outcome, r.Error, record.ModelError)
	}
	// If the budget of a verifier is used up, the error says so.
	spec := models.Spec{}
	b = newBench(t, does("true"), judge)
	one := int64(1)
	b.gateway = &purse{spent: make(chan struct{}), refusal: &models.Refusal{Err: errors.New("the budget is used up")}, spec: &spec}
	b.judgeModel("default")
	limited := b.cell.Verifiers["judge"]
	limited.Budget = cell.Budget{Requests: &one}
	b.cell.Verifiers["judge"] = limited
	r := b.run(t.Context(), t)
	if r.Outcome != record.VerifierError || r.Error == nil || !strings.Contains(r.Error.Message, "the budget is used up; the verifier says: no answer from the judge") {
		t.Errorf("%s, %+v; want %s", r.Outcome, r.Error, record.VerifierError)
	}
	if spec.Verifier != "judge" || spec.Budget.Requests != &one {
		t.Errorf("the gateway was asked for %+v; want the budget of the verifier", spec)
	}
	// And is not believed when the gateway answered all that it asked: a way out
	// of a task that goes badly.
	b = withModel(t, a, tests("false"), &purse{spent: make(chan struct{}), served: true})
	if r := b.run(t.Context(), t); r.Outcome != record.AgentError || r.Error == nil || r.Error.Boundary != record.ByAgent || !strings.Contains(r.Error.Message, "ask: 429") {
		t.Errorf("%s, %+v; want %s", r.Outcome, r.Error, record.AgentError)
	}
}

// If a provider refuses a request because of its content, the agent is at
// fault, on the host as well as in the sandbox. The refusal is named, and the
// work is graded.
func TestARequestThatIsRefusedIsTheAgents(t *testing.T) {
	t.Parallel()
	refused := errors.New("the agent sent POST /v1/traces, which the gateway does not serve")
	says := func(y agent.Yield, err error) *scripted {
		return turn(func(context.Context, *actor) (agent.Yield, error) { return y, err })
	}
	for name, tt := range map[string]struct {
		agent  *scripted
		passes string
		want   record.Outcome
		named  bool
	}{
		"it crashes":             {says(agent.Yield{End: agent.Crashed}, nil), "false", record.AgentError, true},
		"it says model error":    {says(agent.Yield{}, fmt.Errorf("ask: 404: %w", agent.ErrModel)), "false", record.AgentError, true},
		"its work passes":        {says(agent.Yield{End: agent.Crashed}, nil), "true", record.Passed, true},
		"done, and was answered": {says(agent.Yield{End: agent.Done}, nil), "false", record.Failed, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := withModel(t, tt.agent, tests(tt.passes), &purse{spent: make(chan struct{}), refused: refused})
			r := b.run(t.Context(), t)
			if r.Outcome != tt.want || (r.Error != nil && strings.Contains(r.Error.Message, "POST /v1/traces")) != tt.named {
				t.Errorf("%s, %+v; want %s", r.Outcome, r.Error, tt.want)
			}
		})
	}
}

// An agent that gives up after a refusal ends its turn because of the budget.
// This is not an error of the model.
func TestABudgetEndsTheTurnOfAnAgentThatGivesUpFirst(t *testing.T) {
	t.Parallel()
	p := &purse{spent: make(chan struct{})}
	a := turn(func(context.Context, *actor) (agent.Yield, error) {
		close(p.spent)
		return agent.Yield{}, fmt.Errorf("ask: refused: %w", agent.ErrModel)
	})
	want(t, withModel(t, a, tests("true"), p).run(t.Context(), t), record.Passed, record.Budget, record.Checked)
}

// The result says why an agent crashed, with its last exchange.
func TestTheLastTurnOfAnAgentThatCrashedIsInTheResult(t *testing.T) {
	t.Parallel()
	p := &purse{spent: make(chan struct{}), last: &record.Exchange{Model: "m", Status: 400, Upstream: "no such field"}}
	says := func(y agent.Yield) *scripted {
		return turn(func(context.Context, *actor) (agent.Yield, error) { return y, nil })
	}
	crash := says(agent.Yield{End: agent.Crashed, ExitCode: 7, Reason: "exit code 7: oh no", Message: "let me see"})
	r := withModel(t, crash, tests("false"), p).run(t.Context(), t)
	last := r.Stages[0].LastTurn
	if last == nil || last.ExitCode != 7 || last.Reason != "exit code 7: oh no" || last.Message != "let me see" || last.Exchange == nil || last.Exchange.Upstream != "no such field" {
		t.Errorf("%+v", last)
	}
	done := says(agent.Yield{End: agent.Done, Message: "done"})
	if r = withModel(t, done, tests("true"), &purse{spent: make(chan struct{}), served: true}).run(t.Context(), t); r.Stages[0].LastTurn != nil {
		t.Errorf("an agent that yielded has a last turn: %+v", r.Stages[0].LastTurn)
	}
}
