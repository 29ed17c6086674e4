package task

import "slices"

// View returns the task as one role may see it in a stage: the resources of
// its audience, and of the rest what its part needs. A verifier sees the whole
// task but the reference solution; agent, oracle and user see the instruction
// of the one stage and what they can work with, nothing of how it is graded.
// The result shares memory with t and must not be changed.
func (t *Task) View(role Role, stage string) *Task {
	v := *t
	v.Dir = ""
	v.Resources = nil
	for i := range t.Resources {
		if r := &t.Resources[i]; r.For(role, stage) {
			v.Resources = append(v.Resources, *r)
		}
	}
	v.Stages = slices.Clone(t.Stages)
	if role == RoleVerifier {
		for i := range v.Stages {
			v.Stages[i].Reference = nil
		}
		return &v
	}
	v.Metadata = nil
	v.Success = Success{}
	v.Mode = ""
	v.Interaction = nil
	v.Services = nil
	v.Healthcheck = nil
	v.Environment.Build, v.Environment.Compose = nil, ""
	v.Environment.Settings, v.Environment.Files = nil, nil
	v.Environment.Env, v.Environment.Sidecars = nil, nil
	v.Environment.Entrypoint, v.Environment.Command = nil, nil
	v.Environment.DependsOn, v.Environment.Volumes = nil, nil
	v.Paths.VerifierLogs = ""
	v.Stages = v.Stages[:0]
	for _, s := range t.Stages {
		if s.Name != stage {
			continue
		}
		seen := Stage{
			Name: s.Name, Instruction: s.Instruction, Agent: s.Agent, Surface: s.Surface,
			PriorTrajectory: s.PriorTrajectory, SameSession: s.SameSession,
		}
		seen.Agent.Env = nil
		if role == RoleOracle {
			seen.Reference = s.Reference
		}
		v.Stages = append(v.Stages, seen)
	}
	return &v
}
