package main

import (
	"fmt"

	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/model/chat"
	"github.com/berth-eval/berth/plugins/verifier"
)

// said is what a task says, and what an experiment can say instead.
type said struct {
	Rubric       string `berth:"rubric" default:"references/eval_rule.md" doc:"File with the rubric, as a path in the verifier's view. The task's setting comes before the default."`
	Instructions string `berth:"instructions" default:"" doc:"Further instructions for the supervisor, after its own. The task's setting comes before the default."`
	Gate         string `berth:"gate" default:"auto" enum:"auto,strict,text,long_text" doc:"When a turn counts as completed, without which nothing passes, as docs/closed-loop.md says. The task's setting comes before the default."`
	Deferred     string `berth:"deferred" default:"stop" enum:"stop,nudge" doc:"What follows when work passes but the turn was not completed, and messages are left. stop: the user is not asked. nudge: a fixed line asks the agent to finish. The task's setting comes before the default."`
	HandoffScore bool   `berth:"handoff_score" default:"true" doc:"Whether the user learns the score. The task's setting comes before the default."`
}

// Config is the body of a verifier block's config. What it does not set of what a
// task can say is as the task says.
type Config struct {
	said

	Prompt      string   `berth:"prompt" default:"" doc:"What the supervisor's model is told first, in place of the supervisor's own text: file(\"my.md\"). docs/closed-loop.md lists its placeholders."`
	Tools       string   `berth:"tools" enum:"view,sandbox" default:"view" doc:"What the supervisor's model can do. view: list, read and search the files of its view, and look at pictures. sandbox: also run commands in a separate sandbox."`
	Effort      string   `berth:"reasoning_effort" default:"" doc:"How hard the model should think, in the provider's own word; empty leaves it to the provider."`
	Temperature *float64 `berth:"temperature" doc:"Sampling temperature; absent leaves it to the provider."`
}

// toolsSandbox is the word of Config.Tools with which the supervisor has a sandbox
// of its own.
const toolsSandbox = "sandbox"

// Validate implements config.Validator.
func (c *Config) Validate() []config.Problem {
	return append(config.InBraces.Problems("prompt", c.Prompt, false, "task", "instructions", "rubric", "tags", "commands"),
		chat.TemperatureProblems("temperature", c.Temperature)...)
}

// ResultConfig is the body of the config of loop-result.
type ResultConfig struct {
	Threshold     float64 `berth:"threshold" default:"1" doc:"Score from 0 to 1 from which an attempt passes. The task's setting comes before the default."`
	CompletedOnly bool    `berth:"completed_only" default:"false" doc:"Count the scores of completed turns only, as UniClawBench's paper says; its program counts all. The task's setting comes before the default."`
}

// Validate implements config.Validator.
func (c *ResultConfig) Validate() []config.Problem {
	return config.Range("threshold", c.Threshold, 0, 1)
}

// settingsOf reads the task's settings and the experiment's configuration. A task
// can set less than an experiment.
func settingsOf(r *verifier.Request) (c Config, err error) {
	if ps := config.Validate(r.Settings, &said{}); len(ps) > 0 {
		return c, fmt.Errorf("settings of the task for this verifier: %w", config.Problems(ps))
	}
	return c, r.DecodeSettings(&c)
}
