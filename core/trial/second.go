package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
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

// testbed is a sandbox for verifiers besides the agent's: the one in which they work
// in the modes image and separate, or that of a verifier that wants its own (needs =
// own), which is kept over all rounds of a stage. Nothing of the agent is in the latter
// but artifacts.
type testbed struct {
	name string // in attempt.sandboxes
	spec environment.Spec
	env  *task.Environment
	box  *sandbox.Sandbox // nil until it is needed

	services []host.ServiceChange // that the agent could have changed
	lasts    bool                 // the agent's sandbox is needed after the copy
	began    bool                 // the agent's sandbox is not needed any more: its end is not the agent's work
	holds    bool                 // it has what the agent made, which may be why it fails

	placed []string // artifacts of an earlier judgement, by their absolute paths
	steers bool     // a model chooses the commands that run in it
}

// testbeds returns the sandboxes for verifiers of the stage.
func (s *stage) testbeds() []*testbed {
	all := slices.Collect(maps.Values(s.own))
	if s.second != nil {
		all = append(all, s.second)
	}
	return all
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
	s.second, err = s.newTestbed(ctx, fmt.Sprintf("verifier-%d", s.i+1), spec, feasible.VerifierEnvironment(a.task, s.task, s.mode), modified)
	if err != nil {
		return a.at(p, err)
	}
	s.second.lasts = s.i+1 < len(a.task.Stages)
	return nil
}

// prepareOwn checks that the environment can create the verifiers' own sandboxes.
func (s *stage) prepareOwn(ctx context.Context) error {
	a := s.a
	p := s.phase(record.PhasePrepare, record.ByConfig)
	for n, u := range s.task.Verifiers {
		if a.verifiers[u.Name].Traits.Needs != verifier.NeedsOwn || s.own[u.Name] != nil {
			continue
		}
		spec, modified, err := feasible.OwnSpec(a.task, s.task, a.in.Cell)
		if err != nil {
			return a.at(p, err)
		}
		w, err := s.newTestbed(ctx, fmt.Sprintf("own-%d-%d", s.i+1, n+1), spec, feasible.VerifierEnvironment(a.task, s.task, task.ModeSeparate), modified)
		if err != nil {
			return a.at(p, err)
		}
		if s.own == nil {
			s.own = map[string]*testbed{}
		}
		w.steers = len(a.verifiers[u.Name].Traits.Models) > 0
		s.own[u.Name] = w
	}
	return nil
}

