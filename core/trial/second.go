package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/collect"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/core/trial/sandbox"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// second is the sandbox in which the verifiers of a stage work when the mode is
// snapshot or separate. Its images are prepared while the agent works.
type second struct {
	name string // in attempt.sandboxes
	spec environment.Spec
	env  *task.Environment

	original environment.Image // what the agent's sandbox was made of
	system   *systemFiles      // nil: those of the snapshot are used

	services []host.ServiceChange // that the agent could have changed

	lasts bool // the agent's sandbox is needed after the snapshot
	began bool // the agent's sandbox is not needed any more: its end is not the agent's work
	holds bool // it has what the agent made, which may be why it fails

	cancel context.CancelFunc // stops the preparation
	placed chan struct{}      // closed when it has a place among those that build
	ready  chan error         // its result
}

// admitted waits until the preparation of the images has a place to build. The wait
// is in no phase, and is charged to no role.
func (s *second) admitted(ctx context.Context) error {
	if s.placed == nil {
		return nil
	}
	select {
	case <-s.placed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// wait waits for the preparation of the images.
func (s *second) wait(ctx context.Context) error {
	select {
	case err := <-s.ready:
		s.cancel()
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stop ends the preparation of the images, and waits for its end.
func (s *second) stop() {
	if s == nil || s.cancel == nil {
		return
	}
	s.cancel()
	for range s.ready { // until it is closed
	}
	s.cancel = nil
}

// prepareSecond checks that the environment can create the second sandbox, and
// begins to pull or build its images. It does nothing if the stage needs none.
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
	if lost := a.sandbox.Made.Image.Volumes; s.mode == task.ModeSnapshot && len(lost) > 0 {
		return a.at(p, fmt.Errorf("a snapshot would lose work of the agent: the image keeps %s in volumes, which a snapshot does not have: choose verify = %q",
			strings.Join(lost, ", "), task.ModeRestarted))
	}
	s.modified(modified)
	e := feasible.VerifierEnvironment(a.task, s.task, s.mode)
	env, err := e.Env.Resolve(a.in.LookupEnv)
	if err != nil {
		return a.at(p, fmt.Errorf("environment of the verifier: %w", err))
	}
	spec.Env, spec.Lease, spec.Labels = sandbox.Merge(env, cell.Strings(a.in.Cell.Environment.Env)), limits.Lease, a.spec.Labels
	w := &second{name: fmt.Sprintf("verifier-%d", s.i+1), spec: spec, env: e, lasts: s.i+1 < len(a.task.Stages)}
	if s.mode == task.ModeSnapshot {
		w.spec.Image, w.spec.Sidecars = a.spec.Image, slices.Clone(a.spec.Sidecars) // which are prepared
		w.original = a.spec.Image
		if a.in.Cell.System == cell.SystemImage {
			w.system = &systemFiles{}
		}
	}
	if err := a.check(ctx, w.spec); err != nil {
		return a.at(p, err)
	}
	s.second = w
	if s.mode == task.ModeSeparate {
		s.second.prepare(ctx, a, a.env)
	}
	return nil
}

// modified records what the experiment changed of the task's wishes.
func (s *stage) modified(what []string) {
	for _, m := range what {
		if !slices.Contains(s.a.res.Modified, m) { // the agent's sandbox may have the same
			s.a.res.Modified = append(s.a.res.Modified, m)
		}
	}
}

// prepare begins to pull or build the images.
func (s *second) prepare(ctx context.Context, a *attempt, env environment.Environment) {
	ctx, s.cancel = context.WithCancel(ctx)
	s.ready, s.placed = make(chan error, 1), make(chan struct{})
	go func() {
		defer close(s.ready)
		leave, err := func() {}, error(nil)
		if a.in.Places != nil {
			leave, err = a.in.Places.Build(ctx)
		}
		close(s.placed)
		if err == nil {
			err = a.images(ctx, env, &s.spec)
			leave()
		}
		s.ready <- err
	}()
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
// it. The agent's sandbox stays frozen until the next stage; after the last
// stage, a snapshot stops it.
func (s *stage) createSecond(ctx context.Context, reach feasible.Reachable) error {
	a, w := s.a, s.second
	programs := start{task: w.env, stage: s.task.Name, pure: s.mode == task.ModeSeparate}
	if s.mode == task.ModeSeparate {
		programs.health = s.task.VerifyHealthcheck
	}
	p := s.phase(record.PhaseCreate, record.ByEnvironment)
	if err := w.admitted(ctx); err != nil {
		return a.at(p, err)
	}
	err := a.phase(ctx, p, limits.Prepare+2*limits.Control+2*a.startTime(), func(ctx context.Context) (err error) {
		if s.mode == task.ModeSnapshot {
			programs.services, programs.health = a.task.Services, a.task.Healthcheck
			err = s.snapshot(ctx, p)
			if err == nil && !w.lasts {
				a.beginRemoval(ctx, a.sandbox) // it is stopped, and the snapshot has its files
			}
		} else {
			err = w.wait(ctx)
		}
		if err == nil {
			w.began = true
			err = s.newSecond(ctx, reach.Setup)
		}
		if err == nil && w.system != nil {
			err = s.putSystemBack(ctx, p)
		}
		return outcome.On(record.ByEnvironment, err)
	})
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

// newSecond creates and connects the second sandbox, with the folders that the
// task expects.
func (s *stage) newSecond(ctx context.Context, reach task.Hosts) error {
	a, w := s.a, s.second
	sidecars, err := feasible.SidecarEnv(w.env, a.in.LookupEnv)
	if err != nil {
		return outcome.On(record.ByConfig, err)
	}
	made, err := a.newSandbox(ctx, w.name, sandbox.Order{
		Spec: w.spec, Folder: filepath.Join(a.in.Runtime, fmt.Sprintf("g%d-", s.i+1)), Task: w.env, Sidecars: sidecars, Reach: reach,
	})
	if made != nil {
		s.graded = made
	}
	if err == nil {
		err = s.equip(ctx, made)
	}
	if err != nil && s.mode == task.ModeSnapshot {
		err = s.unfit(ctx, err)
	}
	w.holds = s.mode == task.ModeSnapshot
	return err
}

// equip makes the folders that the task expects in the second sandbox, and
// records what it is.
func (s *stage) equip(ctx context.Context, made *sandbox.Sandbox) error {
	a := s.a
	s.out.VerifierImage = &made.Made.Image
	for _, f := range append(made.Made.Findings, made.Hello.Findings...) {
		a.environmentSays(record.PhaseCreate, "protection", f)
	}
	if err := made.Folders(ctx, a.task.Paths.All()...); err != nil {
		return err
	}
	if s.mode == task.ModeSeparate && (s.task.VerifyIn == nil || s.task.VerifyIn.Upload) {
		return a.place(ctx, made, task.PlaceCreate, "")
	}
	return nil
}

// unfit attributes the error of a sandbox on a snapshot. The agent decides what is
// in the snapshot: if a sandbox can be created on the original image, that is the
// cause. A lack of room, or a plugin that ended, is not the agent's.
func (s *stage) unfit(ctx context.Context, err error) error {
	a := s.a
	_, late := errors.AsType[limits.Deadline](context.Cause(ctx))
	stopped := ctx.Err() != nil && !late
	if stopped || outcome.Of(record.ByEnvironment, err).Outcome != record.EnvironmentError || errors.Is(err, environment.ErrNoCapacity) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.startTime()+limits.Connect)
	defer cancel()
	name := fmt.Sprintf("image-%d", s.i+1)
	made, failed := s.originalSandbox(ctx, name)
	if made != nil {
		failed = errors.Join(failed, a.destroySandbox(ctx, name))
	}
	if failed != nil {
		return err
	}
	return instead(err, record.Error{
		Boundary: record.ByAgent, Outcome: record.AgentError, Err: fmt.Errorf("no sandbox can be created on the snapshot, and one on the original image can: %w", err),
	})
}

// notCopied decides who caused a failed snapshot or copy. The agent controls the
// content of its files, so the failure is the agent's if the environment refuses
// them, or can do the same with a fresh sandbox of the same image. Otherwise the
// image or the environment failed.
func (s *stage) notCopied(ctx context.Context, what string, err error, do func(context.Context, string) error) error {
	by := record.ByAgent
	err = fmt.Errorf("%s: %w", what, limits.Caused(ctx, err))
	switch {
	case errors.Is(err, environment.ErrNoCapacity) || errors.Is(err, environment.ErrUnsupported) || errors.Is(err, environment.ErrNoSandbox):
		by = record.ByEnvironment
	case errors.Is(err, environment.ErrRefused) || errors.Is(err, plugin.ErrPluginGone) || ctx.Err() != nil:
	default:
		if failed := s.unused(ctx, do); failed != nil {
			by = record.ByEnvironment
			err = fmt.Errorf("%w; in a fresh sandbox of the same image: %w", err, failed)
		}
	}
	return outcome.On(by, err)
}

// unused does something with a new sandbox on the original image, whose processes
// are stopped.
func (s *stage) unused(ctx context.Context, do func(context.Context, string) error) error {
	a := s.a
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.startTime()+limits.Connect+limits.Prepare)
	defer cancel()
	name := fmt.Sprintf("image-%d", s.i+1)
	made, err := s.originalSandbox(ctx, name)
	if made == nil {
		return err
	}
	if env, ok := a.env.(environment.Snapshotter); ok && err == nil {
		if err = env.Stop(ctx, made.Made.ID); err == nil {
			err = do(ctx, made.Made.ID)
		}
	}
	if gone := a.destroySandbox(ctx, name); gone != nil {
		a.recorder.Note(s.phase(record.PhaseCreate, record.ByEnvironment), "cleanup", "%s", gone)
	}
	return err
}

// snapshot makes an image of the file system of the agent's sandbox, for the
// second one.
func (s *stage) snapshot(ctx context.Context, p record.Phase) error {
	a, w := s.a, s.second
	if w.system == nil {
		w.services = s.changedTools(ctx, p, s.atEnd()).Services
	} else if err := s.systemChanges(ctx, p); err != nil {
		return err
	}
	if err := s.tampered(ctx, nil); err != nil {
		return outcome.On(record.ByAgent, err)
	}
	env, ok := a.env.(environment.Snapshotter)
	if !ok {
		return fmt.Errorf("snapshot: %w", environment.ErrUnsupported)
	}
	if a.sandbox.Gone() { // before anybody but the agent could have ended it
		return fmt.Errorf("snapshot: %w", a.sandbox.Err())
	}
	w.began = true
	if !w.lasts {
		if err := a.stayedStill(ctx); err != nil { // since the artifacts were copied
			return outcome.On(record.ByAgent, err)
		}
		_, err := call(ctx, record.ByEnvironment, "stop sandbox", limits.Destroy, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, env.Stop(ctx, a.sandbox.Made.ID)
		})
		if err != nil {
			return err
		}
	}
	ctx, cancel := limits.Limited(ctx, "snapshot", limits.Prepare)
	defer cancel()
	if w.system != nil {
		var err error
		if w.system.changed, err = env.Changed(ctx, a.sandbox.Made.ID); err != nil {
			return s.notCopied(ctx, "look for changed files", err, func(ctx context.Context, id string) error {
				_, err := env.Changed(ctx, id)
				return err
			})
		}
	}
	image, err := env.Snapshot(ctx, a.sandbox.Made.ID)
	if err != nil {
		return s.notCopied(ctx, "snapshot", err, func(ctx context.Context, id string) error {
			made, err := env.Snapshot(ctx, id)
			if err == nil {
				a.snapshots = append(a.snapshots, made.Ref) // to be removed
			}
			return err
		})
	}
	a.snapshots = append(a.snapshots, image.Ref)
	w.spec.Image = image
	return nil
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
	return errors.Join(err, s.a.dropSnapshots(ctx))
}

// dropSnapshots removes the images of snapshots.
func (a *attempt) dropSnapshots(ctx context.Context) error {
	var errs []error
	for _, ref := range a.snapshots {
		_, err := a.remove(ctx, ref)
		errs = append(errs, err)
	}
	a.snapshots = nil
	return errors.Join(errs...)
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
