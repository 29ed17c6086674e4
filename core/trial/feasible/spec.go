package feasible

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

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
		Settings: e.Settings, Image: environment.Image{Ref: e.Image, Timeout: e.StartTime.Std()}, Hostname: e.Hostname, Aliases: e.Aliases,
	}
	if e.Image == "" && e.Build != nil && e.Build.File != "" {
		building(&s.Image, t, e.Build)
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

// ask is the network access that one part of a task asks for.
type ask struct {
	who string
	task.Network
}

func asks(t *task.Task) []ask {
	out := []ask{askOf("the environment", t.Environment.Network)}
	for i := range t.Stages {
		s := &t.Stages[i]
		out = append(out, askOf("the agent of stage "+s.Name, t.NetworkOf(&s.Agent)), askOf("the verifier of stage "+s.Name, t.NetworkOf(&s.Verify)))
	}
	return out
}

func askOf(who string, n task.Network) ask {
	n.Mode = cmp.Or(n.Mode, task.NetworkNone)
	return ask{who, n}
}

// noNetwork is the end of a refusal.
const noNetwork = "network = \"none\" in the environment block runs the task without any, and marks the result as modified"

// Network decides how the sandbox is made, from what the task asks for and what
// the experiment grants; a nil granted grants what the task asks for. modified
// says what the task gets less of. Granting nothing is always possible and
// marks the result; granting only a part is refused.
//
// With NetworkAllow the sandbox has no network, and Reach says which hosts each
// phase may reach through the core's proxy. This covers lists, phases that
// differ, and a public network that a task asks for. A sandbox on an engine's
// network can also reach this machine, its neighbours and private networks, so
// only an experiment can grant that, with NetworkPublic.
func Network(t *task.Task, granted *task.Network) (given task.Network, modified []string, err error) {
	return network(asks(t), granted)
}

func network(all []ask, granted *task.Network) (given task.Network, modified []string, err error) {
	if granted != nil && granted.Mode == task.NetworkNone {
		for _, a := range all {
			if a.Mode != task.NetworkNone {
				modified = append(modified, fmt.Sprintf("network of %s: none instead of %s", a.who, a.Mode))
			}
		}
		return task.Network{Mode: task.NetworkNone}, modified, nil
	}
	given = task.Network{Mode: all[0].Mode}
	for _, a := range all {
		if err = permitted(a, granted); err != nil {
			return task.Network{}, nil, err
		}
		if a.Mode != given.Mode {
			given.Mode = task.NetworkAllow
		}
		for _, h := range a.Allow {
			if !slices.Contains(given.Allow, h) {
				given.Allow = append(given.Allow, h)
			}
		}
	}
	if given.Mode == task.NetworkPublic && granted == nil {
		given.Mode = task.NetworkAllow
	}
	return given, nil, nil
}

// Public reports whether the agent of a stage may reach any public host, in a
// sandbox made with that mode. Network has accepted the task.
func Public(t *task.Task, s *task.Stage, made task.NetworkMode) bool {
	return made != task.NetworkNone && Reach(t, s).Turn.Any
}

// permitted checks whether the experiment grants what a part of the task asks
// for. Only the user may allow an address of this machine or of a private
// network, because a task is not trusted with the services there.
func permitted(a ask, granted *task.Network) error {
	asked, err := a.Hosts()
	if err != nil {
		return fmt.Errorf("%s: %w", a.who, err)
	}
	given := task.Hosts{Any: true}
	if granted != nil {
		if given, err = granted.Hosts(); err != nil {
			return err
		}
	}
	if given.Any {
		if in := asked.Inner(); !in.Empty() {
			return fmt.Errorf("%s asks for %s, which is on this machine or in a private network: name it in allow_hosts with network = \"allow\" "+
				"in the environment block, together with the other hosts of the task, or %s", a.who, in, noNetwork)
		}
	}
	if !given.Covers(asked) {
		return fmt.Errorf("%s asks for %s (%s) and the experiment grants %s (%s): grant what the task asks; %s",
			a.who, a.Mode, asked, granted.Mode, given, noNetwork)
	}
	return nil
}

// Reachable says which hosts may be reached in each step of a stage. Nothing may be
// while files are collected.
type Reachable struct {
	Setup  task.Hosts // and before the first stage
	Turn   task.Hosts // and in all other steps until the programs of the agent have ended
	Verify task.Hosts
}

// Reach returns the hosts that the steps of a stage may reach if the sandbox
// was made with NetworkAllow. Processes that an agent left running reach no
// more than the agent did. Network has accepted the task.
func Reach(t *task.Task, s *task.Stage) Reachable {
	of := func(n task.Network) task.Hosts {
		r, err := n.Hosts()
		if err != nil {
			return task.Hosts{} // nothing
		}
		return r
	}
	return Reachable{Setup: of(t.Environment.Network), Turn: of(t.NetworkOf(&s.Agent)), Verify: of(t.NetworkOf(&s.Verify))}
}

// InSecondSandbox reports whether verifiers work in another sandbox than the
// agent did.
func InSecondSandbox(m task.Mode) bool { return m == task.ModeImage || m == task.ModeSeparate }

// VerifierEnvironment returns the environment of the task in which a stage is
// verified in mode m: that of its agent, unless the stage has one of its own.
func VerifierEnvironment(t *task.Task, s *task.Stage, m task.Mode) *task.Environment {
	if m == task.ModeSeparate && s.VerifyIn != nil {
		return s.VerifyIn
	}
	return &t.Environment
}

// VerifierSpec returns what to request for the sandbox in which a stage is
// verified in mode m, one of those of InSecondSandbox, and what the experiment
// changed of the task's wishes. It has the network of the verify phase, and no
// bundles of the agent.
func VerifierSpec(t *task.Task, s *task.Stage, m task.Mode, c cell.Cell) (environment.Spec, []string, error) {
	spec, modified, err := verifierSpec(t, s, VerifierEnvironment(t, s, m), t.NetworkOf(&s.Verify), c)
	if err == nil && m == task.ModeImage {
		spec.Users = withServices(spec.Users, t)
	}
	return spec, modified, err
}

// OwnSpec returns what to request for a sandbox of a verifier's own, and what the
// experiment changed of the task's wishes. It is made as that of a stage that is
// verified separately, but has no network unless the task declares one for the
// verifier.
func OwnSpec(t *task.Task, s *task.Stage, c cell.Cell) (environment.Spec, []string, error) {
	given := task.Network{Mode: task.NetworkNone}
	if s.Verify.Network != nil {
		given = *s.Verify.Network
	}
	return verifierSpec(t, s, VerifierEnvironment(t, s, task.ModeSeparate), given, c)
}

func verifierSpec(t *task.Task, s *task.Stage, e *task.Environment, n task.Network, c cell.Cell) (environment.Spec, []string, error) {
	given, modified, err := network([]ask{askOf("the verifier of stage "+s.Name, n)}, c.Environment.Network)
	if err != nil {
		return environment.Spec{}, nil, fmt.Errorf("network: %w", err)
	}
	spec, changed := specOf(t, e, c, given)
	if user := s.Verify.User; user != "" && !slices.Contains(spec.Users, user) {
		spec.Users = append(spec.Users, user)
	}
	return spec, append(modified, changed...), nil
}

// VerifierSpecs returns VerifierSpec of each stage of a task that is verified in
// a second sandbox, and OwnSpec of each verifier that wants its own sandbox.
// A verifier that verifiers, by the name that tasks use, does not name may need
// the sandbox, and wants none of its own.
func VerifierSpecs(t *task.Task, c cell.Cell, verifiers map[string]verifier.Traits) (specs []environment.Spec, err error) {
	for i := range t.Stages {
		s := &t.Stages[i]
		for range slices.DeleteFunc(slices.Clone(s.Verifiers), func(u task.VerifierUse) bool { return verifiers[u.Name].Needs != verifier.NeedsOwn }) {
			spec, _, err := OwnSpec(t, s, c)
			if err != nil {
				return nil, err
			}
			specs = append(specs, spec)
		}
		mode, err := Mode(t, s, c.Verify)
		if err != nil || !InSecondSandbox(mode) || !needsSecond(s, verifiers) {
			continue //nolint:nilerr // Unsupported reports it
		}
		spec, _, err := VerifierSpec(t, s, mode, c)
		if err != nil {
			return nil, err
		}
		specs = append(specs, spec)
	}
	return specs, nil
}

// needsSecond reports whether a stage that is verified in a second sandbox needs
// it. A verifier that is not known may.
func needsSecond(s *task.Stage, verifiers map[string]verifier.Traits) bool {
	return slices.ContainsFunc(s.Verifiers, func(u task.VerifierUse) bool {
		traits, known := verifiers[u.Name]
		return !known || traits.Needs == verifier.NeedsSandbox
	})
}

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
		limits, _ := Limits(s.Limits, task.Limits{})
		out = append(out, environment.Sidecar{
			Name: s.Name, Image: im, Argv: slices.Concat(s.Entrypoint, s.Command), User: s.User, Workdir: s.Workdir,
			Limits: limits, Volumes: volumes(s.Volumes), Hostname: s.Hostname, Aliases: s.Aliases,
		})
	}
	return out, volumes(e.Volumes)
}

func volumes(vs []task.Volume) []environment.Volume {
	var out []environment.Volume
	for _, v := range vs {
		out = append(out, environment.Volume(v))
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

// MemoryMiB returns how much memory the sandboxes of an attempt may use at the
// same time: the one of the agent, and the largest of those in which stages are
// verified. Containers without a limit count as 0.
func MemoryMiB(t *task.Task, c cell.Cell) int64 {
	agent, _ := specOf(t, &t.Environment, c, task.Network{})
	second := int64(0)
	for i := range t.Stages {
		s := &t.Stages[i]
		if mode, err := Mode(t, s, c.Verify); err == nil && InSecondSandbox(mode) {
			spec, _ := specOf(t, VerifierEnvironment(t, s, mode), c, task.Network{})
			second = max(second, memoryOf(&spec))
		}
	}
	return memoryOf(&agent) + second
}

func memoryOf(s *environment.Spec) int64 {
	sum := s.Limits.MemoryMiB
	for i := range s.Sidecars {
		sum += s.Sidecars[i].Limits.MemoryMiB
	}
	return sum
}
