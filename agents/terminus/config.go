package main

import (
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/model/chat"
)

// Config is the body of an agent block's config.
type Config struct {
	MaxTurns        int64    `berth:"max_turns" default:"0" doc:"Replies of the model after which the agent stops; 0: no separate limit. Those for a summary do not count."`
	ReasoningEffort string   `berth:"reasoning_effort" default:"" doc:"How hard the model should think, in the provider's own word; empty leaves it to the provider."`
	Temperature     *float64 `berth:"temperature" doc:"Sampling temperature; absent leaves it to the provider."`
	MaxTokens       int64    `berth:"max_tokens" default:"0" doc:"Bound of one reply, in tokens; 0 leaves it to the provider, or is 16384 where the provider wants a number."`
}

// The size of the terminal, and how much of it the model sees after each turn, in
// bytes: the beginning and the end.
const (
	rows        = 40
	columns     = 160
	outputBytes = 10_000
)

// Validate implements config.Validator.
func (c *Config) Validate() (ps []config.Problem) {
	ps = append(config.NotNegative("max_turns", c.MaxTurns), config.NotNegative("max_tokens", c.MaxTokens)...)
	return append(ps, chat.TemperatureProblems("temperature", c.Temperature)...)
}
