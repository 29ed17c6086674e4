// Command nop serves the agent that does nothing. A task that it passes tests
// nothing, and it is the shortest example of an agent plugin.
package main

import (
	"context"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/trajectory"
)

func main() {
	plugins.Serve(plugins.Agent(plugins.Info{
		Name: "nop", Version: "1.0.0",
		Doc: "Does nothing and is done. A task that it passes tests nothing.",
	}, nil, nop{}))
}

// nop is the agent and also each of its sessions, because it has no state.
type nop struct{}

// Check asks for nothing: no shell, no model.
func (nop) Check(context.Context, agent.CheckRequest) (agent.Needs, error) {
	return agent.Needs{}, nil
}

func (nop) Open(context.Context, agent.Setup) (agent.Session, error) { return nop{}, nil }

func (nop) Turn(_ context.Context, _ agent.Message, r agent.Recorder) (agent.Yield, error) {
	none := int64(0)
	err := r.Step(trajectory.Step{Source: trajectory.Model, Message: trajectory.Text("I do nothing."), LLMCallCount: &none})
	return agent.Yield{End: agent.Done}, err
}

func (nop) Close(context.Context, string, agent.Recorder) error { return nil }
