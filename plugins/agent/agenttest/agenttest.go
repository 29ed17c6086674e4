// Package agenttest is the conformance kit of agents: what every agent must do,
// however it works, in process and through a built plugin.
//
// It must not know any agent, and it does not say how good one is.
package agenttest

import (
	"context"
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
	// Plugin is what the plugin's main serves, for Run, which fills in Agent;
	// without it Run serves Agent as one that takes no configuration.
	Plugin plugins.Plugin
	Agent  agent.Agent
	// Config is a block that the agent accepts; empty means none.
	Config json.RawMessage
	// Role is what sessions are opened as; empty means agent.RoleAgent.
	Role agent.Role
	// Reference is handed to sessions with agent.RoleOracle.
	Reference *agent.Reference
	// Models are endpoints that answer for as long as the kit runs. An agent
	// that speaks a dialect and finds none here has its sessions skipped.
	Models map[string]model.Endpoint
	// Shell returns the address of a shell in a fresh sandbox, which lives as
	// long as t, and a function that revokes it. Nil: sessions of agents that
	// need a shell are skipped.
	Shell func(ctx context.Context, t *conformance.T) (address string, revoke func())
	// Inside returns the models as they are reached from inside the sandbox of
	// a shell, for as long as t. Nil: they are not.
	Inside func(ctx context.Context, t *conformance.T, address string) map[string]model.Endpoint
}

// Run tries every clause, one subtest each, through a connection as the host
// has it. Call it from the plugin's own tests:
//
//	agenttest.Run(t, agenttest.Subject{Plugin: plugins.Agent(info, Config{}, nop{})})
func Run(t *testing.T, s Subject) {
	t.Helper()
	if s.Plugin.Name == "" {
		s.Plugin = plugins.Agent(plugins.Info{Name: "subject"}, nil, s.Agent)
	}
	if s.Plugin.Kind != plugins.KindAgent {
		t.Fatalf("%s %q is no agent", s.Plugin.Kind, s.Plugin.Name)
	}
	conn, stop, err := plugins.Here(s.Plugin)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	s.Agent = agent.NewClient(conn, s.Plugin.Name)
	conformance.Test(t, s, Clauses())
}

// Clauses are all clauses of the kit, in the order in which they are tried.
func Clauses() []conformance.Clause[Subject] {
	return slices.Concat(needsClauses, sessionClauses)
}
