// Command oracle serves the agent that runs the task's own solution. A task
// that it does not pass is broken.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/output"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/surface"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// logFile is where the solution's output goes, in the scratch folder.
const logFile = "oracle.txt"

// shown is how much of the output goes into the trajectory, in bytes.
const shown = 32 << 10

func main() {
	plugins.Serve(plugins.Agent(plugins.Info{
		Name: "oracle", Version: "1.0.0",
		Doc: "Runs the task's own solution in the sandbox, or plays its actions on the surface. The agent block must say oracle = true, and results say that it had the solution.",
	}, nil, oracle{}))
}

type oracle struct{}

func (oracle) Check(_ context.Context, r agent.CheckRequest) (agent.Needs, error) {
	needs := agent.Needs{Shell: true}
	if r.Role != agent.RoleOracle {
		needs.Refusals = []string{"the oracle runs the task's own solution, which it gets only with oracle = true in its agent block"}
	}
	return needs, nil
}

func (oracle) Open(_ context.Context, s agent.Setup) (agent.Session, error) {
	if s.Reference == nil || len(s.Reference.Argv) == 0 {
		return nil, fmt.Errorf("%w: no solution was given: the task has none, or the agent block does not say oracle = true", agent.ErrBadConfig)
	}
	if calls, err := actions(&s); err != nil {
		return nil, err
	} else if calls != nil {
		on, err := surface.Dial(s.Surface)
		if err != nil {
			return nil, err
		}
		return &player{on: on, calls: calls, close: on.Close}, nil
	}
	box, err := sandbox.Dial(s.Shell)
	if err != nil {
		return nil, err
	}
	return &session{setup: s, box: box, close: box.Close}, nil
}

// shell is what a session does in the sandbox.
type shell interface {
	UploadFolder(ctx context.Context, host, dir string, o sandbox.UploadOptions) error
	Exec(ctx context.Context, c sandbox.Command) (sandbox.Result, error)
}

type session struct {
	setup agent.Setup
	box   shell
	close func() error
}

// Turn copies the solution to its place and runs it. An exit code other than 0
// is still a normal yield: the verifier decides.
func (s *session) Turn(ctx context.Context, _ agent.Message, r agent.Recorder) (agent.Yield, error) {
	ref := s.setup.Reference
	if err := s.box.UploadFolder(ctx, ref.Folder, ref.Place, sandbox.UploadOptions{User: s.setup.User}); err != nil {
		return agent.Yield{}, fmt.Errorf("put the solution into the sandbox: %w", err)
	}
	log, err := output.Create(filepath.Join(s.setup.Scratch, logFile))
	if err != nil {
		return agent.Yield{}, err
	}
	end := output.NewTail(shown)
	both := io.MultiWriter(log, end)
	result, err := s.box.Exec(ctx, sandbox.Command{
		Argv: ref.Argv, Env: environ(ref.Env), Dir: s.setup.Workdir, User: s.setup.User, Stdout: both, Stderr: both,
	})
	if bad := log.Close(); err == nil && bad != nil {
		err = fmt.Errorf("write %s: %w", logFile, bad)
	}
	if err != nil {
		return agent.Yield{}, fmt.Errorf("run the solution: %w", err)
	}
	if err := record(r, ref.Argv, end.String(), result); err != nil {
		return agent.Yield{}, err
	}
	y := agent.Yield{End: agent.Done, ExitCode: result.ExitCode, Reason: fmt.Sprintf("the solution ended with exit code %d", result.ExitCode)}
	if result.Signal != 0 {
		y.End, y.Reason = agent.Crashed, fmt.Sprintf("the solution was ended by a signal (%s)", result.Signal)
	}
	return y, nil
}

func (s *session) Close(context.Context, string, agent.Recorder) error { return s.close() }

// environ returns the variables that the solution gets in addition to the
// session's. They stop package managers from asking questions.
func environ(own map[string]string) []string {
	env := []string{"DEBIAN_FRONTEND=noninteractive"}
	for _, k := range slices.Sorted(maps.Keys(own)) {
		env = append(env, k+"="+own[k])
	}
	return env
}

// record writes what was done as one step of a trajectory.
func record(r agent.Recorder, argv []string, text string, result sandbox.Result) error {
	arguments, err := json.Marshal(map[string]any{"argv": argv})
	if err != nil {
		return err
	}
	extra, err := json.Marshal(map[string]any{"exit_code": result.ExitCode})
	if err != nil {
		return err
	}
	none, content := int64(0), trajectory.Text(text)
	err = r.Step(trajectory.Step{
		Source: trajectory.Model, Message: trajectory.Text("I run the solution of the task."), LLMCallCount: &none,
		ToolCalls:   []trajectory.ToolCall{{ID: "solution", Name: "exec", Arguments: arguments}},
		Observation: &trajectory.Observation{Results: []trajectory.Result{{SourceCallID: "solution", Content: &content, Extra: extra}}},
	})
	if err == nil && result.ExitCode == 0 && result.Signal == 0 {
		// Verifiers of turns ask whether an agent says that it is done.
		err = r.Step(trajectory.Step{Source: trajectory.Model, Message: trajectory.Text("The task is complete."), LLMCallCount: &none})
	}
	if err != nil || text == "" { // without output there is no file
		return err
	}
	return r.Artifact(logFile)
}
