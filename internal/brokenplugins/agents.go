package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/loop"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/model/chat"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// agents are the broken agents.
var agents = table{
	"rambler": {"records steps that are none", does(acts{turn: func(_ context.Context, s *acts) error {
		return s.Step(trajectory.Step{Source: trajectory.User, Message: trajectory.Text("hm"), ToolCalls: []trajectory.ToolCall{{ID: "1", Name: "x", Arguments: json.RawMessage(`{}`)}}})
	}})},
	"wavering": {"needs another thing each time", does(acts{check: func(n *agent.Needs) error {
		n.Logs = []string{"/log/" + strings.Repeat("x", int(asked.Add(1)))}
		return nil
	}})},
	"homeless": {"needs a log at a relative path", does(acts{needs: agent.Needs{Logs: []string{"log"}}})},
	"hasty":    {"cannot be closed before its first turn", does(acts{close: func(s *acts, _ string) error { return when(s.turns == 0, "nothing was done") }})},
	"idle":     {"says that it is done, and does nothing", does(acts{needs: shell})},
	"aloof":    {"does the work without the model that it asks for", does(acts{needs: agent.Needs{Shell: true, Dialects: anyDialect}, turn: obey})},
	"unskilled": {"says that it supports skills, and leaves them out", does(acts{
		needs: agent.Needs{Shell: true, Dialects: anyDialect, Skills: true}, turn: obey,
	})},
	"unserved": {"says that it supports MCP servers, and leaves them out", does(acts{
		needs: agent.Needs{Shell: true, Dialects: anyDialect, MCP: []string{"stdio"}}, turn: obey,
	})},
	"tireless": {"never says that it is done", does(acts{end: agent.MaxSteps})},
	"boastful": {"names an artifact that it has not written", does(acts{turn: func(_ context.Context, s *acts) error { return s.Artifact("masterpiece.png") }})},
	"once":     {"refuses a second message", does(acts{turn: func(_ context.Context, s *acts) error { return when(s.turns > 1, "again?") }})},
	"drowsy": {"does nothing about a second message", does(acts{needs: shell, turn: func(ctx context.Context, s *acts) error {
		if s.turns > 1 {
			return nil
		}
		return obey(ctx, s)
	}})},
	"brief": {"takes no long message", does(acts{turn: func(_ context.Context, s *acts) error {
		return when(len(s.message.Text) > 100_000, "argument list too long")
	}})},
	"unstoppable": {"works on after its turn was cut off", does(acts{turn: func(context.Context, *acts) error {
		spin()
		return nil
	}})},
	"sulking": {"does not continue after its turn was cut off", does(acts{needs: agent.Needs{KeepsSession: true}, turn: func(ctx context.Context, s *acts) error {
		if s.turns == 1 {
			<-ctx.Done()
		}
		return when(s.turns > 1, "I was interrupted")
	}})},
	"oblivious": {"does not notice that its shell is gone", does(acts{needs: shell, turn: func(ctx context.Context, s *acts) error {
		_ = obey(ctx, s)
		return nil
	}})},
	"tidying": {"changes its view", does(acts{turn: func(_ context.Context, s *acts) error {
		return os.WriteFile(filepath.Join(s.setup.View, "todo"), nil, 0o600)
	}})},
	"curious": {"reads every log to its end", does(acts{close: func(_ *acts, logs string) error {
		_, _ = readAll(filepath.Join(logs, "session.jsonl"))
		return nil
	}})},
	"jealous": {"refuses when another session works", does(acts{turn: func(ctx context.Context, _ *acts) error {
		defer asked.Add(-1)
		return errors.Join(when(asked.Add(1) > 1, "busy"), exec.CommandContext(ctx, "sleep", "0.05").Run())
	}})},
	"littering": {"leaves a process in its own session", does(acts{check: func(*agent.Needs) error { return leave() }})},
	"caller": {"works with tool calls; not broken", func(i plugins.Info) plugins.Plugin {
		return plugins.Agent(i, struct{}{}, loop.Agent[struct{}]{New: func(_ context.Context, s *loop.Session[struct{}]) (loop.Worker, error) { return caller{s}, nil }})
	}},
}

