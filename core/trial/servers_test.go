package trial_test

import (
	"context"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/task"
)

// The agent gets the complete MCP servers of a task, with the values of the
// host.
func TestServersOfATaskReachTheAgent(t *testing.T) {
	t.Parallel()
	var got []agent.Server
	a := turn(func(_ context.Context, act *actor) (agent.Yield, error) {
		got = act.setup.Servers
		return agent.Yield{End: agent.Done}, nil
	})
	b := newBench(t, a, tests("true"))
	b.envVars = map[string]string{"TOKEN": "t-1"}
	b.task.MCPServers = []task.MCPServer{
		{Name: "fs", Transport: "stdio", Command: "mcp-fs", Args: []string{"/"}, Env: task.Env{"MODE": {Text: "ro"}, "KEY": {Host: "TOKEN"}}},
		{Name: "web", Transport: "sse", URL: "http://web", Headers: task.Env{"Authorization": {Host: "TOKEN"}}},
	}
	want(t, b.run(t.Context(), t), record.Passed, record.Yielded, record.Checked)
	if expect := []agent.Server{
		{Name: "fs", Transport: "stdio", Command: "mcp-fs", Args: []string{"/"}, Env: map[string]string{"MODE": "ro", "KEY": "t-1"}},
		{Name: "web", Transport: "sse", URL: "http://web", Headers: map[string]string{"Authorization": "t-1"}},
	}; pretty(got) != pretty(expect) {
		t.Errorf("got %+v, want %+v", got, expect)
	}
}
