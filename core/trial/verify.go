package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/collect"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/core/trial/recorder"
	"github.com/berth-eval/berth/core/trial/sandbox"
	"github.com/berth-eval/berth/core/trial/views"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/relay"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// verify calls the verifiers that do not judge rounds, in the task's order,
// each with the verdicts of those before it.
func (s *stage) verify(ctx context.Context) error {
	a := s.a
	s.out.Verdicts, s.out.Rounds = s.reducedRounds(), nil
	uses := s.atEnd()
	p := s.phase(record.PhaseVerify, record.ByVerifier)
	if len(uses) == 0 {
		s.out.Verified = true
		return nil
	}
	if err := s.createOwn(ctx, uses); err != nil {
		return err
	}
	limit := limits.Control
	for range uses {
		limit += 2*(s.verifyTime()+limits.Return) + limits.Control // it may be called twice
	}
	return a.phase(ctx, p, limit+limits.Setup, func(ctx context.Context) error {
		sums, err := s.fill(ctx, p, uses)
		if err != nil {
			return outcome.On(a.owner(record.ByEnvironment), fmt.Errorf("prepare the verification: %w", err))
		}
		if s.inSandbox(uses) && s.graded == a.sandbox {
			now := s.changes(ctx, p)
			s.systemChanged(p, now, inTurn)
			s.suspectServices(p, now.Services)
			defer s.servicesAgain(ctx, p)
		}
		endTests, err := s.runningBefore(ctx, uses)
		if err != nil {
			return outcome.On(a.owner(record.ByEnvironment), fmt.Errorf("list what runs before the tests: %w", err))
		}
		defer s.offline(p)
		defer s.verifierLogs(ctx, p)
		for n, u := range uses {
			v, err := s.judge(ctx, judgement{use: u, number: n + 1, earlier: s.out.Verdicts})
			if err != nil {
				endTests()
				if err = s.failed(ctx, p, u, fmt.Errorf("verifier %s: %w", u.Name, s.withoutArtifact(err))); err != nil {
					return outcome.On(record.ByVerifier, err)
				}
				continue
			}
			if v.Decision == verifier.Continue {
				return outcome.On(record.ByVerifier, fmt.Errorf("verifier %s: it said continue after the last turn", u.Name))
			}
			s.out.Verdicts = append(s.out.Verdicts, v)
		}
		if err := s.tampered(ctx, nil); err != nil { // changed since settle, which checked it
			return err
		}
		s.out.Verified = true
		return s.changed(ctx, p, sums)
	})
}

// offline notes hosts that the verification could not reach. Tests that download what
// they need fail then, whatever the agent did.
func (s *stage) offline(p record.Phase) {
	failed := map[string]string{}
	maps.Copy(failed, s.graded.Unreached())
	for _, o := range s.own {
		maps.Copy(failed, o.box.Unreached())
	}
	if len(failed) == 0 {
		return
	}
	names := slices.Sorted(maps.Keys(failed))
	s.a.recorder.Note(p, "tests_offline", "the verification could not reach %s (%s), so its result may be about that and not about the agent's work",
		recorder.Cut(strings.Join(names, ", "), 500), failed[names[0]])
}

// runningBefore returns a function that ends what was started in the sandbox since.
// It is called after a verifier that failed, such as at its deadline. Otherwise its
// processes could leave no room for those of the next verifier, or make the sandbox
// look as if the agent had broken it.
func (s *stage) runningBefore(ctx context.Context, uses []task.VerifierUse) (endTests func(), err error) {
	if !s.inSandbox(uses) {
		return func() {}, nil
	}
	w := s.graded
	before, err := w.Processes(ctx)
	return func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), limits.Control)
		defer cancel()
		_, _ = w.Sweep(end, before.Keys()) // if processes stay, they show in what comes next
	}, err
}

