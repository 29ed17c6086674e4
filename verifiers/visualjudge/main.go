// Command visualjudge serves the verifier visual-judge: models that look at the
// pictures of a surface and give a score from 1 to 5, after a comparator has decided
// whether the task was done.
//
// Its score decides nothing. Everything that the pictures and the agent say is data.
package main

import (
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/verifier"
)

// The models of the judge.
const (
	modelPairs = "pairs" // says what changed between two pictures
	modelFinal = "final" // gives the score
)

func main() { plugins.Serve(served()) }

func served() plugins.Plugin {
	return plugins.Verifier(plugins.Info{
		Name: "visual-judge", Version: "1.0.0",
		Doc:      "Models that look at the pictures of a surface: one says what changed from each to the next, and one gives a score from 1 to 5. The score decides nothing, and keeps to the verdict of the comparator before it.",
		Settings: func(s plugins.Settings) []config.Problem { return config.Validate(s.JSON, &settings{}) },
	}, Config{}, verifier.Traits{Needs: verifier.NeedsNone, Models: []string{modelPairs, modelFinal}}, judge{})
}
