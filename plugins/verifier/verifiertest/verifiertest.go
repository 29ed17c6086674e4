// Package verifiertest is the conformance kit of verifiers: what every verifier
// must do, whatever it judges, in process and through a built plugin.
//
// It must not know any verifier. What a verifier is to say about a given work is
// its author's to test; Subject.Cases lets the kit try that, too.
package verifiertest

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Subject is a verifier under test.
type Subject struct {
	// Plugin is what the plugin's main serves, for Run, which fills in the next
	// three; without it Run serves Verifier as one that takes no configuration.
	Plugin   plugins.Plugin
	Verifier verifier.Verifier
	Traits   verifier.Traits
	// Capabilities are those that the plugin announces.
	Capabilities []string
	// Config is the configuration of every request that has none of its own.
	Config json.RawMessage
	// Cases are works whose verdict the author knows. Without any, the kit
	// tries the verifier on works of its own, where any verdict will do.
	Cases []Case
	// Shell returns the address of a shell in a fresh sandbox, which lives as
	// long as t. Nil: clauses for verifiers that need a sandbox are skipped.
	Shell func(ctx context.Context, t *conformance.T) string
}

// Case is one work with the verdict that it deserves.
type Case struct {
	Name string
	// Request is what the verifier is asked; View and Scratch are made by the
	// kit when they are empty, Shell when the verifier needs one.
	Request verifier.Request
	// Files are written below the view, by slash-separated name.
	Files map[string]string
	// Want is the decision; empty means any.
	Want verifier.Decision
}

// Run tries every clause, one subtest each, through a connection as the host
// has it. Call it from the plugin's own tests:
//
//	verifiertest.Run(t, verifiertest.Subject{Plugin: plugins.Verifier(info, Config{}, traits, exact{}), Cases: cases})
func Run(t *testing.T, s Subject) {
	t.Helper()
	if s.Plugin.Name == "" {
		s.Plugin = plugins.Verifier(plugins.Info{Name: "subject"}, nil, s.Traits, s.Verifier)
	}
	if s.Plugin.Kind != plugins.KindVerifier {
		t.Fatalf("%s %q is no verifier", s.Plugin.Kind, s.Plugin.Name)
	}
	conn, stop, err := plugins.Here(s.Plugin)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	s.Verifier = verifier.NewClient(conn, s.Plugin.Name, s.Plugin.Capabilities)
	s.Traits, s.Capabilities = *s.Plugin.Verifier, s.Plugin.Capabilities
	conformance.Test(t, s, Clauses())
}

// Clauses are all clauses of the kit, in the order in which they are tried.
func Clauses() []conformance.Clause[Subject] {
	return slices.Concat(verdictClauses, accidentClauses)
}
