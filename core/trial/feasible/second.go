package feasible

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

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
	asks := []ask{{"the verifier of stage " + s.Name, n}}
	if asks[0].Mode == "" {
		asks[0].Mode = task.NetworkNone
	}
	given, modified, err := network(asks, c.Environment.Network)
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

// imageProblems returns why what is copied is not all that the agent worked on. It is
// the files of main alone, so the verdict on a task with more would be about something
// else.
func imageProblems(t *task.Task, s *task.Stage) []Problem {
	var lost []string
	e := &t.Environment
	for i := range e.Sidecars {
		lost = append(lost, fmt.Sprintf("container %q would start anew", e.Sidecars[i].Name))
	}
	for _, v := range e.Volumes {
		lost = append(lost, fmt.Sprintf("volume %q would be empty", v.Name))
	}
	if lost == nil {
		return nil
	}
	return []Problem{{
		Summary: "work of the agent would be lost",
		Detail: inStage(s.Name) + fmt.Sprintf("Mode %q copies the files of the main container and nothing else: %s. Choose verify = %q.",
			task.ModeImage, strings.Join(lost, ", "), task.ModeRestarted),
	}}
}

// separateProblems returns why a stage cannot be verified in an environment of
// its own, with nothing of the agent's sandbox but the declared artifacts.
func separateProblems(t *task.Task, s *task.Stage, c cell.Cell) (ps []Problem) {
	if declared := t.ModeOf(s) == task.ModeSeparate; len(s.Artifacts) == 0 && (t.Paths.Artifacts == "" || !declared) {
		ps = append(ps, Problem{
			Summary: "task declares no artifacts",
			Detail: inStage(s.Name) + fmt.Sprintf("Mode %q verifies only declared artifacts. Declare them in the task, or choose verify = %q.",
				task.ModeSeparate, task.ModeRestarted),
		})
	}
	ps = append(ps, composeProblems(s)...)
	if _, _, err := VerifierSpec(t, s, task.ModeSeparate, c); err != nil {
		ps = append(ps, Problem{Summary: "network cannot be granted as the task asks", Detail: inStage(s.Name) + err.Error()})
	}
	return ps
}

// composeProblems returns why the verifier's own environment cannot be made of its
// compose file.
func composeProblems(s *task.Stage) []Problem {
	if s.VerifyIn == nil || s.VerifyIn.Compose == "" {
		return nil
	}
	return []Problem{{
		Summary: "verifier asks for several containers, by " + s.VerifyIn.Compose,
		Detail:  inStage(s.Name) + "The compose file has errors, which `berth task check` lists, or its format was not read.",
	}}
}

// ownProblems returns why a verifier cannot have its own sandbox.
func ownProblems(t *task.Task, s *task.Stage, c cell.Cell) []Problem {
	ps := composeProblems(s)
	if _, _, err := OwnSpec(t, s, c); err != nil {
		ps = append(ps, Problem{Summary: "network cannot be granted as the task asks", Detail: inStage(s.Name) + err.Error()})
	}
	return ps
}
