package task

import (
	"fmt"
	"slices"
	"strings"
)

// Feature is something that a task can declare and that not every agent, environment
// or version of the core delivers.
type Feature string

// The features.
const (
	FeatureCompose     Feature = "compose"     // several containers from a compose file
	FeatureSidecars    Feature = "sidecars"    // several containers
	FeatureSeparate    Feature = "separate"    // verification in its own environment
	FeatureImage       Feature = "image"       // verification in a new sandbox of the image
	FeatureStages      Feature = "stages"      // more than one stage
	FeatureInteraction Feature = "interaction" // a simulated user
	FeatureSurface     Feature = "surface"     // observe and act
	FeatureWindows     Feature = "windows"     // a Windows sandbox
	FeatureGPU         Feature = "gpu"
	FeatureTPU         Feature = "tpu"
	FeatureMCP         Feature = "mcp"    // tool servers for the agent
	FeatureSkills      Feature = "skills" // skill folders for the agent
	FeaturePrior       Feature = "prior"  // a trajectory to continue from
	FeatureUsers       Feature = "users"  // that commands run as, other than the image's
	FeatureNetwork     Feature = "network"
	FeatureHealthcheck Feature = "healthcheck"
	FeatureHooks       Feature = "hooks" // commands after the agent's last turn
	FeatureArtifacts   Feature = "artifacts"

	FeatureHostVariables Feature = "host variables" // that have no default
)

// Need is one feature that a task declares.
type Need struct {
	Feature Feature `json:"feature"`
	// Stage is the stage that asks, or empty.
	Stage string `json:"stage,omitempty"`
	// Detail says what the task asks for, for the text of a refusal.
	Detail string `json:"detail"`
}

// Needs returns the features that the task declares, in the order of its
// fields. A caller that cannot provide a feature refuses the task and names it.
func (t *Task) Needs() []Need {
	var ns []Need
	add := func(f Feature, stage, format string, args ...any) {
		ns = append(ns, Need{f, stage, fmt.Sprintf(format, args...)})
	}
	t.environmentNeeds(add)
	if names := t.HostVars(); len(names) > 0 {
		add(FeatureHostVariables, "", "%s", strings.Join(names, ", "))
	}
	if len(t.Stages) > 1 {
		add(FeatureStages, "", "%d stages", len(t.Stages))
	}
	if t.Interaction != nil && t.Interaction.MaxFollowUps > 0 {
		add(FeatureInteraction, "", "up to %d messages of a simulated user", t.Interaction.MaxFollowUps)
	}
	if len(t.MCPServers) > 0 {
		add(FeatureMCP, "", "MCP server %q%s", t.MCPServers[0].Name, more(t.MCPServers))
	}
	if len(t.Skills) > 0 {
		add(FeatureSkills, "", "skills in %q%s", t.Skills[0].Dir+t.Skills[0].Resource, more(t.Skills))
	}
	for i := range t.Stages {
		s := &t.Stages[i]
		switch t.ModeOf(s) {
		case ModeSeparate:
			add(FeatureSeparate, s.Name, "verification in its own environment")
		case ModeImage:
			add(FeatureImage, s.Name, "verification in a new sandbox of the image")
		default:
		}
		if s.Surface != nil {
			add(FeatureSurface, s.Name, "a surface to observe and act on")
		}
		if s.PriorTrajectory != "" {
			add(FeaturePrior, s.Name, "a trajectory to continue from (%s)", s.PriorTrajectory)
		}
		if s.Healthcheck != nil {
			add(FeatureHealthcheck, s.Name, "a command that has to succeed before the agent's first turn")
		}
		if len(s.Hooks) > 0 {
			add(FeatureHooks, s.Name, "commands after the agent's last turn")
		}
		if len(s.Artifacts) > 0 {
			add(FeatureArtifacts, s.Name, "%q%s", s.Artifacts[0].Source, more(s.Artifacts))
		}
	}
	return ns
}

// more says how many others a list has besides its first.
func more[T any](list []T) string {
	if len(list) < 2 {
		return ""
	}
	return fmt.Sprintf(" and %d more", len(list)-1)
}

// network returns what the environment or a phase may reach, other than nothing.
func (t *Task) network() (modes []string) {
	all := []Network{t.Environment.Network}
	for i := range t.Stages {
		all = append(all, t.NetworkOf(&t.Stages[i].Agent), t.NetworkOf(&t.Stages[i].Verify))
	}
	for _, n := range all {
		text := string(n.Mode)
		if n.Mode == NetworkAllow {
			text = strings.Join(n.Allow, " ")
		}
		if n.Mode != NetworkNone && text != "" && !slices.Contains(modes, text) {
			modes = append(modes, text)
		}
	}
	return modes
}