// newTestbed checks that the environment can create a sandbox for verifiers. It records
// what the experiment changed of the task's wishes.
func (s *stage) newTestbed(ctx context.Context, name string, spec environment.Spec, e *task.Environment, modified []string) (*testbed, error) {
	a := s.a
	for _, m := range modified {
		if !slices.Contains(a.res.Modified, m) { // the agent's sandbox may have the same
			a.res.Modified = append(a.res.Modified, m)
		}
	}
	env, err := e.Env.Resolve(a.in.LookupEnv)
	if err != nil {
		return nil, fmt.Errorf("environment of the verifier: %w", err)
	}
	spec.Env, spec.Lease, spec.Labels = sandbox.Merge(env, cell.Strings(a.in.Cell.Environment.Env)), limits.Lease, a.spec.Labels
	return &testbed{name: name, spec: spec, env: e}, a.check(ctx, spec)
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
			err = s.newSandbox(ctx, w, fmt.Sprintf("g%d-", s.i+1), reach.Setup, s.mode == task.ModeImage || s.uploads())
			if w.box != nil {
				s.graded = w.box
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

// newSandbox creates and connects a sandbox for verifiers, with the folders that the
// task expects and, if upload is set, the files that it has from the beginning.
func (s *stage) newSandbox(ctx context.Context, w *testbed, folder string, reach task.Hosts, upload bool) error {
	a := s.a
	sidecars, err := feasible.SidecarEnv(w.env, a.in.LookupEnv)
	if err != nil {
		return outcome.On(record.ByConfig, err)
	}
	w.box, err = a.newSandbox(ctx, w.name, sandbox.Order{
		Spec: w.spec, Folder: filepath.Join(a.in.Runtime, folder), Task: w.env, Sidecars: sidecars, Reach: reach,
	})
	if err != nil {
		return err
	}
	s.out.VerifierImage = cmp.Or(s.out.VerifierImage, &w.box.Made.Image)
	if err = a.furnish(ctx, w.box); err == nil && upload {
		err = a.place(ctx, w.box, task.PlaceCreate, "")
	}
	return err
}

// uploads reports whether a sandbox for verifiers alone has the task's files for agents.
func (s *stage) uploads() bool { return s.task.VerifyIn == nil || s.task.VerifyIn.Upload }

// createOwn creates those of the verifiers' own sandboxes that do not exist yet.
func (s *stage) createOwn(ctx context.Context, uses []task.VerifierUse) error {
	for _, u := range uses {
		o := s.own[u.Name]
		if o == nil || o.box != nil {
			continue
		}
		a := s.a
		p := s.phase(record.PhaseCreate, record.ByEnvironment)
		err := a.phase(ctx, p, limits.Prepare+limits.Control+a.startTime(), func(ctx context.Context) error {
			err := a.images(ctx, a.env, &o.spec)
			if err == nil {
				err = s.newOwn(ctx, o)
			}
			return outcome.On(record.ByEnvironment, err)
		})
		if err == nil {
			err = a.programs(ctx, start{sandbox: o.box, task: o.env, stage: s.task.Name, health: s.task.VerifyHealthcheck, pure: true})
		}
		if err != nil {
			return s.lostTestbed(ctx, o, fmt.Errorf("sandbox of verifier %s: %w", u.Name, err))
		}
	}
	return nil
}

// newOwn creates and connects a verifier's own sandbox, with the verifier's files.
func (s *stage) newOwn(ctx context.Context, o *testbed) error {
	err := s.newSandbox(ctx, o, o.name+"-", feasible.Reach(s.a.task, s.task).Verify, s.uploads())
	if err == nil {
		_, err = s.a.put(ctx, o.box, s.ownUser(o), s.placed(true))
	}
	return err
}

// ownUser returns the user of the verifier's commands in its own sandbox; empty
// means root.
func (s *stage) ownUser(o *testbed) string { return cmp.Or(s.task.Verify.User, o.box.Made.Image.User) }

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
	if h == nil || !s.a.systemListed {
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
		err := a.reportMoved(ctx)
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

// refill puts the artifacts of a judgement at their paths in a verifier's own
// sandbox, instead of those of the judgement before.
func (s *stage) refill(ctx context.Context, o *testbed, j judgement) error {
	if j.round > 0 && j.copies == "" {
		return nil // a message is rewritten: the copies of the round are there
	}
	entries, dir := s.collected, filepath.Join(s.a.in.Record.Dir(), filepath.FromSlash(s.artifacts()))
	if j.round > 0 {
		entries, dir = s.copied, j.copies
	}
	o.holds = true
	if len(o.placed) > 0 {
		if err := o.box.Remove(ctx, o.placed); err != nil {
			return fmt.Errorf("remove the artifacts of the round before: %w", err)
		}
		o.placed = nil
	}
	for _, e := range entries {
		if e.Status == collect.OK {
			o.placed = append(o.placed, s.a.sandbox.Absolute(e.Source))
		}
	}
	slices.Sort(o.placed)
	o.placed = slices.Compact(o.placed)
	return s.placeArtifacts(ctx, o.box, dir, entries)
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

// removeTestbeds removes the sandboxes for verifiers between two stages.
func (s *stage) removeTestbeds(ctx context.Context) (err error) {
	for _, w := range s.testbeds() {
		if s.a.sandboxes[w.name] != nil {
			err = cmp.Or(err, s.a.destroySandbox(ctx, w.name))
		}
	}
	s.graded = s.a.sandbox
	return err
}

// lostTestbed attributes an error if the end of a sandbox for verifiers explains it: to
// the agent if its work was there, and otherwise to the environment. A model that
// chooses the commands may be the cause itself; without a retry, the agent gains
// nothing if it was its work.
func (s *stage) lostTestbed(ctx context.Context, w *testbed, err error) error {
	if err == nil || w == nil || w.box == nil || !w.box.Gone() || ctx.Err() != nil {
		return err
	}
	f := record.Error{Boundary: record.ByEnvironment, Outcome: record.EnvironmentError, Retry: !w.holds, Err: err}
	if w.holds && !w.steers {
		f = record.Error{Boundary: record.ByAgent, Outcome: record.AgentError, Err: fmt.Errorf("the verifier's sandbox was lost: %w", err)}
	}
	return cmp.Or(s.a.orphaned(ctx, w.box, err), explain(err, f))
}
