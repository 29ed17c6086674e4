package feasible

import (
	"fmt"
	"slices"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/task"
)

// Delivery is how a cell delivers a feature that a task declares.
type Delivery string

// The deliveries. The zero value means that a plugin could not be asked.
const (
	Delivered Delivery = "delivered"
	Told      Delivery = "told"    // the agent does not support it: the first message says where it is
	Reduced   Delivery = "reduced" // the experiment grants less
	Unused    Delivery = "unused"  // the agent uses no model, or is an oracle
	Refused   Delivery = "refused" // the cell cannot run the task because of it
)

// Deliver returns how a cell delivers a feature of a task that the cell can run.
func Deliver(t *task.Task, f task.Feature, c cell.Cell, n *agent.Needs) Delivery {
	switch f {
	case task.FeatureSkills, task.FeatureMCP:
		return offered(t, f, c, n)
	case task.FeatureNetwork:
		if _, modified, err := Network(t, c.Environment.Network); err == nil && len(modified) > 0 {
			return Reduced
		}
	case task.FeatureInteraction:
		if c.User == nil {
			return Reduced
		}
	default:
	}
	return Delivered
}

// offered returns how the agent of a cell learns of skills or MCP servers. This is the
// only rule about them: what an agent does not announce to support is written in the
// first message of its session, which helps only an agent with a shell.
func offered(t *task.Task, f task.Feature, c cell.Cell, n *agent.Needs) Delivery {
	supported := n != nil && f == task.FeatureSkills && n.Skills
	if n != nil && f == task.FeatureMCP {
		supported = !slices.ContainsFunc(t.MCPServers, func(m task.MCPServer) bool { return !slices.Contains(n.MCP, m.Transport) })
	}
	switch {
	case n == nil:
		return ""
	case c.Agent.Oracle:
		return Unused
	case supported:
		return Delivered
	case n.Shell || n.Terminal:
		return Told
	case len(n.Dialects) == 0:
		return Unused
	default:
		return Refused
	}
}

// offerProblems says why an agent cannot learn of the skills and MCP servers of a task.
func offerProblems(t *task.Task, c cell.Cell, k Known) (ps []Problem) {
	for _, n := range t.Needs() {
		if (n.Feature == task.FeatureSkills || n.Feature == task.FeatureMCP) && offered(t, n.Feature, c, k.Agent) == Refused {
			ps = append(ps, Problem{
				Summary: fmt.Sprintf("agent %q cannot use the %s of the task", c.Agent.Plugin, map[task.Feature]string{task.FeatureSkills: "skills", task.FeatureMCP: "MCP servers"}[n.Feature]),
				Detail:  fmt.Sprintf("The task has %s. The agent has no support for them, and no shell to reach them. Choose another agent, or exclude the task.", n.Detail),
			})
		}
	}
	return ps
}
