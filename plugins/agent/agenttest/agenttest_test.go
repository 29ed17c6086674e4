package agenttest_test

import (
	"context"
	"testing"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/agenttest"
)

// bare is an agent that does nothing and checks nothing.
type bare struct{}

func (bare) Check(context.Context, agent.CheckRequest) (agent.Needs, error) {
	return agent.Needs{}, nil
}

func (bare) Open(context.Context, agent.Setup) (agent.Session, error) { return bare{}, nil }

func (bare) Turn(ctx context.Context, _ agent.Message, _ agent.Recorder) (agent.Yield, error) {
	return agent.Yield{End: agent.Done}, ctx.Err()
}

func (bare) Close(context.Context, string, agent.Recorder) error { return nil }

// What the host does around every plugin is there in process, too: an author
// need not do it again for the kit.
func TestABareAgentPasses(t *testing.T) {
	t.Parallel()
	agenttest.Run(t, agenttest.Subject{Agent: bare{}})
	agenttest.Run(t, agenttest.Subject{Plugin: plugins.Agent(plugins.Info{Name: "bare"}, struct {
		Loud bool `berth:"loud" doc:"Say more."`
	}{}, bare{})})
}
