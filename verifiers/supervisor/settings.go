package main

import (
	"fmt"

	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/model/chat"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Config is the body of a verifier block's config. What it does not set is as the
// task says, or else as the documentation of each key says.
type Config struct {
	Rubric       *string  `berth:"rubric" doc:"File with the rubric, as a path in the verifier's view. Default: the task's, or references/eval_rule.md."`
	Instructions *string  `berth:"instructions" doc:"Further instructions for the supervisor, after its own. Default: the task's."`
	Prompt       string   `berth:"prompt" default:"" doc:"What the supervisor's model is told first, in place of the supervisor's own text: file(\"my.md\"). docs/closed-loop.md lists its placeholders."`
	Gate         *string  `berth:"gate" enum:"auto,strict,text,long_text" doc:"When a turn counts as completed, without which nothing passes, as docs/closed-loop.md says. Default: the task's, or auto."`
	Deferred     *string  `berth:"deferred" enum:"stop,nudge" doc:"What follows when work passes but the turn was not completed, and messages are left. stop: the user is not asked. nudge: a fixed line asks the agent to finish. Default: the task's, or stop."`
	HandoffScore *bool    `berth:"handoff_score" doc:"Whether the user learns the score. Default: the task's, or true."`
	Tools        string   `berth:"tools" enum:"view,sandbox" default:"view" doc:"What the supervisor's model can do. view: list, read and search the files of its view, and look at pictures. sandbox: also run commands in a separate sandbox."`
	Effort       string   `berth:"reasoning_effort" default:"" doc:"How hard the model should think, in the provider's own word; empty leaves it to the provider."`
	Temperature  *float64 `berth:"temperature" doc:"Sampling temperature; absent leaves it to the provider."`
}

// Validate implements config.Validator.
func (c *Config) Validate() []config.Problem {
	return append(config.InBraces.Problems("prompt", c.Prompt, false, "task", "instructions", "rubric", "tags", "commands"),
		chat.TemperatureProblems("temperature", c.Temperature)...)
}

// ResultConfig is the body of the config of loop-result.
type ResultConfig struct {
	Threshold     *float64 `berth:"threshold" doc:"Score from 0 to 1 from which an attempt passes. Default: the task's, or 1."`
	CompletedOnly *bool    `berth:"completed_only" doc:"Count the scores of completed turns only, as UniClawBench's paper says; its program counts all. Default: the task's, or false."`
}

// Validate implements config.Validator.
func (c *ResultConfig) Validate() []config.Problem {
	if c.Threshold == nil {
		return nil
	}
	return config.Range("threshold", *c.Threshold, 0, 1)
}

// said is what a task says.
type said struct {
	Rubric       string `berth:"rubric" default:"references/eval_rule.md" doc:"File with the rubric, as a path in the verifier's view."`
	Instructions string `berth:"instructions" default:"" doc:"Further instructions for the supervisor, after its own."`
	Gate         string `berth:"gate" default:"auto" enum:"auto,strict,text,long_text" doc:"When a turn counts as completed."`
	Deferred     string `berth:"deferred" default:"stop" enum:"stop,nudge" doc:"What follows when work passes but the turn was not completed."`
	HandoffScore bool   `berth:"handoff_score" default:"true" doc:"Whether the user learns the score."`
}

// settings are what a task says, and what the experiment says instead.
type settings struct {
	said

	prompt      string
	tools       string
	effort      string
	temperature *float64
}

// toolsSandbox is the word of Config.Tools with which the supervisor has a sandbox
// of its own.
const toolsSandbox = "sandbox"

// resultSettings are the same for loop-result.
type resultSettings struct {
	Threshold     float64 `berth:"threshold" default:"1" doc:"Score from which an attempt passes."`
	CompletedOnly bool    `berth:"completed_only" default:"false" doc:"Count the scores of completed turns only."`
}

// Validate implements config.Validator.
func (s *resultSettings) Validate() []config.Problem {
	return (&ResultConfig{Threshold: &s.Threshold}).Validate()
}

func settingsOf(r *verifier.Request) (settings, error) {
	var s settings
	var c Config
	if err := read(r, &s.said, &c); err != nil {
		return s, err
	}
	replace(&s.Rubric, c.Rubric)
	replace(&s.Instructions, c.Instructions)
	replace(&s.Gate, c.Gate)
	replace(&s.Deferred, c.Deferred)
	replace(&s.HandoffScore, c.HandoffScore)
	s.prompt, s.tools, s.effort, s.temperature = c.Prompt, c.Tools, c.Effort, c.Temperature
	return s, nil
}

func resultSettingsOf(r *verifier.Request) (resultSettings, error) {
	var s resultSettings
	var c ResultConfig
	if err := read(r, &s, &c); err != nil {
		return s, err
	}
	replace(&s.Threshold, c.Threshold)
	replace(&s.CompletedOnly, c.CompletedOnly)
	return s, nil
}

// read reads the task's settings and the experiment's configuration. Settings are
// read strictly, because they decide what a result is.
func read(r *verifier.Request, s, c any) error {
	if ps := config.Validate(r.Settings, s); len(ps) > 0 {
		return fmt.Errorf("settings of the task for this verifier: %w", config.Problems(ps))
	}
	return config.Decode(r.Config, c)
}

// replace sets a value if there is another.
func replace[T any](to, by *T) {
	if by != nil {
		*to = *by
	}
}
