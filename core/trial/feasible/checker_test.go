package feasible_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
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

// What a verifier's model supplies need not be let through; everything else is.
func TestAModelOfTheVerifierSuppliesKeys(t *testing.T) {
	t.Parallel()
	both := task.Env{"KEY": {Host: "OPENAI_API_KEY"}, "OPENAI_BASE_URL": {Host: "OPENAI_BASE_URL"}}
	for _, tt := range []struct {
		name, provider string
		needs          verifier.Needs
		env            task.Env
		set            func(*task.Task)
		want           string // the names that are still needed
	}{
		{"the key and the address", "openai-chat", verifier.NeedsSandbox, both, nil, ""},
		{"a scripted model", "script", verifier.NeedsSandbox, both, nil, ""},
		{"another provider", "anthropic", verifier.NeedsSandbox, both, nil, "OPENAI_API_KEY OPENAI_BASE_URL"},
		{"no model", "", verifier.NeedsSandbox, both, nil, "OPENAI_API_KEY OPENAI_BASE_URL"},
		{"a verifier that is not in the sandbox", "openai", verifier.NeedsNone, both, nil, "OPENAI_API_KEY OPENAI_BASE_URL"},
		{"an address alone", "openai", verifier.NeedsSandbox, task.Env{"OPENAI_BASE_URL": {Host: "OPENAI_BASE_URL"}}, nil, "OPENAI_BASE_URL"},
		{"by the name of the tests", "anthropic", verifier.NeedsSandbox, task.Env{"ANTHROPIC_API_KEY": {Host: "EVAL"}, "A": {Host: "EVAL_B"}}, nil, "EVAL_B"},
		{"in a part", "openai", verifier.NeedsSandbox, task.Env{"A": {Parts: []task.Value{{Text: "Bearer "}, {Host: "OPENAI_API_KEY"}}}}, nil, ""},
		{"for the agent as well", "openai", verifier.NeedsSandbox, both, func(t *task.Task) {
			t.Environment.Env = task.Env{"OPENAI_API_KEY": {Host: "OPENAI_API_KEY"}}
		}, "OPENAI_API_KEY"},
		{"a second verifier without", "openai", verifier.NeedsSandbox, both, func(t *task.Task) {
			t.Stages[0].Verifiers = append(t.Stages[0].Verifiers, task.VerifierUse{Name: "w"})
		}, "OPENAI_API_KEY OPENAI_BASE_URL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tk := plainTask()
			tk.Stages[0].Verify.Env = tt.env
			if tt.set != nil {
				tt.set(tk)
			}
			var c cell.Cell
			if tt.provider != "" {
				c.Verifiers = map[string]cell.Verifier{"v": {Models: map[string]*cell.Model{"default": {Provider: tt.provider}}}}
			}
			k := feasible.Known{Verifiers: map[string]verifier.Traits{"v": {Needs: tt.needs}, "w": {Needs: verifier.NeedsSandbox}}}
			ps := feasible.HostVars(tk, task.Options{}, c, k, &dialects.All)
			var names []string
			if len(ps) > 0 {
				for why := range strings.SplitSeq(ps[0].Detail, ". ") {
					names = append(names, strings.Fields(why)[0])
				}
			}
			if got := strings.Join(names, " "); got != tt.want {
				t.Errorf("needed are %q; want %q: %+v", got, tt.want, ps)
			}
			if tt.name == "no model" && (len(ps) != 1 || !strings.Contains(ps[0].Detail, "or give the verifier a model, which supplies it to the task's tests.")) {
				t.Errorf("%+v does not say that a model helps", ps)
			}
		})
	}
}
