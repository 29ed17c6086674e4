package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/core/trial/recorder"
	"github.com/berth-eval/berth/core/trial/sandbox"
	"github.com/berth-eval/berth/core/trial/views"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/untrusted"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Origin is an attempt whose work is verified again: without its agent, in a new
// sandbox with the files that were kept, or without a sandbox if no verifier needs
// one.
type Origin struct {
	Number int
	Dir    string // folder of the attempt
	Result *record.Result
}

// Kept reports whether the attempt has the files of its sandbox.
func (o *Origin) Kept() bool {
	info, err := os.Lstat(filepath.Join(o.Dir, record.FilesFile))
	return err == nil && info.Mode().IsRegular() && o.Result.Files == record.FilesFile
}

// Regradable returns why an attempt cannot be verified again on a task in a cell, with
// the traits of its verifiers by the names that the task uses; nil if it can.
func (o *Origin) Regradable(t *task.Task, c cell.Cell, traits map[string]verifier.Traits) error {
	r := o.Result
	switch {
	case r.AgentEnd == "" || r.AgentEnd == record.SandboxLost:
		return errors.New("its agent left nothing to verify")
	case len(t.Stages) > 1:
		return errors.New("its task has several stages, each of which is verified when it ends")
	case r.Regraded != nil:
		return fmt.Errorf("it verified attempt %d again itself", r.Regraded.Attempt)
	}
	for _, u := range t.Stages[0].Verifiers {
		if t.Interaction != nil && traits[u.Name].Rounds {
			if err := o.hasRounds(&t.Stages[0]); err != nil {
				return fmt.Errorf("the verifier %q judges between turns: %w", u.Name, err)
			}
		}
		if traits[u.Name].Needs == verifier.NeedsSandbox && !o.Kept() {
			return fmt.Errorf("the verifier %q needs the sandbox, whose files were not kept (keep in the experiment)", u.Name)
		}
	}
	if r.Mode == string(task.ModeLive) && c.Verify != task.ModeImage && slices.ContainsFunc(r.Findings, func(f record.Finding) bool { return f.Code == "left_running" }) {
		return fmt.Errorf("its mode is %q, and the processes that its agent left running are gone: with verify = %q it is verified without them", task.ModeLive, task.ModeImage)
	}
	return o.sameInstruction(&t.Stages[0])
}

// sameInstruction returns an error if the agent was told something else than a
// stage says now: then the verdict would be about another task.
func (o *Origin) sameInstruction(s *task.Stage) error {
	told := ""
	err := o.eachTurn(func(t *record.Turn) {
		if told == "" && t.Kind == record.TurnMessage && t.From == "task" {
			told = t.Text
		}
	})
	if err != nil {
		return err
	}
	if now := recorder.Cut(views.Instruction(s), limits.MessageBytes); told != "" && told != now {
		return errors.New("the instruction of its task has changed: run the trial instead")
	}
	return nil
}

