package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

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
	"rambler": {"records steps that are none", does(acts{turn: func(_ context.Context, _ *acts, _ agent.Message, r agent.Recorder) (agent.Yield, error) {
		step := trajectory.Step{Source: trajectory.User, Message: trajectory.Text("hm"), ToolCalls: []trajectory.ToolCall{{ID: "1", Name: "x", Arguments: json.RawMessage(`{}`)}}}
		return done, r.Step(step)
	}})},
	"wavering": {"needs another thing each time", does(acts{check: func(agent.CheckRequest) (agent.Needs, error) {
		return agent.Needs{Logs: []string{"/log/" + strings.Repeat("x", int(asked.Add(1)))}}, nil
	}})},
	"homeless": {"needs a log at a relative path", does(acts{check: func(agent.CheckRequest) (agent.Needs, error) {
		return agent.Needs{Logs: []string{"log"}}, nil
	}})},
	"hasty": {"cannot be closed before its first turn", does(acts{close: func(s *acts, _ string) error { return when(s.turns == 0, "nothing was done") }})},
	"idle": {"says that it is done, and does nothing", does(acts{check: shell, turn: func(context.Context, *acts, agent.Message, agent.Recorder) (agent.Yield, error) {
		return done, nil
	}})},
	"aloof": {"does the work without the model that it asks for", does(acts{check: func(agent.CheckRequest) (agent.Needs, error) {
		return agent.Needs{Shell: true, Dialects: []model.Dialect{model.DialectOpenAIChat}}, nil
	}, turn: func(ctx context.Context, s *acts, m agent.Message, _ agent.Recorder) (agent.Yield, error) {
		return done, run(ctx, s.setup.Shell, m.Text)
	}})},
	"unskilled": {"says that it supports skills, and leaves them out", does(acts{check: func(agent.CheckRequest) (agent.Needs, error) {
		return agent.Needs{Shell: true, Dialects: []model.Dialect{model.DialectOpenAIChat}, Skills: true}, nil
	}, turn: func(ctx context.Context, s *acts, m agent.Message, _ agent.Recorder) (agent.Yield, error) {
		return done, run(ctx, s.setup.Shell, m.Text)
	}})},
	"tireless": {"never says that it is done", does(acts{turn: func(context.Context, *acts, agent.Message, agent.Recorder) (agent.Yield, error) {
		return agent.Yield{End: agent.MaxSteps}, nil
	}})},
	"endless": {"ends a turn with no word of the contract", does(acts{turn: func(context.Context, *acts, agent.Message, agent.Recorder) (agent.Yield, error) {
		return agent.Yield{End: "enough"}, nil
	}})},
	"boastful": {"names an artifact that it has not written", does(acts{turn: func(_ context.Context, _ *acts, _ agent.Message, r agent.Recorder) (agent.Yield, error) {
		return done, r.Artifact("masterpiece.png")
	}})},
	"once": {"refuses a second message", does(acts{turn: func(_ context.Context, s *acts, _ agent.Message, _ agent.Recorder) (agent.Yield, error) {
		return done, when(s.turns > 1, "again?")
	}})},
	"drowsy": {"does nothing about a second message", does(acts{check: shell, turn: func(ctx context.Context, s *acts, m agent.Message, _ agent.Recorder) (agent.Yield, error) {
		if s.turns > 1 {
			return done, nil
		}
		return done, run(ctx, s.setup.Shell, m.Text)
	}})},
	"brief": {"takes no long message", does(acts{turn: func(_ context.Context, _ *acts, m agent.Message, _ agent.Recorder) (agent.Yield, error) {
		return done, when(len(m.Text) > 100_000, "argument list too long")
	}})},
	"unstoppable": {"works on after its turn was cut off", does(acts{turn: func(context.Context, *acts, agent.Message, agent.Recorder) (agent.Yield, error) {
		spin()
		return done, nil
	}})},
	"sulking": {"does not continue after its turn was cut off", does(acts{check: func(agent.CheckRequest) (agent.Needs, error) {
		return agent.Needs{KeepsSession: true}, nil
	}, turn: func(ctx context.Context, s *acts, _ agent.Message, _ agent.Recorder) (agent.Yield, error) {
		if s.turns == 1 {
			<-ctx.Done()
		}
		return done, when(s.turns > 1, "I was interrupted")
	}})},
	"oblivious": {"does not notice that its shell is gone", does(acts{check: shell, turn: func(ctx context.Context, s *acts, m agent.Message, _ agent.Recorder) (agent.Yield, error) {
		_ = run(ctx, s.setup.Shell, m.Text)
		return done, nil
	}})},
	"tidying": {"changes its view", does(acts{turn: func(_ context.Context, s *acts, _ agent.Message, _ agent.Recorder) (agent.Yield, error) {
		return done, os.WriteFile(filepath.Join(s.setup.View, "todo"), nil, 0o600)
	}})},
	"curious": {"reads every log to its end", does(acts{close: func(_ *acts, logs string) error {
		f, err := os.Open(filepath.Join(logs, "session.jsonl"))
		if err != nil {
			return nil //nolint:nilerr // no log
		}
		defer f.Close()
		_, err = io.Copy(io.Discard, f)
		return err
	}})},
	"jealous": {"refuses when another session works", does(acts{turn: func(ctx context.Context, _ *acts, _ agent.Message, _ agent.Recorder) (agent.Yield, error) {
		defer asked.Add(-1)
		if asked.Add(1) > 1 {
			return agent.Yield{End: agent.Refused}, nil
		}
		return done, exec.CommandContext(ctx, "sleep", "0.05").Run()
	}})},
	"littering": {"leaves a process in its own session", does(acts{check: func(agent.CheckRequest) (agent.Needs, error) {
		cmd := exec.Command("sleep", "600") //nolint:noctx // stays
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return agent.Needs{}, cmd.Start()
	}})},
	"caller": {"works with tool calls; not broken", func(i plugins.Info) plugins.Plugin {
		return plugins.Agent(i, struct{}{}, loop.Agent[struct{}]{New: func(_ context.Context, s *loop.Session[struct{}]) (loop.Worker, error) { return caller{s}, nil }})
	}},
}