// failed returns the error of a verifier. That of one that only advises is a finding,
// unless something else is the cause, such as the sandbox, or the whole run stops.
func (s *stage) failed(ctx context.Context, p record.Phase, u task.VerifierUse, err error) error {
	f := outcome.Of(record.ByVerifier, err)
	if !u.Advisory || ctx.Err() != nil || f.Stops != "" || (f.Boundary != record.ByVerifier && f.Boundary != record.ByModel) {
		return err
	}
	s.a.recorder.Note(p, "advisory_failed", "%s", recorder.Cut(err.Error(), limits.OutputTail))
	return nil
}

// atEnd returns the verifiers that do not judge rounds.
func (s *stage) atEnd() (uses []task.VerifierUse) {
	for _, u := range s.task.Verifiers {
		if !s.judgesRounds(u.Name) {
			uses = append(uses, u)
		}
	}
	return uses
}

// reducedRounds returns one verdict for each verifier of rounds.
func (s *stage) reducedRounds() []verifier.Verdict {
	if s.a.task.Interaction == nil {
		return nil
	}
	return outcome.Rounds(s.a.task.Interaction, s.out.Rounds)
}

// verifyTime returns how long one verifier may take.
func (s *stage) verifyTime() time.Duration {
	l := s.a.in.Cell.Limits
	return cmp.Or(cell.Scaled(s.task.Verify.Time.Std(), l.VerifierTime, l.TimeFactor), limits.Verify)
}

// verifyUser returns the user of the verifier's commands; empty means root.
func (s *stage) verifyUser() string { return cmp.Or(s.task.Verify.User, s.graded.Made.Image.User) }

// placed says which resources are placed for the verifiers of the stage. If the image
// of their sandbox has their files, none is.
func (s *stage) placed(separate bool) func(*task.Resource) bool {
	return func(r *task.Resource) bool {
		bundled := separate && s.task.VerifyFilesInImage
		return r.Phase == task.PlaceVerify && r.Place != "" && (r.Stage == "" || r.Stage == s.task.Name) && !bundled
	}
}

