package feasible

import (
	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/task"
)

// MemoryMiB returns how much memory the sandboxes of an attempt may use at the
// same time: the one of the agent, and the largest of those in which stages are
// verified. Containers without a limit count as 0.
func MemoryMiB(t *task.Task, c cell.Cell) int64 {
	agent, _ := specOf(t, &t.Environment, c, task.Network{})
	second := int64(0)
	for i := range t.Stages {
		s := &t.Stages[i]
		if mode, err := Mode(t, s, c.Verify); err == nil && InSecondSandbox(mode) {
			spec, _ := specOf(t, VerifierEnvironment(t, s, mode), c, task.Network{})
			second = max(second, memoryOf(&spec))
		}
	}
	return memoryOf(&agent) + second
}

func memoryOf(s *environment.Spec) int64 {
	sum := s.Limits.MemoryMiB
	for i := range s.Sidecars {
		sum += s.Sidecars[i].Limits.MemoryMiB
	}
	return sum
}
