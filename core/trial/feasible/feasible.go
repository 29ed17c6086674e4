// Package feasible decides whether a task can run in a cell, how it is verified
// there, and what to request from its environment: what the task wants, reduced
// to what the experiment grants. A result with less than the task asks for is
// marked. Plan checks this before anything starts, and each attempt checks it
// again.
//
// It calls only Check of plugins (Checker), and must not touch files.
package feasible

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/model"
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

// check collects the problems of a task in a cell.
type check struct {
	t  *task.Task
	c  cell.Cell
	k  Known
	ps []Problem
}

// add adds a problem of a stage, or of the whole task if the stage is empty.
func (x *check) add(stage, summary, format string, args ...any) {
	detail := fmt.Sprintf(format, args...)
	if stage != "" {
		detail = fmt.Sprintf("In stage %q. ", stage) + detail
	}
	x.ps = append(x.ps, Problem{Summary: summary, Detail: detail})
}

// Unsupported returns what a task needs and this version cannot do in a cell,
// and what the cell must not do to the task. Plan calls it for every task and
// cell, and a trial calls it again.
func Unsupported(t *task.Task, c cell.Cell, k Known) []Problem {
	x := &check{t: Sessions(t, c), c: c, k: k}
	x.sessions()
	x.features()
	for i := range x.t.Stages {
		x.stage(&x.t.Stages[i])
	}
	if _, _, err := Network(t, c.Environment.Network); err != nil {
		x.add("", "network cannot be granted as the task asks", "%s", err)
	}
	x.agent("agent", c.Agent, k.Agent)
	if c.User != nil && t.Interaction != nil {
		x.user(c.User.Agent, k.User)
	}
	return x.ps
}

// User returns why an agent that needs n cannot be the simulated user.
func User(a cell.Agent, n *agent.Needs, gateway bool) []Problem {
	x := &check{k: Known{Gateway: gateway}}
	x.user(a, n)
	return x.ps
}

// later are the features that this version refuses by name, with advice.
var later = map[task.Feature]string{
	task.FeatureCompose: "Its compose file was not read.",
	task.FeatureWindows: "Berth has no Windows sandboxes.",
	task.FeatureTPU:     "Berth has no environment with TPUs.",
}

// features checks what the task declares to need.
func (x *check) features() {
	for _, n := range x.t.Needs() {
		if why, ok := later[n.Feature]; ok {
			x.add(n.Stage, fmt.Sprintf("task asks for %s", n.Detail), "%s", why)
		}
		what, offer := map[task.Feature]string{task.FeatureSkills: "skills", task.FeatureMCP: "MCP servers"}[n.Feature]
		if offer && offered(x.t, n.Feature, x.c, x.k.Agent) == Refused {
			x.add("", fmt.Sprintf("agent %q cannot use the %s of the task", x.c.Agent.Plugin, what),
				"The task has %s. The agent has no support for them, and no shell to reach them. Choose another agent, or exclude the task.", n.Detail)
		}
	}
	if n := x.k.Agent; n != nil && n.Surface && !x.t.HasSurface() {
		x.add("", fmt.Sprintf("agent %q needs a surface", x.c.Agent.Plugin), "The task has none. Choose another agent, or exclude the task.")
	}
}

// stage checks what a stage asks of the agent, and how it is verified.
func (x *check) stage(s *task.Stage) {
	if len(s.Captures) > 0 && s.Surface == nil {
		x.add(s.Name, "task captures from a surface that no stage has", "")
	}
	if n := x.k.Agent; n != nil && len(s.Instruction) == 0 && len(n.Dialects) > 0 {
		x.add(s.Name, "task has no instruction", "Agent %q works on what a task says.", x.c.Agent.Plugin)
	}
	if x.k.Agent != nil && x.c.Agent.Oracle && s.Reference == nil {
		x.add(s.Name, "task has no reference solution", "An oracle cannot run it.")
	}
	mode, err := Mode(x.t, s, x.c.Verify)
	if err != nil {
		x.add(s.Name, "verification mode refused", "%s", err)
		return
	}
	if mode == task.ModeImage && needsSecond(s, x.k.Verifiers) {
		x.image(s)
	}
	if mode == task.ModeSeparate {
		if declared := x.t.ModeOf(s) == task.ModeSeparate; len(s.Artifacts) == 0 && (x.t.Paths.Artifacts == "" || !declared) {
			x.add(s.Name, "task declares no artifacts", "Mode %q verifies only declared artifacts. Declare them in the task, or choose verify = %q.",
				task.ModeSeparate, task.ModeRestarted)
		}
		_, _, err = VerifierSpec(x.t, s, task.ModeSeparate, x.c)
		x.separate(s, err)
	}
	for _, u := range s.Verifiers {
		if traits, ok := x.k.Verifiers[u.Name]; ok {
			x.verifier(s, u.Name, traits, mode)
		}
	}
}