// eachTurn reads the lines about the turns of the origin. It may have none.
func (o *Origin) eachTurn(f func(*record.Turn)) error {
	_, err := untrusted.Lines(o.Dir, record.TurnsFile, 16<<20, 1<<30, func(line []byte) {
		var t record.Turn
		if json.Unmarshal(line, &t) == nil {
			f(&t)
		}
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// regrade verifies the work of the origin.
func (a *attempt) regrade(ctx context.Context) error {
	o := a.in.Origin
	a.res.Regraded = &record.Regraded{Attempt: o.Number, Files: o.Kept(), TaskDigest: o.Result.TaskDigest}
	a.res.AgentTime, a.res.Steps, a.res.Oracle, a.res.Claimed = o.Result.AgentTime, o.Result.Steps, o.Result.Oracle, o.Result.Claimed
	a.res.Usage = o.Result.Worked()
	a.stages[0].Ran, a.stages[0].AgentEnd = true, o.Result.AgentEnd
	if len(o.Result.Stages) > 0 {
		a.stages[0].LastTurn = o.Result.Stages[0].LastTurn
	}
	for _, f := range o.inherited(a.in.Cell) {
		a.recorder.Finding(record.Phase{Name: f.Phase, Stage: f.Stage}, f.By, f.Finding)
	}
	err := a.phase(ctx, record.Phase{Name: record.PhasePrepare, Who: record.ByCore}, limits.Prepare, a.prepare)
	if err != nil {
		return err
	}
	traits := map[string]verifier.Traits{}
	for name, v := range a.verifiers {
		traits[name] = v.Traits
	}
	if err = o.Regradable(a.task, a.in.Cell, traits); err != nil {
		return a.at(record.Phase{Name: record.PhasePrepare, Who: record.ByConfig}, outcome.On(record.ByConfig, err))
	}
	s := a.newStage(0)
	if s.mode, err = feasible.Mode(a.task, s.task, a.in.Cell.Verify); err != nil {
		return a.at(s.phase(record.PhaseSetup, record.ByConfig), err)
	}
	if err = s.prepareOwn(ctx); err != nil {
		return err
	}
	if !o.Kept() || !s.inSandbox(s.task.Verifiers) {
		s.mode = task.ModeCopies // of the artifacts that the origin has
		if len(s.own) > 0 {
			if s.collected, err = s.originArtifacts(record.ArtifactsDir); err != nil {
				return a.at(s.phase(record.PhaseCollect, record.ByCore), err)
			}
		}
		if err = a.enter(ctx, Verifying); err != nil {
			return a.at(s.phase(record.PhaseVerify, record.ByCore), err)
		}
		if err = s.rejudge(ctx); err != nil {
			return err
		}
		return s.verify(ctx)
	}
	err = a.phase(ctx, record.Phase{Name: record.PhaseCreate, Who: record.ByEnvironment}, a.startTime()+limits.Collect, func(ctx context.Context) error {
		return a.createRestored(ctx, s)
	})
	if err == nil {
		err = a.gradeRestored(ctx, s)
	}
	return err
}

// createRestored creates a sandbox of the image, with the files of the origin.
func (a *attempt) createRestored(ctx context.Context, s *stage) error {
	if err := a.create(ctx); err != nil {
		return err
	}
	before := a.in.Origin.Result.Image
	if now := &a.sandbox.Made.Image; before != nil && before.Digest != "" && before.Digest != now.Digest {
		return outcome.On(record.ByConfig, fmt.Errorf("the image is %s, and that of attempt %d was %s: only the verification may change", now.Digest, a.in.Origin.Number, before.Digest))
	}
	ctx, end := a.sandbox.Ctx(ctx)
	defer end()
	s.graded = a.sandbox
	if s.mode == task.ModeImage {
		if err := s.prepare(ctx, a.sandbox); err != nil {
			return outcome.On(a.owner(record.ByTask), err)
		}
	}
	return s.restore(ctx, record.Phase{Name: record.PhaseCreate, Who: record.ByEnvironment})
}

// gradeRestored starts the programs of the task and verifies.
func (a *attempt) gradeRestored(ctx context.Context, s *stage) (err error) {
	inside, end := a.sandbox.Ctx(ctx)
	defer end()
	s.graded = a.sandbox
	if s.mode == task.ModeSeparate {
		err = s.prepareSecond(inside)
	} else {
		err = a.programs(inside, start{sandbox: a.sandbox, task: &a.task.Environment, services: a.task.Services, health: a.task.Healthcheck, not: a.notAgain(s)})
	}
	if err == nil {
		err = s.collect(inside)
	}
	if err == nil {
		err = s.awaitVerification(inside)
	}
	if err == nil {
		err = s.rejudge(inside)
	}
	if err == nil {
		err = s.grade(ctx, feasible.Reach(a.task, s.task))
	}
	if err != nil {
		return s.lost(inside, err)
	}
	return nil
}

// notAgain returns the services that are not started, because files that they run
// had changed during the agent's turn.
func (a *attempt) notAgain(s *stage) map[string]bool {
	not := map[string]bool{}
	names := []string{sandbox.Entrypoint}
	for i := range a.task.Services {
		names = append(names, a.task.Services[i].Name)
	}
	for _, f := range a.in.Origin.Result.Findings {
		if f.Code != "service_not_restarted" && f.Code != "service_changed" {
			continue
		}
		for _, name := range names {
			if strings.Contains(f.Text, fmt.Sprintf("service %q", name)) {
				not[name] = true
				s.notRestarted(name, []string{"see attempt " + fmt.Sprint(a.in.Origin.Number)})
			}
		}
	}
	return not
}