// fresh returns the folders that are recreated for the verifier. The folder of
// its logs exists, empty, while the agent works, too.
func (s *stage) fresh() []string {
	var paths []string
	for i := range s.a.task.Resources {
		r := &s.a.task.Resources[i]
		if r.Folder && s.placed(s.mode == task.ModeSeparate)(r) {
			paths = append(paths, s.graded.Absolute(r.Place))
		}
	}
	if p := s.a.task.Paths.VerifierLogs; p != "" {
		paths = append(paths, path.Clean(p))
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	return slices.DeleteFunc(paths, func(p string) bool { // a folder below another one is recreated with it
		return slices.ContainsFunc(paths, func(q string) bool { return strings.HasPrefix(p, q+"/") })
	})
}

// inSandbox reports whether one of the verifiers works in the sandbox.
func (s *stage) inSandbox(uses []task.VerifierUse) bool {
	return s.mode != task.ModeCopies && slices.ContainsFunc(uses, func(u task.VerifierUse) bool {
		return s.a.verifiers[u.Name].Traits.Needs == verifier.NeedsSandbox
	})
}

// fill recreates the verifier's folders and puts its files there. It returns
// their sums.
func (s *stage) fill(ctx context.Context, p record.Phase, uses []task.VerifierUse) (views.Sums, error) {
	if !s.inSandbox(uses) {
		return views.Sums{}, nil
	}
	if s.a.missingUsers[s.verifyUser()] && s.mode != task.ModeSeparate {
		if err := s.graded.HasUser(ctx, s.verifyUser()); err != nil {
			return nil, outcome.On(record.ByTask, fmt.Errorf("the verifier's user was missing before the agent came: %w", err))
		}
	}
	if err := s.setAside(ctx, p); err != nil {
		return nil, err
	}
	for _, dir := range s.fresh() {
		mode := uint32(0o755)
		if dir == path.Clean(s.a.task.Paths.VerifierLogs) {
			mode = 0o777 // tests may write there as several users
		}
		moved, err := s.graded.Fresh(ctx, s.verifyUser(), mode, dir)
		if err != nil {
			return nil, err
		}
		for _, m := range moved {
			s.a.recorder.Note(p, "planted", "a %s (%d entries) stood at %s before the verifier's files were placed; it was moved aside", m.Kind, m.Entries, m.Path)
		}
	}
	return s.a.put(ctx, s.graded, s.verifyUser(), s.placed(s.mode == task.ModeSeparate))
}

// verifierLogs keeps the output files of the verifier's programs in the
// sandbox, even if they were cut off, and what they added to the artifacts or
// changed there. It is best effort.
func (s *stage) verifierLogs(ctx context.Context, p record.Phase) {
	if s.mode == task.ModeCopies || s.graded.Gone() {
		return
	}
	into, paths := s.verifierFiles(), &s.a.task.Paths
	s.keep(ctx, p, "logs", paths.VerifierLogs, &collect.Collector{Into: into, MaxBytes: limits.LogsBytes})
	before := filepath.Join(s.a.in.Record.Dir(), filepath.FromSlash(s.artifacts()), strings.TrimPrefix(path.Clean(paths.Artifacts), "/"))
	s.keep(ctx, p, "artifacts", paths.Artifacts, &collect.Collector{Into: into, Known: before})
}

// keep copies a folder of the sandbox after the verdict.
func (s *stage) keep(ctx context.Context, p record.Phase, to, source string, c *collect.Collector) {
	if source == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limits.Control)
	defer cancel()
	c.Plain, c.Redactor, c.Fetch = true, s.a.recorder.Redactor(), s.graded.Fetch
	if len(s.a.task.Stages) > 1 {
		to = s.task.Name + "/" + to
	}
	entries, err := c.All(ctx, []collect.Artifact{{Artifact: task.Artifact{Source: source, To: to}, Implied: true}})
	for _, e := range entries {
		if e.Status == collect.Failed {
			err = errors.Join(err, errors.New(e.Reason))
		}
	}
	if err != nil {
		s.a.recorder.Note(p, "verifier_"+path.Base(to), "%s: %s", source, err)
	}
}

// changed checks the verifier's files again. The test command itself may have
// changed them; another process only if the agent left one running, and then
// the result is exposed already.
func (s *stage) changed(ctx context.Context, p record.Phase, sums views.Sums) error {
	if len(sums) == 0 {
		return nil
	}
	now := views.Sums{}
	for _, dir := range s.fresh() {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(sums)), func(name string) bool { return strings.HasPrefix(name, dir+"/") }) {
			continue // such as the folder for the verdict, which was empty
		}
		if err := s.graded.Sums(ctx, dir, now); err != nil {
			s.a.recorder.Note(p, "tests_not_checked", "%s cannot be looked at again: %s", dir, err)
			return nil
		}
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		if slices.ContainsFunc(s.fresh(), func(dir string) bool { return strings.HasPrefix(name, dir+"/") }) && now[name] != sums[name] {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	text := fmt.Sprintf("%d of the verifier's files changed while it ran: %s", len(names), recorder.Cut(strings.Join(names, ", "), 500))
	if s.a.leftRunning {
		s.a.recorder.Exposed(p, "tests_changed", "%s", text)
	} else {
		s.a.recorder.Note(p, "tests_changed", "%s", text)
	}
	return nil
}

// judgement is one call of a verifier.
type judgement struct {
	use     task.VerifierUse
	number  int // in the stage, used in names
	round   int
	left    int // remaining follow-ups
	earlier []verifier.Verdict
	copies  string // folder with the artifacts of a round; empty: those of the attempt
}

