package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/redact"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/core/trial/recorder"
	"github.com/berth-eval/berth/core/trial/sandbox"
	"github.com/berth-eval/berth/core/trial/views"
	"github.com/berth-eval/berth/plugins/task"
)

// Run runs one attempt and publishes its result, which it also returns. Every
// failure within the attempt is in the result; an error means that the result
// could not be written. Run ends soon after ctx. The attempt is then cancelled,
// or preempted if the cause of ctx is ErrPreempted. Everything that it made is
// removed in any case, in bounded time.
func Run(ctx context.Context, in Input) (record.Result, error) {
	a, err := newAttempt(in)
	if err != nil {
		return record.Result{}, fmt.Errorf("attempt: %w", err)
	}
	if in.Origin != nil {
		err = a.regrade(ctx)
	} else if err = a.begin(ctx); err == nil {
		err = a.allStages(ctx)
	} else if a.sandbox != nil {
		err = cmp.Or(a.orphaned(ctx, a.sandbox, err), err)
	}
	a.finish(ctx, a.stopped(ctx, err))
	return a.publish()
}

func newAttempt(in Input) (*attempt, error) {
	if in.Now == nil {
		in.Now = time.Now
	}
	in.Label = cmp.Or(in.Label, in.Run)
	if in.LookupEnv == nil {
		in.LookupEnv = func(string) (string, bool) { return "", false }
	}
	if err := views.Make(in.Runtime); err != nil {
		return nil, err
	}
	a := &attempt{
		in: in, sandboxes: map[string]*sandbox.Sandbox{}, task: feasible.Sessions(in.Task, in.Cell), now: in.Now, success: in.Task.Success,
		recorder: recorder.New(in.Record, in.Now, in.Live),
	}
	a.recorder.KeepPlain(in.Record.Dir(), func() (string, error) { return a.unmasked(in.Record.Dir()) })
	a.recorder.Hide(append(recorder.HostValues(in.Task, in.LookupEnv), in.Cell.Secrets...)...)
	if in.Cell.Success != nil {
		a.success = *in.Cell.Success
	}
	for i := range in.Task.Stages {
		a.stages = append(a.stages, outcome.Stage{Name: in.Task.Stages[i].Name})
	}
	a.res = record.Result{
		Version: 1, Run: in.Run, Trial: in.Trial, Task: in.Task.Name, TaskDigest: in.Task.Digest, Cell: in.Cell.Choices,
		Repetition: in.Repetition, Attempt: in.Attempt, Host: in.Host, Worker: in.Worker, Berth: in.Berth,
		Oracle: in.Cell.Agent.Oracle, Success: &a.success, Start: in.Now(), Phases: []record.Phase{},
	}
	return a, nil
}

// stopped returns why the attempt was stopped from outside, or nil. Any other
// error is the failure of its stage.
func (a *attempt) stopped(ctx context.Context, err error) *record.Error {
	if err == nil {
		return nil
	}
	f := a.failure(err)
	if stopped, ok := outcome.Stopped(ctx); ok {
		during := string(f.Phase)
		if why, byHand := errors.AsType[outcome.ByHand](context.Cause(ctx)); byHand {
			during += ": " + a.recorder.Text(string(why), limits.ErrorText)
		}
		return &record.Error{
			Outcome: stopped, Boundary: record.ByCore, Phase: f.Phase, Stage: f.Stage, Message: fmt.Sprintf("%s during %s", stopped, during),
			Retry: stopped == record.Preempted,
		}
	}
	i := max(0, slices.IndexFunc(a.stages, func(s outcome.Stage) bool { return s.Name == f.Stage }))
	if a.stages[i].Failure == nil {
		a.stages[i].Failure = f
	}
	return nil
}

// allStages runs the stages until one says that the others must not run.
func (a *attempt) allStages(ctx context.Context) error {
	for i := range a.task.Stages {
		s := a.newStage(i)
		if err := s.run(ctx); err != nil {
			return err
		}
		if i+1 == len(a.task.Stages) || a.stages[i].Failure != nil {
			break
		}
		if ok, why := a.stages[i].Enough(a.task.Stages[i].MinScores); !ok {
			a.recorder.Note(s.phase(record.PhaseVerify, record.ByVerifier), "stopped_early", "stage %s was the last: %s", a.stages[i].Name, why)
			break
		}
		if err := s.clean(ctx); err != nil {
			return err
		}
	}
	return nil //nolint:nilerr // a failure that ends only a stage is kept there
}

