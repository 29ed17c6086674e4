package feasible

import (
	"fmt"

	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/task"
)

// Limits returns the limits of the task, l, replaced by those of the
// experiment, o, where these are not zero, and which limits became lower.
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