// judge calls one verifier, and checks its verdict.
func (s *stage) judge(ctx context.Context, j judgement) (verifier.Verdict, error) {
	a := s.a
	plugin := a.verifiers[j.use.Name]
	r, done, err := s.request(ctx, j, plugin)
	if err != nil {
		return verifier.Verdict{}, err
	}
	v, err := callVerifier(ctx, s, plugin, r.Scratch, func(v verifier.Verifier) (verifier.Verdict, error) { return s.ask(ctx, j, v, r) })
	err = s.lostTestbed(ctx, s.own[j.use.Name], err)
	if err != nil && s.models != nil {
		state := s.models.State()
		// Nothing in the sandbox can keep a model from answering.
		if down := cmp.Or(state.Down, state.GaveUp); down != nil {
			err = outcome.On(record.ByModel, fmt.Errorf("%w; the verifier says: %w", down, err))
		}
		if r := state.Refusal; r != nil && r.Scope == "" && !r.Provider {
			err = fmt.Errorf("%w; the verifier says: %w", r.Err, err)
		}
	}
	if err == nil && len(plugin.Traits.Models) == 0 {
		err = s.checkJudgeAnswered()
	}
	if err = errors.Join(err, done()); err != nil {
		return verifier.Verdict{}, err
	}
	if err := cmp.Or(outcome.Check(v), s.notStarted(v)); err != nil {
		return verifier.Verdict{}, err
	}
	v.Verifier, v.Stage, v.Round = j.use.Name, s.task.Name, j.round
	v.Handoff, v.Rationale = a.recorder.Text(v.Handoff, limits.MessageBytes), a.recorder.Text(v.Rationale, limits.MessageBytes)
	for i := range v.Checkpoints {
		c := &v.Checkpoints[i]
		c.Name, c.Note = a.recorder.Text(c.Name, limits.FindingText), a.recorder.Text(c.Note, limits.FindingText)
	}
	labels := v.Labels
	v.Labels = make(map[string]string, len(labels))
	for name, text := range labels {
		v.Labels[a.recorder.Text(name, verifier.MaxLabelBytes)] = a.recorder.Text(text, verifier.MaxLabelBytes)
	}
	at := s.phase(record.PhaseVerify, record.ByVerifier)
	if j.round > 0 {
		at.Name = record.PhaseJudge
	}
	for _, f := range v.Findings {
		a.recorder.Finding(at, j.use.Name, f)
	}
	a.recorder.Append(record.VerdictsFile, record.Verdict{Time: a.now(), Verdict: v})
	return v, nil
}

// notStarted returns an error if the tests could not run and the agent cannot be the
// cause: they have their own sandbox, or the agent is the task's own solution.
func (s *stage) notStarted(v verifier.Verdict) error {
	started := !slices.ContainsFunc(v.Findings, func(f verifier.Finding) bool { return f.Code == verifier.TestsNotStarted })
	if started || s.mode != task.ModeSeparate && !s.a.in.Cell.Agent.Oracle {
		return nil
	}
	return fmt.Errorf("%w: the tests could not be run: %s", verifier.ErrBadReward, recorder.Cut(v.Rationale, limits.OutputTail))
}

