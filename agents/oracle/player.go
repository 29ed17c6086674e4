package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/trajectory"
	"github.com/berth-eval/berth/plugins/untrusted"
)

const (
	actionsFile = "actions.jsonl" // a solution on a surface: a call in each line
	maxActions  = 64 << 20        // bytes of it
	maxAction   = 1 << 20         // bytes of a line
)

// actions reads the calls of a solution that is played on a surface; nil: it is
// run in the sandbox. A solution of both kinds is run.
func actions(s *agent.Setup) (calls []environment.Call, err error) {
	if _, missing := untrusted.Read(s.Reference.Folder, "solve.sh", maxActions); s.Surface == "" || !errors.Is(missing, fs.ErrNotExist) {
		return nil, nil
	}
	n := 0
	var wrong error
	cut, err := untrusted.Lines(s.Reference.Folder, actionsFile, maxAction, maxActions, func(line []byte) {
		n++
		var c environment.Call
		if bad := json.Unmarshal(line, &c); (bad != nil || c.Name == "") && wrong == nil {
			wrong = fmt.Errorf("%s, line %d: want {\"name\": …, \"arguments\": {…}}, got %.200q", actionsFile, n, line)
		}
		calls = append(calls, c)
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the solution: %w", err)
	case cut:
		return nil, fmt.Errorf("the solution %s is longer than %d bytes, or a line of it than %d", actionsFile, maxActions, maxAction)
	case wrong == nil && len(calls) == 0:
		wrong = fmt.Errorf("the solution %s has no action", actionsFile)
	}
	return calls, wrong
}

// acting is what a player does on the surface.
type acting interface {
	Act(ctx context.Context, c environment.Call, want []string) (environment.Step, error)
}

// player plays a solution on the surface.
type player struct {
	on    acting
	calls []environment.Call
	close func() error
}

// Turn plays all actions, up to one after which nothing may follow. An action
// that is refused is not an end: the verifier decides.
func (p *player) Turn(ctx context.Context, _ agent.Message, r agent.Recorder) (agent.Yield, error) {
	refused := 0
	for i, c := range p.calls {
		step, err := p.on.Act(ctx, c, []string{})
		if err != nil {
			return agent.Yield{}, fmt.Errorf("action %d, %s: %w", i+1, c.Name, err)
		}
		if step.Error != "" {
			refused++
		}
		if err := told(r, i+1, c, &step); err != nil {
			return agent.Yield{}, err
		}
		if step.Done || step.Truncated {
			break
		}
	}
	if refused == 0 {
		none := int64(0)
		if err := r.Step(trajectory.Step{Source: trajectory.Model, Message: trajectory.Text("The task is complete."), LLMCallCount: &none}); err != nil {
			return agent.Yield{}, err
		}
	}
	return agent.Yield{End: agent.Done, Reason: fmt.Sprintf("%d actions of the solution were refused", refused)}, nil
}

// told records one action as a step of a trajectory.
func told(r agent.Recorder, n int, c environment.Call, step *environment.Step) error {
	none, id, text := int64(0), fmt.Sprint("action-", n), step.Observation.Text
	if step.Error != "" {
		text = "refused: " + step.Error
	}
	arguments := c.Arguments
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	content := trajectory.Text(text)
	return r.Step(trajectory.Step{
		Source: trajectory.Model, Message: trajectory.Text("I play the solution of the task."), LLMCallCount: &none,
		ToolCalls:   []trajectory.ToolCall{{ID: id, Name: c.Name, Arguments: arguments}},
		Observation: &trajectory.Observation{Results: []trajectory.Result{{SourceCallID: id, Content: &content}}},
	})
}

func (p *player) Close(context.Context, string, agent.Recorder) error { return p.close() }
