package main

import (
	"fmt"

	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/model/chat"
)

// Config is the body of an agent block's config.
type Config struct {
	Protocol        string   `berth:"protocol" default:"json" enum:"json,xml" doc:"How the model writes its replies."`
	MaxTurns        int64    `berth:"max_turns" default:"0" doc:"Replies of the model after which the agent stops; 0: no limit of its own. Those for a summary do not count."`
	ReasoningEffort string   `berth:"reasoning_effort" default:"" doc:"How hard the model should think, in the provider's own word; empty leaves it to the provider."`
	Temperature     *float64 `berth:"temperature" doc:"Sampling temperature; absent leaves it to the provider."`
	MaxTokens       int64    `berth:"max_tokens" default:"0" doc:"Bound of one reply, in tokens; 0 leaves it to the provider, or is 16384 where the provider wants a number."`
	ContextTokens   int64    `berth:"context_tokens" default:"0" doc:"Size of the model's context, in tokens; 0: not known, so that a summary is made only when the provider says that a request is too long."`
	Summarize       bool     `berth:"summarize" default:"true" doc:"Whether a conversation that becomes too long is summarized in three steps; else the agent begins anew with the instruction and the screen."`
	SummarizeBelow  int64    `berth:"summarize_below" default:"8000" doc:"Free tokens of the context under which a summary is made ahead of time; 0: never. Needs context_tokens."`
	OutputBytes     int      `berth:"output_bytes" default:"10000" doc:"How much of the terminal the model sees after each turn, in bytes: the beginning and the end."`
	Rows            int      `berth:"rows" default:"40" doc:"Height of the terminal, in lines."`
	Columns         int      `berth:"columns" default:"160" doc:"Width of the terminal, in characters."`
	Shell           []string `berth:"shell" doc:"What runs in the terminal; absent: bash, or else sh."`
	Record          bool     `berth:"record" default:"true" doc:"Whether the terminal is recorded, as asciicast v2, in agent/terminal.cast."`
	RawContent      bool     `berth:"raw_content" default:"false" doc:"Whether the trajectory keeps the model's replies as they came, without tool calls made of them."`
}

// Limits of the configuration.
const (
	minRows, maxRows       = 10, 200
	minColumns, maxColumns = 40, 500
	minOutput              = 1000
)

// Validate implements config.Validator.
func (c *Config) Validate() (ps []config.Problem) {
	say := func(path config.Path, summary, format string, args ...any) {
		ps = append(ps, config.Problem{Path: path, Summary: summary, Detail: fmt.Sprintf(format, args...)})
	}
	between := func(path config.Path, n, low, high int) {
		if n < low || n > high {
			say(path, fmt.Sprintf("%s is out of range", path), "Got %d. Write a number from %d to %d.", n, low, high)
		}
	}
	between("rows", c.Rows, minRows, maxRows)
	between("columns", c.Columns, minColumns, maxColumns)
	between("output_bytes", c.OutputBytes, minOutput, 1<<20)
	for path, n := range map[config.Path]int64{
		"max_turns": c.MaxTurns, "max_tokens": c.MaxTokens, "context_tokens": c.ContextTokens, "summarize_below": c.SummarizeBelow,
	} {
		if n < 0 {
			say(path, fmt.Sprintf("%s is negative", path), "Got %d. Write 0 or more.", n)
		}
	}
	if c.ContextTokens > 0 && c.SummarizeBelow >= c.ContextTokens {
		say("summarize_below", "summarize_below is as large as the context", "Got %d of %d tokens. Write a part of context_tokens.", c.SummarizeBelow, c.ContextTokens)
	}
	return append(ps, chat.TemperatureProblems("temperature", c.Temperature)...)
}
