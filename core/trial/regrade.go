package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/collect"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/core/trial/recorder"
	"github.com/berth-eval/berth/core/trial/sandbox"
	"github.com/berth-eval/berth/core/trial/views"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/system"
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

// turns returns how many turns of a stage the origin has.
func (o *Origin) turns(stage string) (n int, err error) {
	err = o.eachTurn(func(t *record.Turn) {
		if t.Kind == record.TurnYield && t.Stage == stage {
			n = max(n, t.Turn)
		}
	})
	return n, err
}

// hasRounds returns an error if the origin does not have what the verifiers of rounds
// judged.
func (o *Origin) hasRounds(s *task.Stage) error {
	turns, err := o.turns(s.Name)
	if err != nil {
		return err
	}
	for n := 1; n <= turns && len(s.Artifacts) > 0; n++ {
		if info, err := os.Lstat(filepath.Join(o.Dir, record.RoundsDir, fmt.Sprint(n))); err != nil || !info.IsDir() {
			return fmt.Errorf("the copies of round %d were not kept", n)
		}
	}
	return nil
}

// rejudge lets the verifiers of rounds judge the rounds of the origin. No turn is
// repeated. It ends with the round after which they want no further turn, because
// with them the agent would not have had one.
func (s *stage) rejudge(ctx context.Context) error {
	uses := s.ofRounds()
	if len(uses) == 0 {
		return nil
	}
	o := s.a.in.Origin
	turns, err := o.turns(s.task.Name)
	if err == nil {
		err = s.createOwn(ctx, uses)
	}
	if err != nil {
		return err
	}
	at := s.phase(record.PhaseJudge, record.ByVerifier)
	for s.turns < turns {
		s.turns++
		folder := filepath.Join(record.RoundsDir, fmt.Sprint(s.turns))
		copies := filepath.Join(o.Dir, folder)
		if len(s.own) > 0 {
			copies = filepath.Join(s.a.in.Record.Dir(), folder)
			if s.copied, err = s.originArtifacts(folder); err != nil {
				return s.a.at(at, err)
			}
		}
		verdicts, err := s.judgeCopies(ctx, uses, copies)
		s.out.Rounds = append(s.out.Rounds, verdicts...)
		if err != nil {
			s.out.Rounds = s.reducedRounds()
			return err
		}
		if goOn := outcome.GoOn(verdicts); !goOn || s.turns == turns {
			s.whole = s.turns == turns
			if goOn && s.followUps() > 0 {
				s.a.recorder.Note(at, "rounds_over", "the verifiers want a further turn after round %d, and attempt %d has no more", s.turns, o.Number)
			}
			if !goOn && !s.whole {
				s.a.recorder.Note(at, "rounds_left", "the verdict ends the loop after round %d of the %d of attempt %d", s.turns, turns, o.Number)
			}
			return nil
		}
	}
	return nil
}

// originArtifacts copies a folder of artifacts of the origin, for verifiers with a
// sandbox of their own. The folder of the origin may be another user's.
func (s *stage) originArtifacts(folder string) (entries []collect.Entry, err error) {
	a := s.a
	to := filepath.Join(a.in.Record.Dir(), folder)
	if err = collect.Folder(filepath.Join(a.in.Origin.Dir, folder), to, a.recorder.Redactor()); err != nil {
		return nil, outcome.On(record.ByCore, err)
	}
	text, err := untrusted.Read(to, collect.ManifestFile, 64<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // there are none
	}
	if err == nil {
		err = json.Unmarshal(text, &entries)
	}
	workdir := a.task.Environment.Workdir
	if im := a.in.Origin.Result.Image; workdir == "" && im != nil {
		workdir = im.Workdir
	}
	for i := range entries {
		e := &entries[i]
		if !filepath.IsLocal(filepath.FromSlash(strings.TrimPrefix(e.Destination, record.ArtifactsDir+"/"))) {
			err = errors.Join(err, fmt.Errorf("the place of %q is %q, which is not among the artifacts", e.Source, e.Destination))
		}
		if !path.IsAbs(e.Source) { // there is no sandbox of the agent that it could be relative to
			e.Source = path.Join("/", workdir, e.Source)
		}
	}
	if err != nil {
		err = outcome.On(record.ByCore, fmt.Errorf("artifacts of attempt %d: %w", a.in.Origin.Number, err))
	}
	return entries, err
}

// Keep says whether an attempt keeps the files of its sandbox.
type Keep struct {
	Passed   bool  // also if it passed
	MaxBytes int64 // of the files; with more, none is kept. 0: nothing is kept
}