var done = agent.Yield{End: agent.Done}

func when(bad bool, text string) error {
	if bad {
		return errors.New(text)
	}
	return nil
}

func shell(agent.CheckRequest) (agent.Needs, error) { return agent.Needs{Shell: true}, nil }

// run runs a script with a shell in the sandbox.
func run(ctx context.Context, address, script string) error {
	box, err := sandbox.Dial(address)
	if err != nil {
		return err
	}
	defer box.Close()
	_, err = box.Exec(ctx, sandbox.Command{Argv: []string{"sh"}, Stdin: strings.NewReader(script)})
	return err
}

// acts is an agent and its session, which do only what the fields set.
type acts struct {
	check func(agent.CheckRequest) (agent.Needs, error)
	turn  func(context.Context, *acts, agent.Message, agent.Recorder) (agent.Yield, error)
	close func(s *acts, logs string) error

	setup agent.Setup
	turns int
}

func does(a acts) func(plugins.Info) plugins.Plugin {
	return func(i plugins.Info) plugins.Plugin { return plugins.Agent(i, nil, &a) }
}

func (a *acts) Check(_ context.Context, r agent.CheckRequest) (agent.Needs, error) {
	if a.check == nil {
		return agent.Needs{}, nil
	}
	return a.check(r)
}

func (a *acts) Open(_ context.Context, setup agent.Setup) (agent.Session, error) {
	s := *a
	s.setup = setup
	return &s, nil
}

func (a *acts) Turn(ctx context.Context, m agent.Message, r agent.Recorder) (agent.Yield, error) {
	a.turns++
	if a.turn == nil {
		return done, nil
	}
	return a.turn(ctx, a, m, r)
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
