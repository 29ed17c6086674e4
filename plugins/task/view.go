package task

import "slices"

// View returns the part of the task that a role may see in a stage: the
// resources for this role, and the fields that it needs. A verifier sees the
// whole task except the reference solution. Agent, oracle and user see the
// instruction of this stage and what they work with, but nothing about grading.
// The result shares memory with t and must not be changed.
func (t *Task) View(role Role, stage string) *Task {
	v := *t
	v.Dir, v.File = "", ""
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
	v.Metadata, v.Labels = nil, Labels{}
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
		seen.Agent.Env, seen.Agent.EnvFile = nil, ""
		if role == RoleOracle {
			seen.Reference = s.Reference
		}
		v.Stages = append(v.Stages, seen)
	}
	return &v
}
