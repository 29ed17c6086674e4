// Package agenttest is the conformance kit of agents. It checks what every
// agent must do, in process and through a built plugin.
//
// It must not know any agent, and it does not measure how well an agent works.
package agenttest

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/model"
)

// Subject is an agent under test.
type Subject struct {
	// Plugin is what the plugin's main function serves. Run fills in Agent from
	// it. Without it, Run serves Agent as an agent that takes no configuration.
	Plugin plugins.Plugin
	Agent  agent.Agent
	// Config is a block that the agent accepts; empty means none.
	Config json.RawMessage
	// Role is the role of the sessions; empty means agent.RoleAgent.
	Role agent.Role
	// Reference is passed to sessions with agent.RoleOracle.
	Reference *agent.Reference
	// Models are endpoints that answer as long as the kit runs. If an agent
	// speaks a dialect and Models is empty, the clauses about sessions are
	// skipped.
	Models map[string]model.Endpoint
	// Shell returns the address of a shell in a fresh sandbox, which lives as
	// long as t, and a function that revokes it. Nil: sessions of agents that
	// need a shell are skipped.
	Shell func(t *conformance.T) (address string, revoke func())
	// Inside returns the endpoints of the models as seen from inside the
	// sandbox of a shell, valid as long as t. Nil: the models cannot be reached
	// from inside.
	Inside func(t *conformance.T, address string) map[string]model.Endpoint
	// Asked returns how many requests Models and Inside have got so far. Nil: not
	// known, and an agent that never asks its model is not found.
	Asked func() int64
	// Seen reports whether a request to Models or Inside had a text. Nil: not known, and
	// an agent that leaves out skills which it announces to support is not found.
	Seen func(text string) bool
	// Load is what the plugin's processes come to. Nil: the agent is in this
	// process, and what happens after a turn was cut off is not seen.
	Load func() conformance.Load
}

// Run runs every clause as a subtest, through the same kind of connection that
// the host uses. Call it from the plugin's own tests:
//
//	agenttest.Run(t, agenttest.Subject{Plugin: plugins.Agent(info, Config{}, nop{})})
func Run(t *testing.T, s Subject) {
	t.Helper()
	if s.Plugin.Name == "" {
		s.Plugin = plugins.Agent(plugins.Info{Name: "subject"}, nil, s.Agent)
	}
	conn, stop, err := plugins.Here(s.Plugin)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	s.Agent = agent.NewClient(conn, s.Plugin.Name)
	conformance.Test(t, s, Clauses())
}

// Clauses returns all clauses of the kit in the order in which they run.
func Clauses() []conformance.Clause[Subject] {
	return slices.Concat(needsClauses, sessionClauses)
}
