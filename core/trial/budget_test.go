package trial_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/verifier"
)

// If a budget is shared with other attempts, or was too small from the start, a
// refusal says nothing about the agent, however the agent reacts to it.
func TestABudgetThatIsNotTheAttemptsFailsNoTrial(t *testing.T) {
	t.Parallel()
	why := errors.New("60 of 60 requests")
	ends := map[string]func() (agent.Yield, error){
		"it yields":     func() (agent.Yield, error) { return agent.Yield{End: agent.Done}, nil },
		"it crashes":    func() (agent.Yield, error) { return agent.Yield{End: agent.Crashed}, nil },
		"it complains":  func() (agent.Yield, error) { return agent.Yield{}, fmt.Errorf("403: %w", agent.ErrModel) },
		"its call ends": func() (agent.Yield, error) { return agent.Yield{}, errors.New("403") },
	}
	for _, refusal := range []models.Refusal{
		{Scope: record.ScopeRun, Err: why}, {Scope: record.ScopeCell, Err: why}, {First: true, Err: why},
	} {
		for name, end := range ends {
			t.Run(fmt.Sprintf("%s/first=%v/%s", refusal.Scope, refusal.First, name), func(t *testing.T) {
				t.Parallel()
				p := &purse{spent: make(chan struct{}), refusal: &refusal}
				a := turn(func(ctx context.Context, act *actor) (agent.Yield, error) {
					close(p.spent)
					if err := act.sh(ctx, "true"); err != nil {
						return agent.Yield{}, err
					}
					return end()
				})
				r := withModel(t, a, tests("false"), p).run(t.Context(), t)
				if r.Outcome != record.NotRun || r.AgentEnd != "" || r.Error == nil || r.Error.Stops != refusal.Scope || len(r.Usage) != 1 {
					t.Errorf("%s, %q, error %+v, usage %+v", r.Outcome, r.AgentEnd, r.Error, r.Usage)
				}
			})
		}
	}
}

// A judge also uses the budgets of the cell and of the run. Its reaction to a
// refusal is not a verdict.
func TestAJudgeWithoutBudgetGivesNoVerdict(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]error{"it judges": nil, "it fails": errors.New("403")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := tests("true")
			j.traits.Models = []string{"judge"}
			verify := j.verify
			j.verify = func(ctx context.Context, r verifier.Request) (verifier.Verdict, error) {
				v, err := verify(ctx, r)
				return v, errors.Join(err, fails)
			}
			b := newBench(t, does("true"), j)
			b.judgeModel("judge")
			b.gateway = &purse{spent: make(chan struct{}), refusal: &models.Refusal{Scope: record.ScopeRun, Err: errors.New("60 of 60 requests")}}
			r := b.run(t.Context(), t)
			if r.Outcome != record.NotRun || r.Error == nil || r.Error.Stops != record.ScopeRun || !strings.HasPrefix(r.Error.Message, "limit used: 60 of 60 requests: raise it") {
				t.Errorf("%s, error %+v", r.Outcome, r.Error)
			}
		})
	}
}
