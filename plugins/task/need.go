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
