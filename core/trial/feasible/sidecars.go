package feasible

import (
	"fmt"
	"slices"

	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/task"
)

// SidecarSpecs returns the sidecars of e, an environment of the task, to request
// from a plugin, without their control folders, and the volumes of the main
// container.
func SidecarSpecs(t *task.Task, e *task.Environment) ([]environment.Sidecar, []environment.Volume) {
	var out []environment.Sidecar
	for i := range e.Sidecars {
		s := &e.Sidecars[i]
		im := environment.Image{Ref: s.Image, Timeout: e.StartTime.Std()}
		if s.Build != nil {
			building(&im, t, s.Build)
		}
		l := s.Limits
		out = append(out, environment.Sidecar{
			Name: s.Name, Image: im, Argv: slices.Concat(s.Entrypoint, s.Command), User: s.User, Workdir: s.Workdir,
			Limits: environment.Limits{
				CPUMilli: l.CPUMilli, MemoryMiB: l.MemoryMiB, StorageMiB: l.StorageMiB, ShmMiB: l.ShmMiB, Pids: l.Pids,
				GPUs: l.GPUs, GPUTypes: l.GPUTypes,
			},
			Volumes: volumes(s.Volumes), Hostname: s.Hostname, Aliases: s.Aliases,
		})
	}
	return out, volumes(e.Volumes)
}

func volumes(vs []task.Volume) []environment.Volume {
	var out []environment.Volume
	for _, v := range vs {
		out = append(out, environment.Volume{Name: v.Name, Target: v.Target, ReadOnly: v.ReadOnly})
	}
	return out
}

// SidecarEnv returns the variables of the sidecars, by name.
func SidecarEnv(e *task.Environment, lookup func(string) (string, bool)) (map[string]map[string]string, error) {
	out := map[string]map[string]string{}
	for i := range e.Sidecars {
		s := &e.Sidecars[i]
		env, err := s.Env.Resolve(lookup)
		if err != nil {
			return nil, fmt.Errorf("sidecar %q: %w", s.Name, err)
		}
		out[s.Name] = env
	}
	return out, nil
}
