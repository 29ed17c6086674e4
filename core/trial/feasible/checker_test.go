package feasible_test

import (
	"context"
	"errors"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/plugins/agent"
)

// says answers every Check in the same way, and counts the questions.
type says struct {
	agent.Agent
	needs agent.Needs
	err   error
	asked *int
}

func (s says) Check(context.Context, agent.CheckRequest) (agent.Needs, error) {
	*s.asked++
	return s.needs, s.err
}

func TestAnswersOfAgentsAreKeptWhenTheyRefuseNothing(t *testing.T) {
	t.Parallel()
	var c feasible.Checker
	one, other := record.PluginUsed{Kind: "agent", Name: "a", Digest: "sha256:1"}, record.PluginUsed{Kind: "agent", Name: "a", Digest: "sha256:2"}
	asked := 0
	broken := errors.New("broken")
	for _, tt := range []struct {
		name    string
		checker *feasible.Checker
		of      record.PluginUsed
		role    agent.Role
		refusal string
		err     error
		asked   int // in all, after it
	}{
		{"an error is not kept", &c, one, agent.RoleAgent, "", broken, 1},
		{"a refusal is not kept", &c, one, agent.RoleAgent, "no", nil, 2},
		{"asked for the first time", &c, one, agent.RoleAgent, "", nil, 3},
		{"asked again", &c, one, agent.RoleAgent, "", nil, 3},
		{"another question", &c, one, agent.RoleOracle, "", nil, 4},
		{"another build of the plugin", &c, other, agent.RoleAgent, "", nil, 5},
		{"no checker", nil, one, agent.RoleAgent, "", nil, 6},
	} {
		p := says{err: tt.err, asked: &asked}
		if tt.refusal != "" {
			p.needs.Refusals = []string{tt.refusal}
		}
		n, err := tt.checker.Agent(t.Context(), p, tt.of, cell.Agent{Plugin: "a"}, tt.role)
		if !errors.Is(err, tt.err) || len(n.Refusals) != len(p.needs.Refusals) || asked != tt.asked {
			t.Errorf("%s: %+v, %v after %d questions, want %d questions", tt.name, n, err, asked, tt.asked)
		}
	}
}
