// Command visual serves an agent that sees a surface, such as a web page or a
// game, and answers with actions that it writes as calls.
package main

import (
	"context"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent/loop"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/model/chat"
)

// Config is the body of an agent block's config.
type Config struct {
	Observations    []string `berth:"observations" doc:"Kinds of observation that the model gets, such as screenshot and axtree. Absent: those of the task without elements, and without marks if there is a screenshot."`
	Memory          int      `berth:"memory" default:"3" doc:"How many observations the model gets in full. Older ones are named, and their pictures and trees are left out."`
	Prefix          string   `berth:"prefix" default:"" doc:"Text before the task's instruction."`
	Prompt          string   `berth:"prompt" default:"" doc:"What the model is told first, in place of the agent's own text: file(\"my.md\"). {{actions}} and {{steps}} are replaced by the actions, and how many steps there are."`
	History         string   `berth:"history" default:"chat" enum:"chat,actions" doc:"chat: the model gets the conversation so far. actions: each request has the task, what is seen now, and a list of past actions, as in GauntletBench's own agent."`
	Unreadable      string   `berth:"unreadable" default:"noop" enum:"noop,end" doc:"What follows a reply without an action that can be read. noop: a step of 500 ms; without a bound of steps, the third in a row ends the turn. end: the turn ends with an error."`
	ReasoningEffort string   `berth:"reasoning_effort" default:"" doc:"How hard the model should think, in the provider's own word; empty leaves it to the provider."`
	Temperature     *float64 `berth:"temperature" doc:"Sampling temperature; absent leaves it to the provider."`
}

// Values of the options.
const (
	historyActions = "actions"
	unreadableEnd  = "end"
)

// Validate implements config.Validator.
func (c *Config) Validate() []config.Problem {
	ps := append(config.InBraces.Problems("prompt", c.Prompt, false, "actions", "steps"), chat.TemperatureProblems("temperature", c.Temperature)...)
	return append(ps, config.Range("memory", c.Memory, 1, 100)...)
}

func main() {
	plugins.Serve(plugins.Agent(plugins.Info{
		Name: "visual", Version: "1.0.0",
		Doc: "Sees the task's surface as pictures and text, and writes actions as calls, until it answers or its steps are used up.",
	}, Config{}, visual()))
}

func visual() loop.Agent[Config] {
	return loop.Agent[Config]{
		NoShell: true, Surface: true,
		New: func(ctx context.Context, s *loop.Session[Config]) (loop.Worker, error) {
			offer, err := s.Surface.Actions(ctx)
			if err != nil {
				return nil, err
			}
			return newWorker(s, &offer), nil
		},
	}
}
