package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/collect"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/core/trial/sandbox"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/system"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// second is the sandbox in which the verifiers of a stage work when the mode is
// image or separate.
type second struct {
	name string // in attempt.sandboxes
	spec environment.Spec
	env  *task.Environment

	services []host.ServiceChange // that the agent could have changed

	lasts bool // the agent's sandbox is needed after the copy
	began bool // the agent's sandbox is not needed any more: its end is not the agent's work
	holds bool // it has what the agent made, which may be why it fails
}

// prepareSecond checks that the environment can create the second sandbox. It does
// nothing if the stage needs none.
func (s *stage) prepareSecond(ctx context.Context) error {
	a := s.a
	if !feasible.InSecondSandbox(s.mode) || !s.inSandbox(s.atEnd()) {
		return nil
	}
	p := s.phase(record.PhasePrepare, record.ByConfig)
	spec, modified, err := feasible.VerifierSpec(a.task, s.task, s.mode, a.in.Cell)
	if err != nil {
		return a.at(p, err)
	}
	if lost := a.sandbox.Made.Image.Volumes; s.mode == task.ModeImage && len(lost) > 0 {
		return a.at(p, fmt.Errorf("work of the agent would be lost: the image keeps %s in volumes, which are not copied: choose verify = %q",
			strings.Join(lost, ", "), task.ModeRestarted))
	}
	if s.mode == task.ModeImage {
		spec.Image, spec.Sidecars = a.spec.Image, slices.Clone(a.spec.Sidecars) // which are prepared
	}
	w, err := s.newSpec(ctx, fmt.Sprintf("verifier-%d", s.i+1), spec, feasible.VerifierEnvironment(a.task, s.task, s.mode), modified)
	if err != nil {
		return a.at(p, err)
	}
	w.lasts, s.second = s.i+1 < len(a.task.Stages), w
	return nil
}

// newSpec checks that the environment can create a sandbox for verifiers.
func (s *stage) newSpec(ctx context.Context, name string, spec environment.Spec, e *task.Environment, modified []string) (*second, error) {
	a := s.a
	s.modified(modified)
	env, err := e.Env.Resolve(a.in.LookupEnv)
	if err != nil {
		return nil, fmt.Errorf("environment of the verifier: %w", err)
	}
	spec.Env, spec.Lease, spec.Labels = sandbox.Merge(env, cell.Strings(a.in.Cell.Environment.Env)), limits.Lease, a.spec.Labels
	return &second{name: name, spec: spec, env: e}, a.check(ctx, spec)
}

// modified records what the experiment changed of the task's wishes.
func (s *stage) modified(what []string) {
	for _, m := range what {
		if !slices.Contains(s.a.res.Modified, m) { // the agent's sandbox may have the same
			s.a.res.Modified = append(s.a.res.Modified, m)
		}
	}
}

// grade runs the verifiers, in the agent's sandbox or in the second one.
func (s *stage) grade(ctx context.Context, reach feasible.Reachable) error {
	if s.second != nil {
		if err := s.createSecond(ctx, reach); err != nil {
			return err
		}
	}
	inside, end := s.graded.Ctx(ctx)
	defer end()
	s.graded.Allow(reach.Verify)
	return s.verify(inside)
}

// createSecond creates the second sandbox and starts the programs of the task in
// it. The agent's sandbox stays frozen until the next stage.
func (s *stage) createSecond(ctx context.Context, reach feasible.Reachable) error {
	a, w := s.a, s.second
	programs := start{task: w.env, stage: s.task.Name, pure: s.mode == task.ModeSeparate}
	if s.mode == task.ModeSeparate {
		programs.health = s.task.VerifyHealthcheck
	}
	p := s.phase(record.PhaseCreate, record.ByEnvironment)
	err := a.phase(ctx, p, limits.Prepare+2*limits.Control+2*a.startTime(), func(ctx context.Context) (err error) {
		if s.mode == task.ModeImage {
			programs.services = a.task.Services
			if err = s.settled(ctx, p); err == nil {
				programs.health, err = s.healthcheck(ctx, p)
			}
		} else {
			err = a.images(ctx, a.env, &w.spec)
		}
		if err == nil {
			w.began = true
			var made *sandbox.Sandbox
			made, err = s.newSecond(ctx, w, fmt.Sprintf("g%d-", s.i+1), reach.Setup, s.mode == task.ModeImage || s.uploads())
			if made != nil {
				s.graded = made
			}
		}
		return outcome.On(record.ByEnvironment, err)
	})
	if err == nil && s.mode == task.ModeImage {
		err = s.fillSecond(ctx)
	}
	if err != nil {
		return err
	}
	programs.not = s.changedServices()
	ctx, end := s.graded.Ctx(ctx)
	defer end()
	programs.sandbox = s.graded
	if err = a.programs(ctx, programs); err != nil {
		return err
	}
	if s.mode == task.ModeSeparate {
		p := s.phase(record.PhaseSetup, record.ByEnvironment)
		w.holds = true
		err = a.phase(ctx, p, limits.Collect, func(ctx context.Context) error {
			return s.placeArtifacts(ctx, s.graded, filepath.Join(a.in.Record.Dir(), filepath.FromSlash(s.artifacts())), s.collected)
		})
	}
	return err
}

