// Package feasible decides whether a task can run in a cell, how it is verified
// there, and what to request from its environment: what the task wants, reduced
// to what the experiment grants. A result with less than the task asks for is
// marked. Plan checks this before anything starts, and each attempt checks it
// again.
//
// It calls only Check of plugins (Checker), and must not touch files.
package feasible

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/model"
	surface "github.com/berth-eval/berth/plugins/surface/host"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Problem says why a task cannot run in a cell.
type Problem = environment.Problem

// Known is what plan knows about the plugins of a cell. Nothing is refused
// because of a nil field, which is not known.
type Known struct {
	Agent     *agent.Needs
	User      *agent.Needs
	Verifiers map[string]verifier.Traits // by the name that tasks use
	Gateway   bool                       // there are models

	Environment environment.Environment
}

// Unsupported returns what a task needs and this version cannot do in a cell,
// and what the cell must not do to the task. Plan calls it for every task and
// cell, and a trial calls it again.
func Unsupported(t *task.Task, c cell.Cell, k Known) []Problem {
	t = Sessions(t, c)
	ps := slices.Concat(sessionProblems(t, c, k), surfaceProblems(t, c, k), offerProblems(t, c, k))
	add := func(summary, format string, args ...any) {
		ps = append(ps, Problem{Summary: summary, Detail: fmt.Sprintf(format, args...)})
	}
	for _, n := range t.Needs() {
		if why, ok := later[n.Feature]; ok {
			add(fmt.Sprintf("task asks for %s", n.Detail), "%s%s", inStage(n.Stage), why)
		}
	}
	for i := range t.Stages {
		s := &t.Stages[i]
		if len(s.Instruction) == 0 && k.Agent != nil && len(k.Agent.Dialects) > 0 {
			add("task has no instruction", "%sAgent %q works on what a task says.", inStage(s.Name), c.Agent.Plugin)
		}
		ps = append(ps, modeProblems(t, s, c, k)...)
	}
	if _, _, err := Network(t, c.Environment.Network); err != nil {
		add("network cannot be granted as the task asks", "%s", err)
	}
	ps = append(ps, Agent("agent", c.Agent, k.Agent, k.Gateway)...)
	if c.User != nil && t.Interaction != nil {
		ps = append(ps, Agent("user", c.User.Agent, k.User, k.Gateway)...)
		if k.User != nil && (k.User.Shell || k.User.Terminal || k.User.Surface) {
			add(fmt.Sprintf("user %q asks for a sandbox", c.User.Agent.Plugin),
				"A simulated user has no sandbox. Use an agent that needs no shell, terminal or surface.")
		}
	}
	if c.Agent.Oracle && k.Agent != nil {
		for i := range t.Stages {
			if t.Stages[i].Reference == nil {
				add("task has no reference solution", "%sAn oracle cannot run it.", inStage(t.Stages[i].Name))
			}
		}
	}
	return ps
}

// later are the features that this version refuses by name, with advice.
var later = map[task.Feature]string{
	task.FeatureCompose: "Its compose file was not read.",
	task.FeatureWindows: "Berth has no Windows sandboxes.",
	task.FeatureTPU:     "Berth has no environment with TPUs.",
}

func inStage(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf("In stage %q. ", name)
}

// Mode returns how a stage is verified: as the task declares (restarted by
// default), or more strictly if the experiment asks for that. A declared mode
// is never weakened.
func Mode(t *task.Task, s *task.Stage, asked task.Mode) (task.Mode, error) {
	declared := t.ModeOf(s)
	if declared == "" {
		declared = task.ModeRestarted
	}
	switch {
	case asked == "" || asked == declared:
		return declared, nil
	case asked == task.ModeCopies && declared != task.ModeSeparate:
		// Only for verifiers that see nothing but the collected files in any mode.
		// A separate one relies on having all of them.
		return asked, nil
	case asked.Stronger(declared):
		return asked, nil
	default:
		instead := "remove verify"
		if declared == task.ModeLive {
			instead += fmt.Sprintf(", or choose %q", task.ModeRestarted)
		}
		return "", fmt.Errorf("%q is not stricter than %q, which the task declares: %s", asked, declared, instead)
	}
}

