// Package grant decides what a task gets of what it asks, and says what is less:
// a result under less than the task asks for is marked.
//
// It must not ask an environment: whether that can give it is its own answer.
package grant

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/task"
)

// Limits are those of the task, l, with those of the experiment, o, in their
// place where they are not zero, and what was made less by that.
func Limits(l, o task.Limits) (environment.Limits, []string) {
	var changed []string
	pick := func(name string, asks, given int64) int64 {
		if given == 0 {
			return asks
		}
		if asks != 0 && given < asks {
			changed = append(changed, fmt.Sprintf("%s: %d instead of %d", name, given, asks))
		}
		return given
	}
	out := environment.Limits{
		CPUMilli: pick("cpu_milli", l.CPUMilli, o.CPUMilli), MemoryMiB: pick("memory_mib", l.MemoryMiB, o.MemoryMiB),
		StorageMiB: pick("storage_mib", l.StorageMiB, o.StorageMiB), ShmMiB: pick("shm_mib", l.ShmMiB, o.ShmMiB),
		Pids: pick("pids", l.Pids, o.Pids), GPUs: pick("gpus", l.GPUs, o.GPUs), GPUTypes: l.GPUTypes,
	}
	if len(o.GPUTypes) > 0 {
		out.GPUTypes = o.GPUTypes
	}
	return out, changed
}

// Network decides what the sandbox may reach: what the task asks and the
// experiment grants, both; granted nil grants what the task asks. modified says
// what the task gets less of. Granting nothing is always possible and marks the
// result; everything between is refused until there is a proxy that can.
func Network(t *task.Task, granted *task.Network) (given task.Network, modified []string, err error) {
	asked := map[string]task.Network{"the environment": t.Environment.Network}
	for i := range t.Stages {
		s := &t.Stages[i]
		asked["the agent of stage "+s.Name] = t.NetworkOf(&s.Agent)
		asked["the verifier of stage "+s.Name] = t.NetworkOf(&s.Verify)
	}
	if granted != nil && granted.Mode == task.NetworkNone {
		for _, who := range slices.Sorted(maps.Keys(asked)) {
			if m := asked[who].Mode; m != "" && m != task.NetworkNone {
				modified = append(modified, fmt.Sprintf("network of %s: none instead of %s", who, m))
			}
		}
		return task.Network{Mode: task.NetworkNone}, modified, nil
	}
	first := asked["the environment"]
	if first.Mode == "" {
		first.Mode = task.NetworkNone
	}
	for _, who := range slices.Sorted(maps.Keys(asked)) {
		if m := asked[who].Mode; m != first.Mode {
			return given, nil, fmt.Errorf("%s may reach %s and the environment %s: networks that differ between phases are not supported yet; "+
				"network = \"none\" in the environment block runs the task without any, and marks the result as modified", who, m, first.Mode)
		}
	}
	if first.Mode == task.NetworkAllow {
		return given, nil, fmt.Errorf("the task lists hosts (%s): lists are not supported yet; "+
			"network = \"none\" in the environment block runs the task without any, and marks the result as modified", strings.Join(first.Allow, ", "))
	}
	if granted != nil && granted.Mode != first.Mode && first.Mode != task.NetworkNone {
		return given, nil, fmt.Errorf("the task asks for %s and the experiment grants %s: grant what the task asks, or network = \"none\", "+
			"which marks the result as modified", first.Mode, granted.Mode)
	}
	return first, nil, nil
}
