package main

import (
	"fmt"

	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/output"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Config is the body of a verifier block's config. The defaults are those of
// GauntletBench.
type Config struct {
	RMSE        float64 `berth:"rmse" default:"0.03" doc:"A pair of pictures is looked at if the root of their mean square difference reaches this, as a share of the largest possible."`
	Changed     float64 `berth:"changed" default:"0.01" doc:"A pair is also looked at if this share of the pixels differs at all."`
	MaxPairs    int     `berth:"max_pairs" default:"200" doc:"How many pairs are looked at. If there are more, these are the ones that differ most."`
	PairsEffort string  `berth:"pairs_effort" default:"" doc:"How hard the model pairs should think, in the provider's own word; empty leaves it to the provider."`
	FinalEffort string  `berth:"final_effort" default:"" doc:"How hard the model final should think."`
	Schema      string  `berth:"schema" default:"berth" enum:"berth,paper" doc:"berth: confidence is a number, and the verdict of the comparator binds the model final. paper: confidence is high, medium or low, and the verdict is supporting context."`
	Clamp       bool    `berth:"clamp" default:"false" doc:"A score that is not possible counts as the nearest one that is, 5 after a 0 as 4, and is no error."`
	PairsSystem string  `berth:"pairs_system" default:"" doc:"System prompt of the model pairs, in place of the judge's own: file(\"my.txt\")."`
	PairsPrompt string  `berth:"pairs_prompt" default:"" doc:"Question about a pair, in place of the judge's own, with the placeholders of GauntletBench: {TASK_PROMPT}, {SUCCESS_CONDITION}, {ACTION_TEXT}, {PRIOR_STATE_SUMMARY_JSON}."`
	FinalSystem string  `berth:"final_system" default:"" doc:"System prompt of the model final."`
	FinalPrompt string  `berth:"final_prompt" default:"" doc:"Question for the score: {TASK_PROMPT}, {SUCCESS_CONDITION}, {LLM_JUDGE_GT}, {OBJECTIVE_EVALUATION_RESULT}, {TRAJECTORY_EVENTS_JSON}, {FINAL_AGENT_ANSWER}."`
}

// maxPairs is the largest number of pairs that makes sense.
const maxPairs = 10_000

// Validate implements config.Validator.
func (c *Config) Validate() (ps []config.Problem) {
	for _, share := range []struct {
		key   string
		value float64
	}{{"rmse", c.RMSE}, {"changed", c.Changed}} {
		if !(share.value > 0 && share.value <= 1) {
			ps = append(ps, config.Problem{Path: config.Path(share.key), Summary: "A share is out of range", Detail: fmt.Sprintf("Got %g. Write a number above 0 and up to 1.", share.value)})
		}
	}
	ps = append(ps, config.Range("max_pairs", c.MaxPairs, 0, maxPairs)...)
	ps = append(ps, config.InCapitals.Problems("pairs_prompt", c.PairsPrompt, false, "TASK_PROMPT", "SUCCESS_CONDITION", "ACTION_TEXT", "PRIOR_STATE_SUMMARY_JSON")...)
	return append(ps, config.InCapitals.Problems("final_prompt", c.FinalPrompt, false,
		"TASK_PROMPT", "SUCCESS_CONDITION", "LLM_JUDGE_GT", "OBJECTIVE_EVALUATION_RESULT", "TRAJECTORY_EVENTS_JSON", "FINAL_AGENT_ANSWER")...)
}

// settings are what a task says to the judge.
type settings struct {
	Instruction      string `berth:"instruction" default:"" doc:"The task as text. Empty: instruction.md of the view."`
	SuccessCondition string `berth:"success_condition" default:"" doc:"When the task is done."`
	Truth            string `berth:"llm_judge_gt" default:"" doc:"How a good result looks."`
}

// maxTask is how much of the task the models see, in bytes.
const maxTask = 256 << 10

// read reads the task's settings, strictly because they decide what a result is,
// and the configuration.
func read(r *verifier.Request) (c Config, s settings, err error) {
	if ps := config.Validate(r.Config, &c); len(ps) > 0 {
		return c, s, fmt.Errorf("config of this verifier: %w", config.Problems(ps))
	}
	if err = config.Decode(r.Settings, &s); err != nil {
		return c, s, fmt.Errorf("settings of the task for this verifier: %w", err)
	}
	if s.Instruction == "" {
		text, err := r.ReadFile("instruction.md", 64<<20)
		if err != nil {
			return c, s, fmt.Errorf("the task: %v", err) //nolint:errorlint // it is no artifact that the agent did not leave
		}
		s.Instruction = string(text)
	}
	s.Instruction = output.First(s.Instruction, maxTask)
	return c, s, nil
}
