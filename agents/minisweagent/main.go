// Command minisweagent serves an agent with a single tool and no memory except
// the conversation. Each reply contains one shell command, which runs in its
// own shell, and its output is the next message.
//
// It must not know a provider or an environment.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent/loop"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/model/chat"
)

// Config is the body of an agent block's config.
type Config struct {
	CommandTimeout  time.Duration `berth:"command_timeout" default:"1m" doc:"Timeout of one command; then the command and everything it started are killed."`
	ReasoningEffort string        `berth:"reasoning_effort" default:"" doc:"How hard the model should think, in the provider's own word; empty leaves it to the provider."`
	Temperature     *float64      `berth:"temperature" doc:"Sampling temperature; absent leaves it to the provider."`
	MaxTokens       int64         `berth:"max_tokens" default:"0" doc:"Bound of one reply, in tokens; 0 leaves it to the provider, or is 16384 where the provider wants a number."`
}

// outputBytes is how much of a command's output the model sees: the beginning and
// the end.
const outputBytes = 10_000

// Validate implements config.Validator.
func (c *Config) Validate() (ps []config.Problem) {
	if c.CommandTimeout < time.Second {
		ps = append(ps, config.Problem{
			Path: "command_timeout", Summary: "command_timeout is too short", Detail: fmt.Sprintf("Got %s. Write at least \"1s\".", c.CommandTimeout),
		})
	}
	ps = append(ps, config.NotNegative("max_tokens", c.MaxTokens)...)
	return append(ps, chat.TemperatureProblems("temperature", c.Temperature)...)
}

func main() {
	plugins.Serve(plugins.Agent(plugins.Info{
		Name: "minisweagent", Version: "1.0.0",
		Doc: "One shell command per reply, each in its own shell, until the model says that the task is complete. Works from the host; nothing is installed in the sandbox.",
	}, Config{}, scaffold()))
}

func scaffold() loop.Agent[Config] {
	return loop.Agent[Config]{
		Prior: true, Skills: true,
		New: func(_ context.Context, s *loop.Session[Config]) (loop.Worker, error) {
			return &worker{s: s, c: &s.Config, box: s.Shell}, nil
		},
	}
}