// image refuses mode image if what is copied is not all that the agent worked on. It
// is the files of main alone, so the verdict on a task with more would be about
// something else.
func (x *check) image(s *task.Stage) {
	var lost []string
	e := &x.t.Environment
	for i := range e.Sidecars {
		lost = append(lost, fmt.Sprintf("container %q would start anew", e.Sidecars[i].Name))
	}
	for _, v := range e.Volumes {
		lost = append(lost, fmt.Sprintf("volume %q would be empty", v.Name))
	}
	if lost != nil {
		x.add(s.Name, "work of the agent would be lost", "Mode %q copies the files of the main container and nothing else: %s. Choose verify = %q.",
			task.ModeImage, strings.Join(lost, ", "), task.ModeRestarted)
	}
}

// separate checks a sandbox with nothing of the agent's but artifacts; err is that of
// its specification.
func (x *check) separate(s *task.Stage, err error) {
	if s.VerifyIn != nil && s.VerifyIn.Compose != "" {
		x.add(s.Name, "verifier asks for several containers, by "+s.VerifyIn.Compose,
			"The compose file has errors, which `berth task check` lists, or its format was not read.")
	}
	if err != nil {
		x.add(s.Name, "network cannot be granted as the task asks", "%s", err)
	}
}

// verifier checks that a verifier gets its sandbox and its models.
func (x *check) verifier(s *task.Stage, name string, traits verifier.Traits, mode task.Mode) {
	in := x.t.Interaction
	switch {
	case traits.Needs == verifier.NeedsOwn:
		_, _, err := OwnSpec(x.t, s, x.c)
		x.separate(s, err)
	case traits.Needs == verifier.NeedsSandbox && mode == task.ModeCopies:
		x.add(s.Name, fmt.Sprintf("verifier %q needs the sandbox", name), "Mode %q verifies collected files without one.", mode)
	case traits.Needs == verifier.NeedsSandbox && traits.Rounds && in != nil && in.MaxFollowUps > 0:
		x.add(s.Name, fmt.Sprintf("verifier %q judges rounds and needs the sandbox", name), "A judgement between turns works on copies only.")
	}
	if len(traits.Models) > 0 && !x.k.Gateway {
		x.add(s.Name, fmt.Sprintf("verifier %q needs a model", name), "There is no gateway for models in this build.")
	}
	for _, m := range traits.Models {
		if _, given := x.c.Verifiers[name].Models[m]; x.k.Gateway && !given {
			x.add(s.Name, fmt.Sprintf("verifier %q needs a model", name), "Set %s in a block verifier %q.", modelSetting(m), name)
		}
	}
}

// agent checks that an agent which needs n can play its part, "agent" or "user". A nil
// n is not known, and nothing is refused because of it.
func (x *check) agent(part string, a cell.Agent, n *agent.Needs) {
	if n == nil {
		return
	}
	for _, r := range n.Refusals {
		x.add("", fmt.Sprintf("%s %q refuses", part, a.Plugin), "%s", r)
	}
	if len(n.Dialects) == 0 {
		return
	}
	if !x.k.Gateway {
		x.add("", fmt.Sprintf("%s %q needs a model", part, a.Plugin), "There is no gateway for models in this build.")
	}
	if _, ok := a.Models["default"]; !ok {
		x.add("", fmt.Sprintf("%s %q needs a model", part, a.Plugin),
			"Set model = model.<name>, with a model of provider %s; with berth try, use --model.", dialects(n))
	}
	for _, name := range slices.Sorted(maps.Keys(a.Models)) {
		m := a.Models[name]
		if d := m.Info().Dialect; d != "" && d != model.DialectScript && !slices.Contains(n.Dialects, d) {
			x.add("", fmt.Sprintf("%s %q cannot use model %q", part, a.Plugin, m.Label), "The provider of the model is %q; the %s supports %s.", d, part, dialects(n))
		}
	}
}