func modeProblems(t *task.Task, s *task.Stage, c cell.Cell, k Known) (ps []Problem) {
	add := func(summary, format string, args ...any) {
		ps = append(ps, Problem{Summary: summary, Detail: inStage(s.Name) + fmt.Sprintf(format, args...)})
	}
	mode, err := Mode(t, s, c.Verify)
	if err != nil {
		add("verification mode refused", "%s", err)
		return ps
	}
	if mode == task.ModeImage && needsSecond(s, k.Verifiers) {
		ps = append(ps, imageProblems(t, s)...)
	}
	if mode == task.ModeSeparate {
		ps = append(ps, separateProblems(t, s, c)...)
	}
	for _, u := range s.Verifiers {
		traits, ok := k.Verifiers[u.Name]
		switch {
		case !ok:
		case traits.Needs == verifier.NeedsOwn:
			ps = append(ps, ownProblems(t, s, c)...)
		case traits.Needs == verifier.NeedsSandbox && mode == task.ModeCopies:
			add(fmt.Sprintf("verifier %q needs the sandbox", u.Name), "Mode %q verifies collected files without one.", mode)
		case traits.Needs == verifier.NeedsSandbox && traits.Rounds && t.Interaction != nil && t.Interaction.MaxFollowUps > 0:
			add(fmt.Sprintf("verifier %q judges rounds and needs the sandbox", u.Name),
				"A judgement between turns works on copies only.")
		}
		if ok && len(traits.Models) > 0 && !k.Gateway {
			add(fmt.Sprintf("verifier %q needs a model", u.Name), "There is no gateway for models in this build.")
		}
		for _, name := range traits.Models {
			if _, given := c.Verifiers[u.Name].Models[name]; k.Gateway && !given {
				add(fmt.Sprintf("verifier %q needs a model", u.Name), "Set %s in a block verifier %q.", modelSetting(name), u.Name)
			}
		}
	}
	return ps
}

// modelSetting returns what to write in a block so that its plugin gets a model
// under a name.
func modelSetting(name string) string {
	if name == "default" {
		return "model = model.<name>"
	}
	return fmt.Sprintf("models = { %s = model.<name> }", name)
}

// Agent returns why an agent that needs n cannot play its part, "agent" or
// "user", in a cell. A nil n is not known, and nothing is refused because of
// it.
func Agent(part string, a cell.Agent, n *agent.Needs, gateway bool) (ps []Problem) {
	if n == nil {
		return nil
	}
	add := func(summary, format string, args ...any) {
		ps = append(ps, Problem{Summary: summary, Detail: fmt.Sprintf(format, args...)})
	}
	for _, r := range n.Refusals {
		add(fmt.Sprintf("%s %q refuses", part, a.Plugin), "%s", r)
	}
	if len(n.Dialects) == 0 {
		return ps
	}
	if !gateway {
		add(fmt.Sprintf("%s %q needs a model", part, a.Plugin), "There is no gateway for models in this build.")
	}
	if _, ok := a.Models["default"]; !ok {
		add(fmt.Sprintf("%s %q needs a model", part, a.Plugin), "Set model = model.<name>, with a model of provider %s; with berth try, use --model.", dialects(n))
	}
	for _, name := range slices.Sorted(maps.Keys(a.Models)) {
		m := a.Models[name]
		if d := m.Info().Dialect; d != "" && d != model.DialectScript && !slices.Contains(n.Dialects, d) {
			add(fmt.Sprintf("%s %q cannot use model %q", part, a.Plugin, m.Label), "The provider of the model is %q; the %s supports %s.", d, part, dialects(n))
		}
	}
	return ps
}

func dialects(n *agent.Needs) string {
	var ds []string
	for _, d := range n.Dialects {
		ds = append(ds, string(d))
	}
	return strings.Join(ds, ", ")
}

// Spec returns what to request from the environment of a cell, except for data
// that only an attempt knows (labels, folders, the resolved variables), and
// what the experiment changed of the task's wishes.
func Spec(t *task.Task, c cell.Cell, needs agent.Needs) (environment.Spec, []string, error) {
	e := &t.Environment
	given, modified, err := Network(t, c.Environment.Network)
	if err != nil {
		return environment.Spec{}, nil, fmt.Errorf("network: %w", err)
	}
	s, changed := specOf(t, e, c, given)
	modified = append(modified, changed...)
	if in := t.Interaction; in != nil && in.MaxFollowUps > 0 && c.User == nil {
		modified = append(modified, fmt.Sprintf("follow-ups: none instead of up to %d, since the experiment has no user", in.MaxFollowUps))
	}
	for _, b := range needs.Bundles {
		s.Mounts = append(s.Mounts, environment.Mount{Source: b.Source, Target: b.Target})
	}
	s.Users = withServices(s.Users, t)
	return s, modified, nil
}

// specOf returns what to request for e, an environment of the task, and which
// limits the experiment lowered.
func specOf(t *task.Task, e *task.Environment, c cell.Cell, given task.Network) (environment.Spec, []string) {
	s := environment.Spec{
		Config: c.Environment.Config.JSON(), Workdir: e.Workdir, Users: slices.Clone(e.Users),
		Network:  environment.Network{Mode: environment.NetworkMode(given.Mode)},
		Settings: e.Settings, Image: imageOf(t, e), Hostname: e.Hostname, Aliases: e.Aliases,
	}
	s.Sidecars, s.Volumes = SidecarSpecs(t, e)
	var changed []string
	s.Limits, changed = Limits(e.Limits, c.Environment.Limits)
	return s, changed
}

