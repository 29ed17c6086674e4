// Package verifiertest is the conformance kit of verifiers. It checks what
// every verifier must do, in process and through a built plugin.
//
// It must not know any verifier. Whether a verifier grades a given work
// correctly is for its author to test; Subject.Cases lets the kit check it,
// too.
package verifiertest

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Subject is a verifier under test.
type Subject struct {
	// Plugin is what the plugin's main function serves. Run fills in the next
	// three fields from it. Without it, Run serves Verifier as a verifier that
	// takes no configuration.
	Plugin   plugins.Plugin
	Verifier verifier.Verifier
	Traits   verifier.Traits
	// Capabilities are those that the plugin announces.
	Capabilities []string
	// Config is the configuration of every request that has none.
	Config json.RawMessage
	// Cases are submissions with their correct verdicts. Without any, the kit
	// tries the verifier on its own example, for which it accepts every verdict.
	Cases []Case
	// Models answer for as long as the kit runs, under the names of
	// Traits.Models; those of a case come first.
	Models map[string]model.Endpoint
	// Shell returns the address of a shell in a fresh sandbox, which lives as
	// long as t. Nil: clauses for verifiers that need a sandbox are skipped.
	Shell func(t *conformance.T) (address string, revoke func())
	// Load measures the processes of the plugin. Nil: the verifier is in this
	// process, and the kit cannot see what happens after a cancel.
	Load func() conformance.Load
}

// Case is one submission with its correct verdict.
type Case struct {
	Name string `json:"-"`
	// Dir is the folder that the case was read from, see LoadCases.
	Dir string `json:"-"`
	// Verifier is the only verifier that the case is for; empty: any.
	Verifier string `json:"verifier"`
	// Request is the input of Verify. The kit fills in View and Scratch if they
	// are empty, and Shell if the verifier needs one.
	Request verifier.Request `json:"-"`
	// Files are written below the view, by slash-separated name.
	Files map[string]string `json:"-"`
	// Sandbox is a folder. Its content is put into the root of the sandbox before
	// Verify. Empty: nothing is put there.
	Sandbox string `json:"-"`
	// Want is the decision; empty means any.
	Want verifier.Decision `json:"want"`
	// Scores are expected values of some scores of the verdict; nil: none.
	Scores map[string]float64 `json:"scores"`
}

// Run runs every clause as a subtest, through the same kind of connection that
// the host uses. Call it from the plugin's own tests:
//
//	verifiertest.Run(t, verifiertest.Subject{Plugin: plugins.Verifier(info, Config{}, traits, exact{}), Cases: cases})
func Run(t *testing.T, s Subject) {
	t.Helper()
	if s.Plugin.Name == "" {
		s.Plugin = plugins.Verifier(plugins.Info{Name: "subject"}, nil, s.Traits, s.Verifier)
	}
	conn, stop, err := plugins.Here(s.Plugin)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	s.Verifier = verifier.NewClient(conn, s.Plugin.Name, s.Plugin.Capabilities)
	s.Traits, s.Capabilities = s.Plugin.Verifier.With(s.Config), s.Plugin.Capabilities
	conformance.Test(t, s, Clauses())
}

// Clauses returns all clauses of the kit in the order in which they run.
func Clauses() []conformance.Clause[Subject] {
	all := slices.Concat(verdictClauses, accidentClauses)
	for i := range all {
		own := all[i].Skip
		all[i].Skip = func(s Subject) string {
			switch {
			case s.Traits.Needs != verifier.NeedsNone && s.Shell == nil:
				return "it works in a sandbox, and none can be made here: berth doctor says why"
			case own != nil:
				return own(s)
			}
			return ""
		}
	}
	return all
}