// newSecond creates and connects a sandbox for verifiers, with the folders that the
// task expects and, if upload is set, the files that it has from the beginning.
func (s *stage) newSecond(ctx context.Context, w *second, folder string, reach task.Hosts, upload bool) (*sandbox.Sandbox, error) {
	a := s.a
	sidecars, err := feasible.SidecarEnv(w.env, a.in.LookupEnv)
	if err != nil {
		return nil, outcome.On(record.ByConfig, err)
	}
	made, err := a.newSandbox(ctx, w.name, sandbox.Order{
		Spec: w.spec, Folder: filepath.Join(a.in.Runtime, folder), Task: w.env, Sidecars: sidecars, Reach: reach,
	})
	if err != nil {
		return made, err
	}
	s.out.VerifierImage = cmp.Or(s.out.VerifierImage, &made.Made.Image)
	for _, f := range append(made.Made.Findings, made.Hello.Findings...) {
		a.environmentSays(record.PhaseCreate, "protection", f)
	}
	if err = made.Folders(ctx, a.task.Paths.All()...); err == nil && upload {
		err = a.place(ctx, made, task.PlaceCreate, "")
	}
	return made, err
}

// uploads reports whether a sandbox for verifiers alone has the task's files for agents.
func (s *stage) uploads() bool { return s.task.VerifyIn == nil || s.task.VerifyIn.Upload }

// settled looks at the agent's sandbox before its work is copied.
func (s *stage) settled(ctx context.Context, p record.Phase) error {
	now := s.changes(ctx, p)
	s.second.services = now.Services
	if len(now.Files) > 0 {
		s.a.recorder.Note(p, "system_left", "files of the system changed %s, and the verification has those of the image: %s", inTurn, listed(now.Files, now.More))
	}
	if err := s.tampered(ctx, nil); err != nil {
		return outcome.On(record.ByAgent, err)
	}
	if s.a.sandbox.Gone() { // before anybody but the agent could have ended it
		return fmt.Errorf("copy the work: %w", s.a.sandbox.Err())
	}
	return nil
}

// healthcheck is the task's, unless it runs files that changed during the agent's turn.
func (s *stage) healthcheck(ctx context.Context, p record.Phase) (*task.Healthcheck, error) {
	h := s.a.task.Healthcheck
	if h == nil || !s.a.marked {
		return h, nil
	}
	files, err := s.a.sandbox.Names(ctx, h.Argv)
	if len(files) > 0 {
		s.a.recorder.Note(p, "healthcheck_not_run", "the healthcheck runs files that changed %s, so it is not run beside the tests: %s", inTurn, listed(files, 0))
		return nil, nil
	}
	return h, err
}

// fillSecond does in the second sandbox what the task did in the agent's before the
// agent came, and puts the agent's work there.
func (s *stage) fillSecond(ctx context.Context) error {
	a, w := s.a, s.second
	ctx, end := s.graded.Ctx(ctx)
	defer end()
	for i := range s.i + 1 {
		of := &stage{a: a, i: i, task: &a.task.Stages[i]}
		err := a.phase(ctx, of.phase(record.PhaseSetup, record.ByTask), limits.Setup, func(ctx context.Context) error { return of.prepare(ctx, s.graded) })
		if err != nil {
			return err
		}
	}
	w.holds = true
	p := s.phase(record.PhaseCollect, record.ByEnvironment)
	return a.phase(ctx, p, limits.Collect, func(ctx context.Context) error {
		err := a.stayedStill(ctx)
		if err == nil && !w.lasts {
			err = a.sandbox.Stop(ctx)
		}
		if err == nil {
			err = a.sandbox.Resume(ctx) // nothing can be started in it otherwise
		}
		if err != nil {
			return err
		}
		if err = s.copyWork(ctx, p); w.lasts {
			err = errors.Join(err, a.sandbox.Halt(ctx))
		}
		return err
	})
}

