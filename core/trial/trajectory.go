package trial

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/bound"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// trajectory makes trajectory.json of the steps that the agent recorded in all
// of its sessions so far. It reads them back from the record, so that a killed
// agent has one, too.
func (a *attempt) trajectory(p record.Phase) error {
	steps, err := readSteps(filepath.Join(a.in.Record.Dir(), record.StepsFile))
	if err != nil || len(steps) == 0 {
		return by(record.ByCore, err)
	}
	who := trajectory.Agent{Name: a.agentUsed.Name, Version: a.agentUsed.Version}
	if m, ok := a.in.Cell.Agent.Models["default"]; ok {
		who.ModelName = m.Info.Name
	}
	t, violations, err := trajectory.New(who, fmt.Sprintf("%s/%d", a.in.Trial, a.in.Attempt), steps)
	if err != nil {
		return by(record.ByCore, err)
	}
	for i, v := range violations {
		if i == bound.ListedProcesses {
			break
		}
		a.scribe.note(p, "trajectory", "%s", v)
	}
	b, err := a.scribe.redact.JSON(t)
	if err != nil {
		return by(record.ByCore, err)
	}
	var pretty bytes.Buffer
	if err = json.Indent(&pretty, b, "", "  "); err != nil {
		return by(record.ByCore, err)
	}
	pretty.WriteByte('\n')
	return by(record.ByCore, a.in.Record.WriteFile(record.TrajectoryFile, pretty.Bytes()))
}

// readSteps reads the steps of the agent. A torn last line is no error.
func readSteps(file string) ([]trajectory.Step, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var steps []trajectory.Step
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 64<<10), 2*bound.StepBytes)
	for lines.Scan() {
		var l record.Step
		if json.Unmarshal(lines.Bytes(), &l) != nil || l.Role == string(agent.RoleUser) {
			continue
		}
		steps = append(steps, l.Step)
	}
	return steps, lines.Err()
}