// withServices adds those whom the services of a task run as.
func withServices(users []string, t *task.Task) []string {
	for i := range t.Services {
		user := t.Services[i].Command.User
		if name, _, _ := strings.Cut(user, ":"); name != "" && name != "root" && name != "0" && !slices.Contains(users, user) {
			users = append(users, user)
		}
	}
	return users
}

func imageOf(t *task.Task, e *task.Environment) environment.Image {
	i := environment.Image{Ref: e.Image, Timeout: e.StartTime.Std()}
	if e.Image == "" && e.Build != nil && e.Build.File != "" {
		building(&i, t, e.Build)
	}
	return i
}

// building makes i the image that b describes.
func building(i *environment.Image, t *task.Task, b *task.Build) {
	i.Build, i.File, i.Digest, i.Target, i.Args = t.HostPath(b.Context), b.File, b.Digest, b.Target, b.Args
	i.Exclude, i.Files = b.Exclude, b.Files
}

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

// Surface asks the plugin with the surface what it needs for the stages of a
// task, and says why they cannot have what they ask for.
func (c *Checker) Surface(ctx context.Context, p environment.Environment, of record.PluginUsed, t *task.Task, in cell.Environment) (surface.Needs, []Problem, error) {
	_, conf := in.WithSurface()
	return surface.Ask(p, t, conf.JSON(), func(s environment.Surface, r environment.SurfaceRequest) (environment.SurfaceNeeds, error) {
		return answer(ctx, c, question{of, r},
			func(ctx context.Context) (environment.SurfaceNeeds, error) { return s.Needs(ctx, r) },
			func(n environment.SurfaceNeeds) bool { return len(n.Refusals) == 0 })
	})
}

// surfaceProblems says what of a task and an agent lacks a surface.
func surfaceProblems(t *task.Task, c cell.Cell, k Known) (ps []Problem) {
	for i := range t.Stages {
		if s := &t.Stages[i]; len(s.Captures) > 0 && s.Surface == nil {
			ps = append(ps, Problem{Summary: "task captures from a surface that no stage has", Detail: inStage(s.Name)})
		}
	}
	if k.Agent != nil && k.Agent.Surface && !t.HasSurface() {
		ps = append(ps, Problem{
			Summary: fmt.Sprintf("agent %q needs a surface", c.Agent.Plugin), Detail: "The task has none. Choose another agent, or exclude the task.",
		})
	}
	return ps
}

// Delivery is how a cell delivers a feature that a task declares.
type Delivery string

// The deliveries. The zero value means that a plugin could not be asked.
const (
	Delivered Delivery = "delivered"
	Told      Delivery = "told"    // the agent does not support it: the first message says where it is
	Reduced   Delivery = "reduced" // the experiment grants less
	Unused    Delivery = "unused"  // the agent uses no model, or is an oracle
	Refused   Delivery = "refused" // the cell cannot run the task because of it
)

// Deliver returns how a cell delivers a feature of a task that the cell can run.
func Deliver(t *task.Task, f task.Feature, c cell.Cell, n *agent.Needs) Delivery {
	switch f {
	case task.FeatureSkills, task.FeatureMCP:
		return offered(t, f, c, n)
	case task.FeatureNetwork:
		if _, modified, err := Network(t, c.Environment.Network); err == nil && len(modified) > 0 {
			return Reduced
		}
	case task.FeatureInteraction:
		if c.User == nil {
			return Reduced
		}
	default:
	}
	return Delivered
}

// offered returns how the agent of a cell learns of skills or MCP servers. This is the
// only rule about them: what an agent does not announce to support is written in the
// first message of its session, which helps only an agent with a shell.
func offered(t *task.Task, f task.Feature, c cell.Cell, n *agent.Needs) Delivery {
	supported := n != nil && f == task.FeatureSkills && n.Skills
	if n != nil && f == task.FeatureMCP {
		supported = !slices.ContainsFunc(t.MCPServers, func(m task.MCPServer) bool { return !slices.Contains(n.MCP, m.Transport) })
	}
	switch {
	case n == nil:
		return ""
	case c.Agent.Oracle:
		return Unused
	case supported:
		return Delivered
	case n.Shell || n.Terminal:
		return Told
	case len(n.Dialects) == 0:
		return Unused
	default:
		return Refused
	}
}

// offerProblems says why an agent cannot learn of the skills and MCP servers of a task.
func offerProblems(t *task.Task, c cell.Cell, k Known) (ps []Problem) {
	for _, n := range t.Needs() {
		if (n.Feature == task.FeatureSkills || n.Feature == task.FeatureMCP) && offered(t, n.Feature, c, k.Agent) == Refused {
			ps = append(ps, Problem{
				Summary: fmt.Sprintf("agent %q cannot use the %s of the task", c.Agent.Plugin, map[task.Feature]string{task.FeatureSkills: "skills", task.FeatureMCP: "MCP servers"}[n.Feature]),
				Detail:  fmt.Sprintf("The task has %s. The agent has no support for them, and no shell to reach them. Choose another agent, or exclude the task.", n.Detail),
			})
		}
	}
	return ps
}
