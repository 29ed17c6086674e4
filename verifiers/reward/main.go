// Command reward serves a verifier that makes a score of the rewards that a surface
// gave. It also counts what the agent's model put out, and says if that was no
// play at all.
//
// It is a pure function of the record and the settings.
package main

import (
	"fmt"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/verifier"
)

func main() { plugins.Serve(served()) }

func served() plugins.Plugin {
	return plugins.Verifier(plugins.Info{
		Name: "reward", Version: "1.0.0",
		Doc:      "Makes a score of the rewards that a surface gave: their sum, last, best or mean, beside a bound.",
		Settings: plugins.SettingsAreConfig[Config],
	}, Config{}, verifier.Traits{Needs: verifier.NeedsNone}, judge{})
}

// Config are the settings. A task sets them, and the config block of an experiment
// replaces what it names.
type Config struct {
	Reduce string            `berth:"reduce" default:"sum" enum:"sum,last,best,mean,none" doc:"What is made of the rewards: their sum, the last one, the greatest sum up to any step (best), or their mean. none: no score, and only outputs and actions are counted."`
	From   int               `berth:"from" default:"0" doc:"The first step whose sum counts for best. 0: the sum before the first step, which is 0, counts too."`
	Bound  float64           `berth:"bound" default:"0" doc:"What is subtracted from the reduced reward, such as that of the best known solution."`
	Scale  float64           `berth:"scale" default:"1" doc:"What the difference is multiplied with."`
	Offset float64           `berth:"offset" default:"0" doc:"What is added then. The score is (reward − bound) · scale + offset; it has no range."`
	Stages string            `berth:"stages" default:"one" enum:"one,all" doc:"Whether the rewards, outputs and actions of the verifier's own stage count, or those of all stages so far."`
	IfeAt  float64           `berth:"ife_at" default:"0.9" doc:"The label ife is given if this share of the outputs, or more, has no action, or if this share of two or more actions is the same and the bound is not reached."`
	Labels map[string]string `berth:"labels" doc:"Labels that every result gets."`
}

// Validate implements config.Validator.
func (c *Config) Validate() (ps []config.Problem) {
	for path, v := range map[string]float64{"bound": c.Bound, "scale": c.Scale, "offset": c.Offset} {
		ps = append(ps, config.Range(config.Path(path), v, -largest, largest)...)
	}
	ps = append(ps, config.NotNegative("from", c.From)...)
	if !(c.IfeAt > 0 && c.IfeAt <= 1) {
		ps = append(ps, config.Problem{Path: config.Path("ife_at"), Summary: "Share is out of range", Detail: fmt.Sprintf("Got %g. Write a number above 0 and up to 1.", c.IfeAt)})
	}
	return ps
}

// largest is the largest number that is used as a reward or a setting.
const largest = 1e12
