package plan

import (
	"fmt"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/config"
	"github.com/berth-eval/berth/plugins/task"
)

// Public is a cell on a dataset as core/trial takes it, with the names of
// secrets in place of the secrets: good for questions, not for running.
func Public(c *config.Cell, d *config.Dataset) cell.Cell {
	out := cell.Cell{
		Choices: map[string]string{}, Agent: c.Agent, Environment: c.Environment, Verifiers: c.Verifiers, User: c.User,
		Verify: d.Verify, Limits: c.PerTrial,
	}
	if out.Verify == "" {
		out.Verify = c.Verify
	}
	for _, ch := range c.Choices {
		out.Choices[ch.Axis] = ch.Text
	}
	if d.Success != nil {
		out.Success = &task.Success{Score: d.Success.Key, AtLeast: &d.Success.AtLeast}
	}
	return out
}

// Revealed is a cell on a dataset as core/trial runs it. Fails when a secret
// is missing.
func Revealed(c *config.Cell, d *config.Dataset) (cell.Cell, error) {
	out, err := Public(c, d).Reveal()
	if err != nil {
		return out, fmt.Errorf("cell %s: %w", c.Key, err)
	}
	return out, nil
}