// request makes everything that a verifier gets. done undoes it.
func (s *stage) request(ctx context.Context, j judgement, plugin VerifierPlugin) (r verifier.Request, done func() error, err error) {
	a := s.a
	id := "verifier-" + s.numbered(j)
	var undo []func() error
	done = func() error {
		var errs []error
		for _, f := range slices.Backward(undo) {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, done())
		}
	}()
	own := a.in.Cell.Verifiers[j.use.Name]
	r = verifier.Request{
		Stage: s.task.Name, Round: j.round, RoundsLeft: j.left, Earlier: slices.Clone(j.earlier), Timeout: s.verifyTime(),
		Settings: j.use.Settings, Config: own.Config.JSON(),
	}
	r.View, err = s.view(task.RoleVerifier, id, func(dir string) error { return s.attemptView(dir, j) })
	if err != nil {
		return r, done, err
	}
	if r.Scratch, err = a.folders().Make("scratch-" + id); err != nil {
		return r, done, outcome.On(record.ByCore, err)
	}
	undo = append(undo, func() error {
		// The files may come from the sandbox, so an error here does not affect
		// the verdict.
		if failed := collect.Folder(r.Scratch, s.verifierDir(j), a.recorder.Redactor()); failed != nil {
			a.recorder.Note(s.phase(record.PhaseVerify, record.ByVerifier), "verifier_files", "%s", failed)
		}
		return nil
	})
	models, err := s.judgeModels(ctx, j, own, plugin)
	if err != nil {
		return r, done, err
	}
	if s.models = models; models != nil {
		undo = append(undo, func() error {
			closed := models.Close(context.WithoutCancel(ctx))
			a.modelled(models, j.use.Name)
			return errors.Join(refused(models), closed)
		})
		if len(plugin.Traits.Models) > 0 {
			r.Models = models.Endpoints()
		}
	}
	if r.Env, err = s.judgeEnv(own, models); err != nil {
		return r, done, err
	}
	w := s.graded
	switch o := s.own[j.use.Name]; {
	case o != nil:
		if err = s.refill(ctx, o, j); err != nil {
			return r, done, s.lostTestbed(ctx, o, outcome.On(a.owner(record.ByEnvironment), err))
		}
		w, r.User = o.box, s.ownUser(o)
	case plugin.Traits.Needs != verifier.NeedsSandbox || j.round > 0:
		return r, done, nil
	default:
		r.User = s.verifyUser()
	}
	shut, err := s.openShell(ctx, j, w, &r, id)
	undo = append(undo, shut)
	return r, done, outcome.On(record.ByCore, err)
}

// openShell gives a verifier access to a sandbox. shut ends the access; it is
// never nil.
func (s *stage) openShell(ctx context.Context, j judgement, w *sandbox.Sandbox, r *verifier.Request, id string) (shut func() error, err error) {
	a := s.a
	shell, err := relay.New(filepath.Join(a.in.Runtime, "v"+s.numbered(j)), relay.Of(w.Sandbox, host.Session{
		ID: id, User: r.User, Dir: w.Dir, Env: sandbox.List(sandbox.Merge(w.Env, r.Env)), Grading: true,
	}))
	if err != nil {
		return func() error { return nil }, err
	}
	r.Shell, s.shell = shell.Address(), shell
	return func() error {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), limits.Control)
		defer cancel()
		shut := shell.Shut(end)
		s.shell = nil
		if w.Gone() {
			return nil // it is reported elsewhere
		}
		return outcome.On(a.owner(record.ByEnvironment), shut)
	}, shell.Open(ctx)
}

// ask calls the verifier. At its deadline it cuts the verifier's access first.
func (s *stage) ask(ctx context.Context, j judgement, plugin verifier.Verifier, r verifier.Request) (verifier.Verdict, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.Timeout, s.verifyDeadline(r.Shell != ""))
	defer cancel()
	call, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	cutOff := context.AfterFunc(ctx, func() {
		if s.shell != nil {
			end, done := context.WithTimeout(context.WithoutCancel(ctx), limits.Control)
			defer done()
			_ = s.shell.Close(end) // the call below ends for the same reason
		}
		stop(context.Cause(ctx))
	})
	defer cutOff()
	log := func(line string) { s.a.recorder.Log(j.use.Name, s.task.Name, line) }
	before := s.a.kills()
	v, err := plugin.Verify(call, r, log)
	err = limits.Caused(call, err)
	if err == nil && r.Shell != "" && s.a.kills() > before {
		return v, noMemory(errDisturbed) // also if it passed: if only failures were repeated, the rate would rise
	}
	if err != nil && r.Shell != "" && ctx.Err() != nil {
		return v, context.Cause(ctx) // its own error is about the cut
	}
	return v, limits.Caused(ctx, err)
}
