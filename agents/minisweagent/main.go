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
	StepLimit       int64         `berth:"step_limit" default:"0" doc:"Replies of the model after which the agent stops; 0: no limit of its own."`
	TokenLimit      int64         `berth:"token_limit" default:"0" doc:"Tokens of input and output, as the provider counts them, after which the agent stops; 0: no limit. For a limit in USD use cost_usd in per_trial, which the gateway enforces."`
	CommandTimeout  time.Duration `berth:"command_timeout" default:"1m" doc:"Timeout of one command; then the command and everything it started are killed."`
	OutputBytes     int           `berth:"output_bytes" default:"10000" doc:"How much of a command's output the model sees, in bytes: the beginning and the end."`
	ReasoningEffort string        `berth:"reasoning_effort" default:"" doc:"How hard the model should think, in the provider's own word; empty leaves it to the provider."`
	Temperature     *float64      `berth:"temperature" doc:"Sampling temperature; absent leaves it to the provider."`
	MaxTokens       int64         `berth:"max_tokens" default:"0" doc:"Bound of one reply, in tokens; 0 leaves it to the provider, or is 16384 where the provider wants a number."`
}

// Limits of the configuration.
const (
	minOutput = 1000
	maxOutput = 1 << 20
)

// Validate implements config.Validator.
func (c *Config) Validate() (ps []config.Problem) {
	if c.OutputBytes < minOutput || c.OutputBytes > maxOutput {
		ps = append(ps, config.Problem{
			Path: "output_bytes", Summary: "output_bytes is out of range", Detail: fmt.Sprintf("Got %d. Write a number from %d to %d.", c.OutputBytes, minOutput, maxOutput),
		})
	}
	if c.CommandTimeout < time.Second {
		ps = append(ps, config.Problem{
			Path: "command_timeout", Summary: "command_timeout is too short", Detail: fmt.Sprintf("Got %s. Write at least \"1s\".", c.CommandTimeout),
		})
	}
	for path, n := range map[config.Path]int64{"step_limit": c.StepLimit, "token_limit": c.TokenLimit, "max_tokens": c.MaxTokens} {
		if n < 0 {
			ps = append(ps, config.Problem{Path: path, Summary: fmt.Sprintf("%s is negative", path), Detail: fmt.Sprintf("Got %d. Write 0 or more.", n)})
		}
	}
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
