// Command persona serves an agent that plays the simulated user of a task. It
// needs no sandbox: it reads what is public, and replies with the next message to
// the agent whose work it follows.
package main

import (
	"context"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/loop"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/model/chat"
)

// Config is the body of an agent block's config.
type Config struct {
	Policy          string   `berth:"policy" default:"" doc:"How the user behaves, besides what the task says about it; empty: a patient person who wants the task done as it was asked."`
	Prompt          string   `berth:"prompt" default:"" doc:"What the user's model is told first, in place of the persona's own text: file(\"my.md\"). {{policy}} and {{task}} are replaced by policy and by what the agent was told."`
	ReasoningEffort string   `berth:"reasoning_effort" default:"" doc:"How hard the model should think, in the provider's own word; empty leaves it to the provider."`
	StopWord        string   `berth:"stop_word" default:"" doc:"Word with which the user ends the conversation when it has what it asked for; it may then also give up. The label user_end says done or gave_up."`
	MaxMessages     int      `berth:"max_messages" default:"0" doc:"After so many messages the user gives up, and the label user_end says limit; 0: the limit of the task alone."`
	Temperature     *float64 `berth:"temperature" doc:"Sampling temperature; absent leaves it to the provider."`
}

// Validate implements config.Validator.
func (c *Config) Validate() []config.Problem {
	ps := append(config.InBraces.Problems("prompt", c.Prompt, false, "task", "policy"), chat.TemperatureProblems("temperature", c.Temperature)...)
	return append(ps, config.NotNegative("max_messages", c.MaxMessages)...)
}

func main() {
	plugins.Serve(plugins.Agent(plugins.Info{
		Name: "persona", Version: "1.0.0",
		Doc: "Plays the simulated user: looks at what is public and replies with the next message. For user blocks; works without a sandbox.",
	}, Config{}, persona()))
}

func persona() loop.Agent[Config] {
	return loop.Agent[Config]{
		NoShell: true,
		Refuse: func(_ Config, r agent.CheckRequest) []string {
			if r.Role != agent.RoleUser {
				return []string{"it plays a simulated user and cannot work on a task: name it in a user block"}
			}
			return nil
		},
		New: func(_ context.Context, s *loop.Session[Config]) (loop.Worker, error) { return &worker{s: s}, nil },
	}
}