// finish removes everything that the attempt made and decides its outcome.
func (a *attempt) finish(ctx context.Context, stop *record.Error) {
	a.destroy(ctx)
	verified := slices.ContainsFunc(a.stages, func(s outcome.Stage) bool { return s.Verified && len(s.Verdicts) > 0 })
	a.res.Integrity, a.res.Reasons = outcome.Integrity(a.recorder.All(), verified)
	scores := outcome.Scores(a.success, a.stages, func(name string) int { return len(a.task.Stage(name).Verifiers) })
	facts := outcome.Facts{
		Success: a.success, Named: a.in.Cell.Success != nil, Stages: a.stages, Scores: scores, Stopped: stop, Violated: a.res.Integrity == record.Violated,
	}
	a.res.Outcome, a.res.Error = outcome.Outcome(facts)
	if note := outcome.Undecided(facts, a.res.Outcome); note != "" {
		a.recorder.Note(record.Phase{Name: record.PhaseVerify}, "undecided", "%s", note)
	}
	if a.res.Outcome.Measured() && a.res.Integrity != record.Violated {
		a.res.Scores, a.res.Labels = scores, outcome.Labels(a.stages)
		if v, ok := scores[a.scoreName(scores)]; ok {
			a.res.Score = &v
		}
	}
	for i := range a.stages {
		s := &a.stages[i]
		sr := record.StageResult{
			Name: s.Name, Outcome: outcome.StageOutcome(a.success, s), AgentEnd: s.AgentEnd, Error: s.Failure, LastTurn: s.LastTurn,
			VerifierImage: s.VerifierImage, Session: s.Session,
		}
		if a.res.Integrity != record.Violated && s.Verified && len(s.Verdicts) > 0 { // even if a later stage has none
			sr.Rewards = s.Scores()
		}
		a.res.Stages = append(a.res.Stages, sr)
		if s.AgentEnd != "" {
			a.res.AgentEnd = s.AgentEnd
		}
		a.res.Verdicts = append(append(a.res.Verdicts, s.Rounds...), s.Verdicts...)
	}
	a.modes()
	a.dropFiles()
}

// scoreName returns the score that tables show: the task's own, or the only
// one.
func (a *attempt) scoreName(scores map[string]float64) string {
	if a.success.Score == "" && len(scores) == 1 {
		for name := range scores {
			return name
		}
	}
	return a.success.Score
}

// modes records how the attempt was verified, and whether a stronger mode would
// have given the same result, which is so when the agent left nothing running
// in any stage.
func (a *attempt) modes() {
	var modes []string
	same := false
	for i := range a.task.Stages {
		m, err := feasible.Mode(a.task, &a.task.Stages[i], a.in.Cell.Verify)
		if err != nil {
			continue
		}
		if !slices.Contains(modes, string(m)) {
			modes = append(modes, string(m))
		}
		if a.stages[i].Verified {
			same = m == task.ModeLive && !a.leftRunning
		}
	}
	a.res.Mode = strings.Join(modes, "+")
	if same {
		a.res.SameAs = string(task.ModeRestarted)
	}
}

// publish writes the result.
func (a *attempt) publish() (record.Result, error) {
	p := record.Phase{Name: record.PhasePublish, Who: record.ByCore, Start: a.now()}
	a.recorder.Event(record.Event{Type: record.EventPhaseStart, Phase: p.Name, Who: p.Who})
	if err := a.folders().Remove(); err != nil {
		a.recorder.Note(p, "cleanup", "%s", err)
	}
	a.res.Findings = a.recorder.All()
	if a.res.End = a.now(); a.in.Origin == nil {
		a.res.Steps = a.recorder.Steps()
	}
	p.End = a.res.End
	a.res.Phases = append(a.res.Phases, p)
	r, err := redact.Value(a.recorder.Redactor(), a.res)
	if err != nil {
		return a.res, fmt.Errorf("publish attempt %d of %s: %w", a.in.Attempt, a.in.Task.Name, err)
	}
	if err := a.in.Record.Publish(r); err != nil {
		return r, fmt.Errorf("publish attempt %d of %s: %w", a.in.Attempt, a.in.Task.Name, err)
	}
	a.recorder.Tell(record.Event{Type: record.EventPhaseEnd, Phase: p.Name, Who: p.Who})
	return r, nil
}

// folders are the folders of the attempt outside its record.
func (a *attempt) folders() views.Folders {
	return views.Folders{Runtime: a.in.Runtime, Disk: a.in.Disk}
}
