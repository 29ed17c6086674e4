package trial

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/collect"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/core/trial/sandbox"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// own is the sandbox of a verifier that wants one of its own (needs = own). It is
// kept over all rounds of a stage. Nothing of the agent is in it but artifacts.
type own struct {
	second

	box    *sandbox.Sandbox // nil until it is needed
	placed []string         // artifacts of an earlier judgement, by their absolute paths
	steers bool             // a model chooses the commands that run in it
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
		w, err := s.newSpec(ctx, fmt.Sprintf("own-%d-%d", s.i+1, n+1), spec, feasible.VerifierEnvironment(a.task, s.task, task.ModeSeparate), modified)
		if err != nil {
			return a.at(p, err)
		}
		if s.own == nil {
			s.own = map[string]*own{}
		}
		s.own[u.Name] = &own{second: *w, steers: len(a.verifiers[u.Name].Traits.Models) > 0}
	}
	return nil
}

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
			programs := start{sandbox: o.box, task: o.env, stage: s.task.Name, health: s.task.VerifyHealthcheck, pure: true}
			err = a.programs(ctx, programs)
		}
		if err != nil {
			return s.lostOwn(ctx, o, fmt.Errorf("sandbox of verifier %s: %w", u.Name, err))
		}
	}
	return nil
}

// newOwn creates and connects a verifier's own sandbox, with the verifier's files.
func (s *stage) newOwn(ctx context.Context, o *own) (err error) {
	a := s.a
	o.box, err = s.newSecond(ctx, &o.second, o.name+"-", feasible.Reach(a.task, s.task).Verify, s.uploads())
	if err != nil {
		return err
	}
	for i := range a.task.Resources {
		r := &a.task.Resources[i]
		if r.Phase != task.PlaceVerify || r.Place == "" || r.Stage != "" && r.Stage != s.task.Name || s.task.VerifyFilesInImage {
			continue
		}
		if _, err = a.put(ctx, o.box, r, s.ownUser(o)); err != nil {
			return fmt.Errorf("place %s: %w", r.Name, err)
		}
	}
	return nil
}

// ownUser returns the user of the verifier's commands in its own sandbox; empty
// means root.
func (s *stage) ownUser(o *own) string { return cmp.Or(s.task.Verify.User, o.box.Made.Image.User) }

// refill puts the artifacts of a judgement at their paths in a verifier's own
// sandbox, instead of those of the judgement before.
func (s *stage) refill(ctx context.Context, o *own, j judgement) error {
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

// lostOwn attributes an error if the end of a verifier's own sandbox explains it:
// to the agent if its work was there, and otherwise to the environment. A model that
// chooses the commands may be the cause itself; without a retry, the agent gains
// nothing if it was its work.
func (s *stage) lostOwn(ctx context.Context, o *own, err error) error {
	if err == nil || o == nil || o.box == nil || !o.box.Gone() || ctx.Err() != nil {
		return err
	}
	f := record.Error{Boundary: record.ByEnvironment, Outcome: record.EnvironmentError, Retry: !o.holds, Err: err}
	if o.holds && !o.steers {
		f = record.Error{Boundary: record.ByAgent, Outcome: record.AgentError, Err: fmt.Errorf("the verifier's own sandbox was lost: %w", err)}
	}
	return cmp.Or(s.a.orphaned(ctx, o.box, err), instead(err, f))
}

// removeOwn removes the verifiers' own sandboxes between two stages.
func (s *stage) removeOwn(ctx context.Context) (err error) {
	for _, o := range s.own {
		if s.a.sandboxes[o.name] != nil {
			err = cmp.Or(err, s.a.destroySandbox(ctx, o.name))
		}
	}
	return err
}
