// Command compare serves five verifiers that compare what an agent made with a
// ground truth: the fields of an answer, the timeline of a video, a workflow, a 3D
// scene, and a logic circuit.
//
// They are pure functions of the ground truth, the prediction and the settings.
// The prediction is untrusted: whatever it is, it is a verdict and no error.
package main

import (
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/verifier"
)

func main() { plugins.Serve(served()...) }

// served returns the verifiers of this program.
func served() []plugins.Plugin {
	return []plugins.Plugin{
		serve("compare-fields", "Compares the fields of a JSON answer with the expected ones: texts, numbers with units, lists in any order, times of day.", compareFields),
		serve("compare-timeline", "Compares the export of a video editor with the expected one: clips, sounds, texts, and the effects of some scenarios.", compareTimeline),
		serve("compare-graph", "Compares a workflow of nodes and edges with the expected one. Ids and positions of nodes do not count.", compareGraph),
		serve("compare-scene", "Compares a 3D scene with the expected one: its objects, and the settings of the view.", compareScene),
		serve("compare-circuit", "Compares a logic circuit with the expected one by their truth tables, or an answer by its fields.", compareCircuit),
	}
}

func serve[C any](name, doc string, compare func(given, *C) (outcome, error)) plugins.Plugin {
	var empty C
	return plugins.Verifier(plugins.Info{Name: name, Version: "1.0.0", Doc: doc, Settings: func(s plugins.Settings) []config.Problem {
		var c C
		return read(s, &c)
	}}, empty,
		verifier.Traits{Needs: verifier.NeedsNone}, comparator[C]{compare})
}
