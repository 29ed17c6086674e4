// Command greeter is an agent that runs the message as a shell command.
package main

import (
	"bytes"
	"context"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/trajectory"
)

type greeterAgent struct{ agent.OnlyShell }

func (greeterAgent) Open(_ context.Context, setup agent.Setup) (agent.Session, error) {
	shell, err := sandbox.Dial(setup.Shell)
	return session{shell}, err
}

type session struct{ shell *sandbox.Client }

func (s session) Turn(ctx context.Context, m agent.Message, r agent.Recorder) (agent.Yield, error) {
	var out bytes.Buffer
	result, err := s.shell.Exec(ctx, sandbox.Command{Argv: []string{"sh"}, Stdin: bytes.NewBufferString(m.Text), Stdout: &out, Stderr: &out})
	if err != nil {
		return agent.Yield{}, err
	}
	err = r.Step(trajectory.Step{Source: trajectory.Model, Message: trajectory.Text("It said: " + out.String())})
	return agent.Yield{End: agent.Done, Message: out.String(), ExitCode: result.ExitCode}, err
}

func (s session) Close(context.Context, string, agent.Recorder) error { return s.shell.Close() }

func main() {
	info := plugins.Info{Name: "greeter", Version: "1.0.0", Doc: "Runs the message as a command."}
	plugins.Serve(plugins.Agent(info, nil, greeterAgent{}))
}