// copyWork copies the work from the agent's sandbox to the second one.
func (s *stage) copyWork(ctx context.Context, p record.Phase) error {
	read, written := io.Pipe()
	kept := make(chan error, 1)
	copying, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		err := host.Keep(copying, s.a.sandbox.Core(), s.a.sandbox.Asked, limits.WorkBytes, written)
		_ = written.CloseWithError(err)
		kept <- err
	}()
	err := s.takeWork(ctx, p, read)
	_ = read.CloseWithError(errors.New("the sandbox takes no more"))
	if err != nil {
		cancel()
	}
	err = errors.Join(err, <-kept)
	switch {
	case err == nil || ctx.Err() != nil:
	case strings.Contains(err.Error(), unix.ENOSPC.Error()):
		err = fmt.Errorf("%w: %w", environment.ErrNoCapacity, err)
	case errors.Is(err, host.ErrUnfit): // the agent decides what its files are
		return outcome.On(record.ByAgent, fmt.Errorf("copy the work: %w", err))
	}
	if err != nil {
		err = fmt.Errorf("copy the work: %w", err)
	}
	return err
}

// takeWork takes the work in an archive of host.Keep into the graded sandbox.
func (s *stage) takeWork(ctx context.Context, p record.Phase, in io.Reader) error {
	of, err := s.commands(s.atEnd())
	if err != nil {
		return outcome.On(record.ByConfig, err)
	}
	done, err := host.Restore(ctx, s.graded.Core(), system.RestoreQuery{WorkOnly: true, Aside: s.fresh(), Commands: of}, in)
	s.aside(p, done.Aside)
	return err
}

// changedServices returns the services that must not be started in the second
// sandbox, because files that they run changed during the agent's turn.
func (s *stage) changedServices() map[string]bool {
	not := map[string]bool{}
	for _, v := range s.second.services {
		if len(v.Files) > 0 {
			not[v.Name] = true
			s.notRestarted(v.Name, v.Files)
		}
	}
	return not
}

// placeArtifacts copies the artifacts that were collected into dir to their paths
// in a verifier's sandbox.
func (s *stage) placeArtifacts(ctx context.Context, w *sandbox.Sandbox, dir string, entries []collect.Entry) error {
	for _, e := range entries {
		if e.Status != collect.OK {
			continue
		}
		at := filepath.FromSlash(strings.TrimPrefix(e.Destination, record.ArtifactsDir+"/"))
		err := w.PutFiles(ctx, filepath.Join(dir, at), s.a.sandbox.Absolute(e.Source))
		if err == nil && e.Secrets > 0 {
			err = s.placeUnmasked(ctx, w, dir, at, e.Source)
		}
		if _, ours := errors.AsType[*fs.PathError](err); ours {
			err = outcome.On(record.ByCore, err)
		}
		if err != nil { // the agent decides what they are
			return fmt.Errorf("place artifact %s: %w", e.Source, err)
		}
	}
	return w.Folders(ctx, s.a.task.Paths.Artifacts) // its mode may have changed
}

// withoutArtifact names the declared artifact that could not be collected, if the
// tests in another sandbox came to no reward without it.
func (s *stage) withoutArtifact(err error) error {
	if s.mode != task.ModeSeparate || !errors.Is(err, verifier.ErrBadReward) {
		return err
	}
	for _, e := range s.collected {
		if e.Status == collect.Failed {
			return fmt.Errorf("%w: %s: %s; without it: %w", verifier.ErrArtifactMissing, e.Source, e.Reason, err)
		}
	}
	return err
}

// removeSecond removes the second sandbox between two stages.
func (s *stage) removeSecond(ctx context.Context) error {
	if s.second == nil {
		return nil
	}
	var err error
	if s.a.sandboxes[s.second.name] != nil {
		err = s.a.destroySandbox(ctx, s.second.name)
	}
	s.graded = s.a.sandbox
	return err
}

// lostSecond attributes an error to the agent if the end of the second sandbox
// explains it, and the agent's work was there.
func (s *stage) lostSecond(ctx context.Context, err error) error {
	switch {
	case s.graded == s.a.sandbox || !s.graded.Gone():
		return err
	case !s.second.holds:
		return cmp.Or(s.a.orphaned(ctx, s.graded, err), instead(err, record.Error{
			Boundary: record.ByEnvironment, Outcome: record.EnvironmentError, Retry: true, Err: err,
		}))
	}
	return cmp.Or(s.a.orphaned(ctx, s.graded, err), instead(err, record.Error{
		Boundary: record.ByAgent, Outcome: record.AgentError, Err: fmt.Errorf("the verifier's sandbox was lost: %w", err),
	}))
}