func (t *Task) environmentNeeds(add func(f Feature, stage, format string, args ...any)) {
	e := &t.Environment
	if e.Compose != "" {
		add(FeatureCompose, "", "several containers, by %s", e.Compose)
	}
	if len(e.Sidecars) > 0 {
		add(FeatureSidecars, "", "container %q%s beside the main one", e.Sidecars[0].Name, more(e.Sidecars))
	}
	if e.OS == "windows" {
		add(FeatureWindows, "", "a Windows sandbox")
	}
	if e.Limits.GPUs > 0 {
		noun := "GPUs"
		if e.Limits.GPUs == 1 {
			noun = "GPU"
		}
		add(FeatureGPU, "", "%d %s", e.Limits.GPUs, noun)
	}
	if e.Limits.TPU != nil {
		add(FeatureTPU, "", "TPU %s %s", e.Limits.TPU.Type, e.Limits.TPU.Topology)
	}
	if len(e.Users) > 0 {
		add(FeatureUsers, "", "%s", strings.Join(e.Users, ", "))
	}
	if modes := t.network(); len(modes) > 0 {
		add(FeatureNetwork, "", "%s", strings.Join(modes, ", "))
	}
	if t.Healthcheck != nil {
		add(FeatureHealthcheck, "", "a command that has to succeed before the first stage")
	}
}

// Without returns a copy of the task that does not declare a feature, to find out
// what is refused because of it; nil for FeatureHostVariables, which have no place of
// their own. It is not meant to be run.
func (t *Task) Without(f Feature) *Task {
	if f == FeatureHostVariables {
		return nil
	}
	c := *t
	c.Stages = slices.Clone(t.Stages)
	switch f {
	case FeatureStages:
		c.Stages = c.Stages[:1]
	case FeatureInteraction:
		c.Interaction = nil
	case FeatureMCP:
		c.MCPServers = nil
	case FeatureSkills:
		c.Skills = nil
	case FeatureHealthcheck:
		c.Healthcheck = nil
	case FeatureSeparate, FeatureImage:
		c.Mode = ModeRestarted
	default:
		c.Environment.leave(f)
	}
	for i := range c.Stages {
		c.Stages[i].leave(f)
	}
	return &c
}

// leave takes a feature out of an environment.
func (e *Environment) leave(f Feature) {
	switch f {
	case FeatureCompose:
		e.Compose = ""
	case FeatureSidecars:
		e.Sidecars, e.Volumes = nil, nil
	case FeatureWindows:
		e.OS = "linux"
	case FeatureGPU:
		e.Limits.GPUs, e.Limits.GPUTypes = 0, nil
	case FeatureTPU:
		e.Limits.TPU = nil
	case FeatureUsers:
		e.Users = nil
	case FeatureNetwork:
		e.Network = Network{Mode: NetworkNone}
	case FeatureSurface:
		e.Settings = nil
	default:
	}
}

// leave takes a feature out of a stage.
func (s *Stage) leave(f Feature) {
	if s.VerifyIn != nil {
		in := *s.VerifyIn
		in.leave(f)
		s.VerifyIn = &in
	}
	switch f {
	case FeatureSeparate, FeatureImage:
		s.Mode, s.VerifyIn = ModeRestarted, nil
	case FeatureSurface:
		s.Surface, s.Captures = nil, nil
	case FeaturePrior:
		s.PriorTrajectory = ""
	case FeatureUsers:
		s.Agent.User, s.Verify.User = "", ""
	case FeatureNetwork:
		s.Agent.Network, s.Verify.Network = nil, nil
	case FeatureHealthcheck:
		s.Healthcheck, s.VerifyHealthcheck = nil, nil
	case FeatureHooks:
		s.Hooks = nil
	case FeatureArtifacts:
		s.Artifacts = nil
	default:
	}
}

// ModeOf returns the mode that the task declares for a stage; empty means that
// it declares none.
func (t *Task) ModeOf(s *Stage) Mode {
	if s.Mode != "" {
		return s.Mode
	}
	return t.Mode
}

// Stronger reports whether m isolates grading more than o. ModeCopies cannot be
// compared: no mode is stronger or weaker than it.
func (m Mode) Stronger(o Mode) bool { return m.rank() > 0 && o.rank() > 0 && m.rank() > o.rank() }

func (m Mode) rank() int {
	switch m {
	case ModeLive:
		return 1
	case ModeRestarted:
		return 2
	case ModeImage:
		return 3
	case ModeSeparate:
		return 4
	default:
		return 0
	}
}

// NetworkOf returns what a phase of the task may reach: its own network, or
// that of its environment.
func (t *Task) NetworkOf(p *Phase) Network {
	if p.Network != nil {
		return *p.Network
	}
	return t.Environment.Network
}