// user checks the simulated user.
func (x *check) user(a cell.Agent, n *agent.Needs) {
	x.agent("user", a, n)
	if n != nil && (n.Shell || n.Terminal || n.Surface) {
		x.add("", fmt.Sprintf("user %q asks for a sandbox", a.Plugin),
			"A simulated user has no sandbox. Use an agent that needs no shell, terminal or surface.")
	}
}

// sessions checks that the stages can share a session as they should, and that
// the agent can continue from a prior trajectory.
func (x *check) sessions() {
	n, plugin := x.k.Agent, x.c.Agent.Plugin
	advice := "Remove same_session from the agent block, or choose another agent."
	if !x.c.Agent.SameSession {
		advice = "The task asks for it. Choose another agent."
	}
	noPrior := fmt.Sprintf("agent %q cannot continue from a prior trajectory", plugin)
	if x.c.Agent.Prior != "" && n != nil && !n.TakesPrior {
		x.add("", noPrior, "Remove prior_trajectory from the agent block, or choose another agent.")
		n = nil // nothing more of it
	}
	for i := range x.t.Stages {
		s := &x.t.Stages[i]
		// An agent without a model has no conversation, and may ignore the file.
		if s.PriorTrajectory != "" && n != nil && len(n.Dialects) > 0 && !n.TakesPrior {
			x.add(s.Name, noPrior, "The task has one (%s). Choose another agent, or exclude the task.", s.PriorTrajectory)
		}
		if i == 0 || !s.SameSession {
			continue
		}
		before := &x.t.Stages[i-1]
		switch {
		case x.c.Agent.Oracle:
			x.add(s.Name, "an oracle cannot work in one session", "Each stage has its own solution. Remove same_session from the agent block.")
		case n != nil && !n.KeepsSession:
			x.add(s.Name, fmt.Sprintf("agent %q cannot continue its session in a further stage", plugin), "%s", advice)
		case before.Agent.User != s.Agent.User || !sameEnv(before.Agent.Env, s.Agent.Env):
			x.add(s.Name, "one session cannot change its user or variables", "The agent has others than in stage %q. %s", before.Name, advice)
		default:
			continue
		}
		return // of the further stages, the same could be said
	}
}

func sameEnv(a, b task.Env) bool { return len(a)+len(b) == 0 || reflect.DeepEqual(a, b) }

// Mode returns how a stage is verified: as the task declares (restarted by
// default), or more strictly if the experiment asks for that. A declared mode
// is never weakened.
func Mode(t *task.Task, s *task.Stage, asked task.Mode) (task.Mode, error) {
	declared := cmp.Or(t.ModeOf(s), task.ModeRestarted)
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

// Sessions returns the task as a cell runs it: if the experiment asks for one
// session, every stage after the first continues it. It does not change t.
func Sessions(t *task.Task, c cell.Cell) *task.Task {
	if !c.Agent.SameSession || len(t.Stages) < 2 {
		return t
	}
	one := *t
	one.Stages = slices.Clone(t.Stages)
	for i := range one.Stages[1:] {
		one.Stages[i+1].SameSession = true
	}
	return &one
}

// modelSetting returns what to write in a block so that its plugin gets a model
// under a name.
func modelSetting(name string) string {
	if name == "default" {
		return "model = model.<name>"
	}
	return fmt.Sprintf("models = { %s = model.<name> }", name)
}

func dialects(n *agent.Needs) string {
	var ds []string
	for _, d := range n.Dialects {
		ds = append(ds, string(d))
	}
	return strings.Join(ds, ", ")
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