var (
	shell      = agent.Needs{Shell: true}
	anyDialect = []model.Dialect{model.DialectOpenAIChat}
)

func when(bad bool, text string) error {
	if bad {
		return errors.New(text)
	}
	return nil
}

// obey runs the message as a script in the sandbox.
func obey(ctx context.Context, s *acts) error {
	box, err := sandbox.Dial(s.setup.Shell)
	if err != nil {
		return err
	}
	defer box.Close()
	_, err = box.Exec(ctx, sandbox.Command{Argv: []string{"sh"}, Stdin: strings.NewReader(s.message.Text)})
	return err
}

// acts is an agent and its session, which do only what the fields set.
type acts struct {
	needs agent.Needs
	check func(*agent.Needs) error
	turn  func(context.Context, *acts) error
	end   agent.End // empty: done
	close func(s *acts, logs string) error

	agent.Recorder // of the turn

	setup   agent.Setup
	message agent.Message
	turns   int
}

func does(a acts) func(plugins.Info) plugins.Plugin {
	return func(i plugins.Info) plugins.Plugin { return plugins.Agent(i, nil, &a) }
}

func (a *acts) Check(context.Context, agent.CheckRequest) (needs agent.Needs, err error) {
	needs = a.needs
	if a.check != nil {
		err = a.check(&needs)
	}
	return needs, err
}

func (a *acts) Open(_ context.Context, setup agent.Setup) (agent.Session, error) {
	s := *a
	s.setup = setup
	return &s, nil
}

func (a *acts) Turn(ctx context.Context, m agent.Message, r agent.Recorder) (y agent.Yield, err error) {
	a.turns++
	a.message, a.Recorder = m, r
	if a.turn != nil {
		err = a.turn(ctx, a)
	}
	return agent.Yield{End: cmp.Or(a.end, agent.Done)}, err
}

func (a *acts) Close(_ context.Context, logs string, _ agent.Recorder) error {
	if a.close == nil {
		return nil
	}
	return a.close(a, logs)
}

// caller is a loop that offers its model one tool.
type caller struct{ *loop.Session[struct{}] }

var tool = chat.Tool{
	Name: "execute", Description: "Runs a command.",
	Parameters: json.RawMessage(`{"type": "object", "properties": {"cmd": {"type": "string"}, "seconds": {"type": "integer"}}, "required": ["cmd", "seconds"]}`),
}

type arguments struct {
	Cmd     string `berth:"cmd" required:"true" doc:"Command."`
	Seconds int64  `berth:"seconds" required:"true" doc:"Timeout."`
}

func (c caller) Turn(ctx context.Context, m agent.Message, r *loop.Recorder) (agent.Yield, error) {
	talk := []chat.Message{{Role: chat.User, Text: m.Text}}
	for {
		reply, err := r.Ask(ctx, c.Model, chat.Request{Messages: talk, Tools: []chat.Tool{tool}})
		if err != nil {
			return agent.Yield{}, err
		}
		step := r.Of(reply, reply.Text)
		answer := chat.Message{Role: chat.User}
		for _, call := range reply.Calls {
			var a arguments
			if wrong := loop.Arguments(&step, call, &a); wrong != nil {
				answer.Results = append(answer.Results, *wrong)
				continue
			}
			res, err := c.Shell.Exec(ctx, sandbox.Command{Argv: []string{"sh", "-c", a.Cmd}, Dir: c.Setup.Workdir})
			if err != nil {
				return agent.Yield{}, err
			}
			text, _ := json.Marshal(res)
			answer.Results = append(answer.Results, chat.Result{CallID: call.ID, Text: string(text)})
		}
		if err := r.Step(step); err != nil {
			return agent.Yield{}, err
		}
		if len(reply.Calls) == 0 {
			return agent.Yield{End: agent.Done, Message: reply.Text}, nil
		}
		talk = append(talk, chat.Message{Role: chat.Assistant, Text: reply.Text, Calls: reply.Calls}, answer)
	}
}

func (c caller) Close(context.Context, *loop.Recorder) error { return nil }