// keepFiles stores what differs from the image when the agent's programs have
// ended and before anything of the verification is there. What cannot be kept is a
// note: it does not affect the result.
func (s *stage) keepFiles(ctx context.Context) error {
	a := s.a
	if a.in.Keep.MaxBytes == 0 || a.in.Origin != nil {
		return nil
	}
	p := s.phase(record.PhaseCollect, record.ByEnvironment)
	return a.phase(ctx, p, limits.Collect, func(ctx context.Context) error {
		err := a.whyNotKept()
		frozen := err == nil && s.mode == task.ModeImage && !a.sandbox.Frozen().IsZero()
		if frozen { // nothing can be started in it
			err = a.resume(ctx)
		}
		if err == nil {
			err = a.storeFiles(ctx)
		}
		if frozen {
			if halted := a.sandbox.Halt(ctx); halted != nil {
				return halted
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			a.recorder.Note(p, "files_not_kept", "the files of the sandbox are not kept: %s", err)
		}
		return nil
	})
}

// whyNotKept says why the files of the main container are not all that the agent
// worked on.
func (a *attempt) whyNotKept() error {
	switch e := &a.task.Environment; {
	case len(a.task.Stages) > 1:
		return errors.New("a task of several stages is verified in each of them, with the files that it had then")
	case len(e.Sidecars) > 0:
		return errors.New("those of further containers would be missing")
	case len(e.Volumes) > 0 || len(a.sandbox.Made.Image.Volumes) > 0:
		return errors.New("those of volumes would be missing")
	}
	return nil
}

// storeFiles writes the archive of the attempt.
func (a *attempt) storeFiles(ctx context.Context) (err error) {
	name := filepath.Join(a.in.Record.Dir(), record.FilesFile)
	f, err := os.OpenFile(name+".part", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err == nil {
			err = os.Rename(f.Name(), name)
		}
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
			return
		}
		a.res.Files = record.FilesFile
	}()
	z, err := zstd.NewWriter(f, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	masked := a.recorder.Redactor().Writer(z)
	err = host.Keep(ctx, a.sandbox.Core(), a.sandbox.Asked, a.in.Keep.MaxBytes, masked)
	if err != nil && strings.Contains(err.Error(), "too large") {
		err = fmt.Errorf("they are more than %d MiB (keep_mib): %w", a.in.Keep.MaxBytes>>20, err)
	}
	return errors.Join(err, masked.Close(), z.Close())
}

// dropFiles removes the kept files of an attempt that passed, unless all are kept.
func (a *attempt) dropFiles() {
	if a.res.Files == "" || a.in.Keep.Passed || a.res.Outcome != record.Passed {
		return
	}
	if err := os.Remove(filepath.Join(a.in.Record.Dir(), a.res.Files)); err == nil {
		a.res.Files = ""
	}
}

// restore makes the files of a new sandbox those of the origin. In mode image, only the
// work is taken.
func (s *stage) restore(ctx context.Context, p record.Phase) error {
	a := s.a
	in, err := os.Open(filepath.Join(a.in.Origin.Dir, record.FilesFile))
	if err != nil {
		return outcome.On(record.ByCore, err)
	}
	defer in.Close()
	z, err := zstd.NewReader(in, zstd.WithDecoderMaxMemory(256<<20), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return outcome.On(record.ByCore, err)
	}
	defer z.Close()
	if s.mode == task.ModeImage {
		err = s.takeWork(ctx, p, z)
	} else {
		_, err = host.Restore(ctx, a.sandbox.Core(), system.RestoreQuery{}, z)
	}
	if err != nil {
		return outcome.On(record.ByEnvironment, fmt.Errorf("restore the files of attempt %d: %w", a.in.Origin.Number, err))
	}
	return nil
}

// inherited are the findings of the origin that concern its integrity. In mode
// image, processes and changed programs of the origin are not there: those findings are
// only notes here.
func (o *Origin) inherited(c cell.Cell) []record.Finding {
	all := slices.DeleteFunc(slices.Clone(o.Result.Findings), func(f record.Finding) bool {
		return f.Severity == verifier.Note || f.Code == "tests_changed"
	})
	for i := range all {
		if c.Verify == task.ModeImage && slices.Contains(replaced, all[i].Code) {
			all[i].Severity = verifier.Note
		}
	}
	return all
}

// replaced are the findings about what is not there in mode image: processes, and
// programs that the agent changed.
var replaced = []string{"left_running", "system_changed", "changes_unknown", "service_changed", "service_traceable"}
