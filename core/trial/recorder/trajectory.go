package recorder

import (
	"bytes"
	"encoding/json"
	"path/filepath"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// Whole is the content of a trajectory besides its steps.
type Whole struct {
	Session string
	Used    []record.Usage // of the agent's models, as it was metered; none: not known
}

// Trajectory makes the trajectory of the steps that the agent recorded in all
// of its sessions so far, as JSON. It reads them from the record, so that a
// killed agent has a trajectory, too. Nil when there are no steps.
func (s *Recorder) Trajectory(at record.Phase, dir string, who trajectory.Agent, w Whole) ([]byte, error) {
	recorded, err := readSteps(filepath.Join(dir, record.StepsFile))
	if err != nil || len(recorded) == 0 {
		return nil, err
	}
	answered, err := replies(dir)
	if err != nil {
		return nil, err
	}
	meter(recorded, answered)
	var steps []trajectory.Step
	for i := range recorded {
		steps = append(steps, recorded[i].Step)
	}
	t, violations, err := trajectory.New(who, w.Session, steps)
	if err != nil {
		return nil, err
	}
	w.total(t.FinalMetrics)
	inNoStep(t)
	for i, v := range violations {
		if i == limits.ListedProcesses {
			break
		}
		s.Note(at, "trajectory", "%s", v)
	}
	b, err := s.Redactor().JSON(t)
	if err != nil {
		return nil, err
	}
	var pretty bytes.Buffer
	err = json.Indent(&pretty, b, "", "  ")
	pretty.WriteByte('\n')
	return pretty.Bytes(), err
}

// total replaces the totals of the steps, which the agent reported, by the
// metered usage.
func (w Whole) total(f *trajectory.FinalMetrics) {
	if len(w.Used) == 0 {
		return
	}
	f.PromptTokens, f.CompletionTokens, f.CachedTokens, f.CostUSD = new(int64), new(int64), new(int64), new(float64)
	for _, u := range w.Used {
		*f.PromptTokens += u.InputTokens
		*f.CompletionTokens += u.OutputTokens
		*f.CachedTokens += u.CachedTokens
		if u.CostUSD == nil {
			f.CostUSD = nil
		} else if f.CostUSD != nil {
			*f.CostUSD += *u.CostUSD
		}
	}
}

// readSteps reads the steps of the agent. A torn last line is not an error.
func readSteps(file string) (steps []record.Step, err error) {
	err = eachLine(file, func(line []byte) {
		var l record.Step
		if json.Unmarshal(line, &l) == nil && l.Role != string(agent.RoleUser) {
			steps = append(steps, l)
		}
	})
	return steps, err
}
