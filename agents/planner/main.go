// Command planner serves an agent that plans what to do on a surface: all of it
// before it acts, or a step at a time with a memory of the last steps.
package main

import (
	"context"
	"fmt"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/loop"
	"github.com/berth-eval/berth/plugins/config"
)

// The modes.
const (
	modeGlobal = "global"
	modeOnline = "online"
)

// The formats of replies.
const (
	formatList   = "list"
	formatWord   = "word"
	formatBlocks = "blocks"
)

// parseStrict reads replies as the published program does.
const parseStrict = "strict"

// Config is the body of an agent block's config.
type Config struct {
	Mode   string `berth:"mode" default:"online" enum:"global,online" doc:"global: one request, and then all actions of the reply. online: a request for each step."`
	Format string `berth:"format" default:"" doc:"How replies name actions. list, word or blocks, as docs/games.md says. Empty: list in mode global, word in mode online."`
	Parse  string `berth:"parse" default:"loose" enum:"loose,strict" doc:"loose: names are found in other words, and \"# action\" also in another form. strict: as MageBench reads replies, letter by letter."`
	AM     int    `berth:"am" default:"5" doc:"How many of the last pairs of action and observation the model gets."`
	OM     int    `berth:"om" default:"1" doc:"How many of the newest observations the model gets with their pictures, at most am."`

	MaxLoop         int      `berth:"max_loop" default:"50" doc:"How many steps a turn has in mode online."`
	MaxTokens       int64    `berth:"max_tokens" default:"4000" doc:"Longest reply in tokens. 0 leaves it to the provider."`
	Temperature     float64  `berth:"temperature" default:"0.1" doc:"Sampling temperature. -1 leaves it to the provider."`
	TopP            float64  `berth:"top_p" default:"0.95" doc:"The share of likely tokens to sample from. -1 leaves it to the provider."`
	ReasoningEffort string   `berth:"reasoning_effort" default:"" doc:"How hard the model should think, in the provider's own word; empty leaves it to the provider."`
	Observations    []string `berth:"observations" doc:"Kinds of observation that the model gets, such as image and grid. Absent: all that the task allows."`

	Prompt       string `berth:"prompt" default:"" doc:"What the model is told first, in place of the planner's own text: file(\"my.md\"). {{actions}}, {{format}} and {{steps}} are replaced by the actions, the text about the form of replies, and how many actions there are, and {{KIND}}, such as {{grid}}, by what the agent sees of that kind."`
	FormatPrompt string `berth:"format_prompt" default:"" doc:"The text about the form of replies, in place of the planner's own."`
	Regenerate   string `berth:"regenerate_prompt" default:"" doc:"What the model is told after a reply without an action, in place of the planner's own text."`
	Continue     string `berth:"continue_prompt" default:"" doc:"What the model is told with the next observation, in place of the planner's own text. It may have {{KIND}}, too."`
}

// Validate implements config.Validator.
func (c *Config) Validate() (ps []config.Problem) {
	add := func(path, summary, format string, args ...any) {
		ps = append(ps, config.Problem{Path: config.Path(path), Summary: summary, Detail: fmt.Sprintf(format, args...)})
	}
	switch c.Format {
	case "", formatList, formatWord, formatBlocks:
	default:
		add("format", "No such format of replies", "Got %q. Write list, word or blocks.", c.Format)
	}
	ps = append(ps, config.Range("am", c.AM, 1, 1000)...)
	if c.OM < 0 || c.OM > c.AM {
		add("om", "Number of pictures is out of range", "Got %d. Write a number from 0 to am, which is %d.", c.OM, c.AM)
	}
	ps = append(ps, config.Range("max_loop", c.MaxLoop, 1, 100_000)...)
	ps = append(ps, config.NotNegative("max_tokens", c.MaxTokens)...)
	if c.Temperature != unset && (c.Temperature < 0 || c.Temperature > 2) {
		add("temperature", "Temperature is out of range", "Got %g. Write a number from 0 to 2, or -1.", c.Temperature)
	}
	if c.TopP != unset && (c.TopP <= 0 || c.TopP > 1) {
		add("top_p", "Share of tokens is out of range", "Got %g. Write a number above 0 and up to 1, or -1.", c.TopP)
	}
	// What the agent sees of a task has its own text, which newWorker compares.
	open := len(c.Observations) == 0
	ps = append(ps, config.InBraces.Problems("prompt", c.Prompt, open, append([]string{"actions", "format", "steps"}, c.Observations...)...)...)
	return append(ps, config.InBraces.Problems("continue_prompt", c.Continue, open, c.Observations...)...)
}

// unset leaves a number to the provider.
const unset = -1

func (c *Config) format() string {
	switch {
	case c.Format != "":
		return c.Format
	case c.Mode == modeGlobal:
		return formatList
	}
	return formatWord
}

func main() { plugins.Serve(served()) }

func served() plugins.Plugin {
	return plugins.Agent(plugins.Info{
		Name: "planner", Version: "1.0.0",
		Doc: "Plans what to do on the task's surface: all of it at once, or step by step with a memory of the last steps and pictures.",
	}, Config{}, planner())
}

func planner() loop.Agent[Config] {
	return loop.Agent[Config]{
		NoShell: true, Surface: true,
		New: func(ctx context.Context, s *loop.Session[Config]) (loop.Worker, error) {
			offer, err := s.Surface.Actions(ctx)
			if err != nil {
				return nil, fmt.Errorf("ask the surface for its actions: %w", err)
			}
			return newWorker(s, &offer)
		},
	}
}

var _ agent.Agent = loop.Agent[Config]{}
