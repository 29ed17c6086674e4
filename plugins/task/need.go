package task

import (
	"fmt"
	"strings"
)

// Feature is something that a task can ask for and that not every environment
// or version of the core offers.
type Feature string

// The features.
const (
	FeatureCompose     Feature = "compose"     // several containers from a compose file
	FeatureSidecars    Feature = "sidecars"    // several containers
	FeatureSeparate    Feature = "separate"    // verification in an environment of its own
	FeatureSnapshot    Feature = "snapshot"    // verification on a copy of the file system
	FeatureStages      Feature = "stages"      // more than one stage
	FeatureInteraction Feature = "interaction" // a simulated user
	FeatureSurface     Feature = "surface"     // observe and act
	FeatureWindows     Feature = "windows"     // a Windows sandbox
	FeatureGPU         Feature = "gpu"
	FeatureTPU         Feature = "tpu"
	FeatureMCP         Feature = "mcp"    // tool servers for the agent
	FeatureSkills      Feature = "skills" // skill folders for the agent
	FeaturePrior       Feature = "prior"  // a trajectory to continue from

	FeatureHostVariables Feature = "host variables" // that have no default
)

// Need is one feature that a task asks for.
type Need struct {
	Feature Feature `json:"feature"`
	// Stage is the stage that asks, or empty.
	Stage string `json:"stage,omitempty"`
	// Detail says what the task asks for, for the text of a refusal.
	Detail string `json:"detail"`
}

// Needs returns the features that the task asks for, in the order of its
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
		add(FeatureMCP, "", "MCP server %q", t.MCPServers[0].Name)
	}
	if len(t.Skills) > 0 {
		add(FeatureSkills, "", "skills in %q", t.Skills[0].Dir+t.Skills[0].Resource)
	}
	for i := range t.Stages {
		s := &t.Stages[i]
		switch t.ModeOf(s) {
		case ModeSeparate:
			add(FeatureSeparate, s.Name, "verification in an environment of its own")
		case ModeSnapshot:
			add(FeatureSnapshot, s.Name, "verification on a copy of the file system")
		default:
		}
		if s.Surface != nil {
			add(FeatureSurface, s.Name, "a surface to observe and act on")
		}
		if s.PriorTrajectory != "" {
			add(FeaturePrior, s.Name, "a trajectory to continue from (%s)", s.PriorTrajectory)
		}
	}
	return ns
}

func (t *Task) environmentNeeds(add func(f Feature, stage, format string, args ...any)) {
	e := &t.Environment
	if e.Compose != "" {
		add(FeatureCompose, "", "several containers, by %s", e.Compose)
	}
	if len(e.Sidecars) > 0 {
		add(FeatureSidecars, "", "container %q beside the main one", e.Sidecars[0].Name)
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
	case ModeSnapshot:
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
