package trial

import (
	"cmp"
	"context"
	"fmt"
	"net"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/core/trial/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
)

// judgeModels opens the models of a verifier; nil if it gets none. A verifier
// that works in the sandbox gets them there, too: for the programs of the task,
// such as a judge that is part of its tests.
func (s *stage) judgeModels(ctx context.Context, j judgement, own cell.Verifier, plugin VerifierPlugin) (models.Session, error) {
	inside := feasible.JudgesInside(plugin.Traits, own) && j.round == 0
	programs := inside && len(s.task.Verify.Env.HostVars()) > 0
	if s.a.in.Gateway == nil || len(plugin.Traits.Models) == 0 && !programs {
		return nil, nil //nolint:nilnil // it gets none
	}
	spec := s.a.modelSpec(record.RoleJudge, own.Models)
	spec.Verifier, spec.Budget = j.use.Name, own.Budget
	if inside {
		spec.Inside = func(ctx context.Context, port int, serve func(net.Conn)) (*host.Port, error) {
			p, err := s.graded.Listen(ctx, port, serve)
			return p, outcome.On(s.a.owner(record.ByEnvironment), err) // no model is involved
		}
	}
	m, err := s.a.in.Gateway.Session(ctx, spec)
	if err != nil {
		return nil, outcome.On(record.ByModel, err)
	}
	for _, e := range m.Endpoints() {
		s.a.recorder.Hide(e.Token)
	}
	return m, outcome.On(record.ByModel, m.Allow(ctx))
}

// judgeEnv returns the variables of a verifier, for which m are its models. Those
// of its block in the experiment come last.
func (s *stage) judgeEnv(own cell.Verifier, m models.Session) (map[string]string, error) {
	var keys, addresses map[string]string
	if m != nil {
		keys, addresses = m.Variables()
	}
	asks, supplied := feasible.FromModels(s.task.Verify.Env, keys, addresses)
	if !supplied {
		addresses = nil
	}
	env, err := asks.Resolve(s.a.in.LookupEnv)
	if err != nil {
		return nil, outcome.On(record.ByConfig, fmt.Errorf("environment of the verifier: %w", err))
	}
	return sandbox.Merge(env, addresses, cell.Strings(own.Env)), nil
}

// unjudged returns an error if the programs of the task gave a verdict although
// their model did not answer the last request, or refused one because of the
// budget. Such a verdict says nothing about the agent's work.
func (s *stage) unjudged() error {
	if s.models == nil {
		return nil
	}
	if down := cmp.Or(s.models.Down(), s.models.GaveUp()); down != nil {
		return outcome.On(record.ByModel, fmt.Errorf("%w; the verdict was given without its answer", down))
	}
	if r := s.models.Refusal(); r != nil && r.Scope == "" && !r.Provider {
		return fmt.Errorf("%w; the verdict was given without its answer", r.Err)
	}
	return nil
}
