package trial_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/cell"
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

// The agent gets the folders of skills, and none works without a skill that the image
// must have. The folders that a task expects are there, and any user can write to them.
func TestSkillsAndFoldersOfATask(t *testing.T) {
	t.Parallel()
	var got []string
	a := turn(func(ctx context.Context, act *actor) (agent.Yield, error) {
		got = act.setup.Skills
		return agent.Yield{End: agent.Done}, act.sh(ctx, `[ "$(stat -c %a /work/in/results)" = 777 ] && echo 1 > /work/in/results/a`)
	})
	b := newBench(t, a, tests("true"))
	b.task.Paths.Folders = []string{"/work/in", "/work/in/results"}
	b.task.Skills = []task.Skill{{Dir: "/skills"}, {Dir: "/", FromImage: []string{"bin"}}}
	res := b.run(t.Context(), t)
	want(t, res, record.Passed, record.Yielded, record.Checked)
	missing := slices.DeleteFunc(slices.Clone(res.Findings), func(f record.Finding) bool { return f.Code != "skills_missing" })
	if len(missing) != 1 || !strings.Contains(missing[0].Text, "/skills") {
		t.Errorf("findings %+v", res.Findings)
	}
	if !slices.Equal(got, []string{"/skills", "/"}) {
		t.Errorf("skills in %q", got)
	}
	b = newBench(t, a, tests("true"))
	b.task.Skills = []task.Skill{{Dir: "/skills", FromImage: []string{"ocr"}}}
	res = b.run(t.Context(), t)
	if want(t, res, record.EnvironmentError, "", record.Unknown); res.Error == nil || !strings.Contains(res.Error.Message, `skill "ocr" of the task: there is no /skills/ocr in the sandbox: use an image that has it, or an agent with a block skill "ocr"`) {
		t.Errorf("%+v", res.Error)
	}
	b = newBench(t, turn(func(context.Context, *actor) (agent.Yield, error) { return agent.Yield{End: agent.Done}, nil }), tests("true"))
	b.task.Skills, b.cell.Agent.Config = []task.Skill{{Dir: "/skills", FromImage: []string{"ocr"}}}, cell.PlainValues(json.RawMessage(`{"skill": {"ocr": {"text": "x"}}}`))
	want(t, b.run(t.Context(), t), record.Passed, record.Yielded, record.Checked)
}

// An agent that does not support skills or the transport of a server reads about them
// in its first message, once for each session; one that does gets no text.
func TestWhatAnAgentDoesNotSupportIsInItsFirstMessage(t *testing.T) {
	t.Parallel()
	const told = "\n\nThese MCP servers can be reached from the sandbox with a client of your own:\n- web: sse at http://web\n  with the header Authorization: t-1\n" +
		"\n\nSkills that may help are in /skills: read the SKILL.md of one before you use it.\n"
	for _, tt := range []struct {
		name  string
		needs agent.Needs
		want  string
	}{
		{"one transport", agent.Needs{Shell: true, MCP: []string{"stdio"}}, told},
		{"all", agent.Needs{Shell: true, Skills: true, MCP: []string{"stdio", "sse"}}, ""},
		{"no shell", agent.Needs{}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got string
			a := &scripted{needs: tt.needs, turn: func(_ context.Context, _ *actor, m agent.Message) (agent.Yield, error) {
				got = m.Text
				return agent.Yield{End: agent.Done}, nil
			}}
			b := newBench(t, a, tests("true"))
			b.envVars = map[string]string{"TOKEN": "t-1"}
			b.task.Skills = []task.Skill{{Dir: "/skills"}}
			b.task.MCPServers = []task.MCPServer{
				{Name: "fs", Transport: "stdio", Command: "mcp-fs"},
				{Name: "web", Transport: "sse", URL: "http://web", Headers: task.Env{"Authorization": {Host: "TOKEN"}}},
			}
			res := b.run(t.Context(), t)
			if instruction := b.task.Stages[0].Instruction[0].Text; got != instruction+tt.want {
				t.Errorf("the agent got %q, want the instruction and %q (%s, %+v)", got, tt.want, res.Outcome, res.Error)
			}
		})
	}
}
