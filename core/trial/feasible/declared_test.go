package feasible_test

import (
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/task"
)

// offers adds skills, and MCP servers of two transports, to a task.
func offers(t *task.Task) {
	t.Skills = []task.Skill{{Dir: "/skills"}}
	t.MCPServers = []task.MCPServer{{Name: "a", Transport: "stdio", Command: "a"}, {Name: "b", Transport: "sse", URL: "http://b"}}
}

// Whatever an agent says about skills and MCP servers, they are not lost silently.
func TestSkillsAndServersAreDeliveredToldOrRefused(t *testing.T) {
	t.Parallel()
	models := []model.Dialect{model.DialectOpenAIChat}
	const delivered, told, unused, refused = feasible.Delivered, feasible.Told, feasible.Unused, feasible.Refused
	for _, tt := range []struct {
		name        string
		needs       agent.Needs
		oracle      bool
		skills, mcp feasible.Delivery
	}{
		{"an agent that supports all", agent.Needs{Shell: true, Dialects: models, Skills: true, MCP: []string{"stdio", "sse"}}, false, delivered, delivered},
		{"an agent that supports one transport", agent.Needs{Shell: true, Dialects: models, MCP: []string{"stdio"}}, false, told, told},
		{"an agent that says nothing, with a shell", agent.Needs{Shell: true, Dialects: models}, false, told, told},
		{"an agent that says nothing, with a terminal", agent.Needs{Terminal: true, Dialects: models}, false, told, told},
		{"an agent that says nothing, without a shell", agent.Needs{Dialects: models}, false, refused, refused},
		{"an agent that supports all without a shell", agent.Needs{Dialects: models, Skills: true, MCP: []string{"stdio", "sse"}}, false, delivered, delivered},
		{"an agent without a model or a shell", agent.Needs{}, false, unused, unused},
		{"an oracle", agent.Needs{Shell: true}, true, unused, unused},
	} {
		tk, c := plainTask(), cell.Cell{Agent: cell.Agent{Plugin: "a", Oracle: tt.oracle}}
		offers(tk)
		skills, mcp := feasible.Deliver(tk, task.FeatureSkills, c, &tt.needs), feasible.Deliver(tk, task.FeatureMCP, c, &tt.needs)
		if skills != tt.skills || mcp != tt.mcp {
			t.Errorf("%s: skills %s, MCP servers %s; want %s, %s", tt.name, skills, mcp, tt.skills, tt.mcp)
		}
	}
	tk := plainTask()
	offers(tk)
	if way := feasible.Deliver(tk, task.FeatureSkills, cell.Cell{}, nil); way != "" {
		t.Errorf("an agent that could not be asked: %s", way)
	}
}

func offerCases() []unsupportedCase {
	without := func(t *task.Task, k *feasible.Known) {
		k.Agent, k.Gateway = &agent.Needs{}, true
		t.Stages[0].Reference = nil
	}
	return []unsupportedCase{
		{"skills for an agent without a shell", func(t *task.Task, c *cell.Cell, k *feasible.Known) {
			without(t, k)
			k.Agent.Dialects, c.Agent.Models = []model.Dialect{model.DialectOpenAIChat}, map[string]*cell.Model{"default": {Provider: "script"}}
			t.Skills = []task.Skill{{Dir: "/skills"}}
		}, `agent "a" cannot use the skills of the task: The task has skills in "/skills"`},
		{"MCP servers for an agent without a shell", func(t *task.Task, c *cell.Cell, k *feasible.Known) {
			without(t, k)
			k.Agent.Dialects, c.Agent.Models = []model.Dialect{model.DialectOpenAIChat}, map[string]*cell.Model{"default": {Provider: "script"}}
			t.MCPServers = []task.MCPServer{{Name: "m", Transport: "stdio", Command: "m"}}
		}, `agent "a" cannot use the MCP servers of the task: The task has MCP server "m"`},
		{"skills for an agent with a shell", func(t *task.Task, _ *cell.Cell, _ *feasible.Known) { offers(t) }, ""},
		{"skills for an agent without a model", func(t *task.Task, _ *cell.Cell, k *feasible.Known) {
			without(t, k)
			offers(t)
		}, ""},
	}
}
