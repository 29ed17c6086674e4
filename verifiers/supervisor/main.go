// Command supervisor serves two verifiers for attempts in which a simulated user
// asks for more: supervisor, a model that judges each round with the task's
// rubric, and loop-result, which makes the result of an attempt out of all
// rounds.
//
// What the agent wrote is data: nothing of it decides what the supervisor does,
// and no text of the supervisor's model reaches the user or the agent.
package main

import (
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/verifier"
)

func main() {
	plugins.Serve(
		plugins.Verifier(plugins.Info{
			Name: "supervisor", Version: "1.0.0",
			Doc:      "A model that judges each round of an attempt with the task's rubric, and decides whether the user may ask for more.",
			Settings: func(s plugins.Settings) []config.Problem { return config.Validate(s.JSON, &said{}) },
		}, Config{}, verifier.Traits{
			Needs: verifier.NeedsNone, Models: []string{"default"}, Rounds: true, OwnWith: map[string]string{"tools": toolsSandbox},
		}, supervisor{}),
		plugins.Verifier(plugins.Info{
			Name: "loop-result", Version: "1.0.0",
			Doc:      "Makes the result of an attempt out of the judgements of all its rounds by the verifier supervisor. The best score counts.",
			Settings: plugins.SettingsAreConfig[ResultConfig],
		}, ResultConfig{}, verifier.Traits{Needs: verifier.NeedsNone}, loopResult{}),
	)
}
