package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/collect"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/core/trial/recorder"
	"github.com/berth-eval/berth/core/trial/sandbox"
	"github.com/berth-eval/berth/core/trial/views"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/relay"
	"github.com/berth-eval/berth/plugins/task"
)

// stage is one stage in progress.
type stage struct {
	a    *attempt
	i    int
	task *task.Stage
	mode task.Mode
	out  *outcome.Stage // the facts about it

	turns   int
	whole   bool          // the rounds that are judged again are all that there were
	charged time.Duration // part of the interaction's total time that was used
	user    *session
	shell   *relay.Relay   // of the current verifier
	models  models.Session // of the current verifier; nil without any
	bulky   bool           // the last artifacts are large enough to be the cause of a full disk

	collected []collect.Entry // artifacts of the stage

	copied []collect.Entry // artifacts of the round in progress

	graded *sandbox.Sandbox    // where the verifiers work: the agent's sandbox, or that of second
	second *testbed            // of the modes image and separate; nil: the verifiers need none
	own    map[string]*testbed // the verifiers' own sandboxes, by the name that the task uses

	suspects []string // services that the agent could have changed
	message  agent.Message

	lastWords string // of the agent
}

func (a *attempt) newStage(i int) *stage {
	return &stage{a: a, i: i, task: &a.task.Stages[i], out: &a.stages[i], graded: a.sandbox}
}

func (s *stage) phase(name record.PhaseName, who record.Boundary) record.Phase {
	return record.Phase{Name: name, Stage: s.task.Name, Who: who, Turn: s.turns}
}

// run runs a stage from setup to verify. An error ends the attempt; a failure
// that ends only the stage is in out.Failure.
func (s *stage) run(outer context.Context) (err error) {
	ctx, end := s.a.sandbox.Ctx(outer)
	defer end()
	if s.mode, err = feasible.Mode(s.a.task, s.task, s.a.in.Cell.Verify); err != nil {
		return s.a.at(s.phase(record.PhaseSetup, record.ByConfig), err)
	}
	if err = s.a.at(s.phase(record.PhaseSetup, record.ByCore), s.a.enter(ctx, Working)); err != nil {
		return err
	}
	reach := feasible.Reach(s.a.task, s.task)
	for _, step := range []struct {
		may task.Hosts
		run func(context.Context) error
	}{
		{reach.Setup, s.setup}, {reach.Turn, s.work}, {reach.Turn, s.settle}, {task.Hosts{}, s.collect}, {task.Hosts{}, s.keepFiles},
	} {
		s.a.sandbox.Allow(step.may)
		if err = step.run(ctx); err != nil {
			break
		}
	}
	if err == nil {
		err = s.awaitVerification(ctx)
	}
	if err == nil {
		err = s.grade(outer, reach)
	}
	s.closeUser(ctx)
	s.out.Rounds = s.reducedRounds()
	if err != nil {
		return s.lost(ctx, err)
	}
	return nil
}

// closeUser closes the simulated user's session and keeps the files that it
// left on the host. An error here does not affect the agent's work.
func (s *stage) closeUser(ctx context.Context) {
	if s.user == nil {
		return
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), limits.Close)
	defer cancel()
	to := filepath.Join(s.a.in.Record.Dir(), record.AgentDir, s.user.id)
	err := errors.Join(s.user.close(closing, ""), s.user.shut(closing), collect.Folder(s.user.scratch, to, s.a.recorder.Redactor()))
	if err != nil {
		s.a.recorder.Note(s.phase(record.PhaseUser, record.ByUser), "close_session", "the simulated user: %s", err)
	}
}

// lost attributes an error to the agent if the end of the sandbox explains it
// and the agent had started. The agent gets no free retry by ending the
// sandbox. A cause outside the sandbox that the host can prove takes
// precedence: when an environment's plugin dies, its sandboxes end with it. Any
// error in a sandbox whose PID 1 the agent has changed is also the agent's.
func (s *stage) lost(ctx context.Context, err error) error {
	if _, stop := outcome.Stopped(ctx); stop && !errors.Is(context.Cause(ctx), sandbox.ErrLost) || errors.Is(err, plugin.ErrPluginGone) {
		return err
	}
	if changed := s.tampered(ctx, err); changed != nil {
		f := outcome.Of(record.ByAgent, err)
		s.a.recorder.Violated(record.Phase{Name: f.Phase, Stage: f.Stage}, "pid1_changed", "%s", changed)
		return explain(err, record.Error{Boundary: record.ByAgent, Outcome: record.AgentError, Err: changed})
	}
	if errors.Is(err, errJobMemory) {
		return err
	}
	if s.second != nil && s.second.began {
		return s.lostTestbed(context.WithoutCancel(ctx), s.second, err)
	}
	if !s.a.sandbox.Gone() && (!s.a.agentActed || s.a.sandbox.Able(ctx)) {
		return err
	}
	if dead := s.a.orphaned(ctx, s.a.sandbox, err); dead != nil {
		return dead
	}
	if !s.a.agentActed {
		return environmentFailed(err)
	}
	s.out.AgentEnd = record.SandboxLost
	return explain(err, record.Error{Boundary: record.ByAgent, Outcome: record.AgentError, Err: fmt.Errorf("sandbox lost: %w", err)})
}

// tampered returns an error if PID 1 of the agent's or of the graded sandbox was
// changed, by the agent or by its work during the tests, or nil.
func (s *stage) tampered(ctx context.Context, err error) error {
	if !s.a.agentActed {
		return nil
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), limits.Control)
	defer cancel()
	boxes := slices.Compact([]*sandbox.Sandbox{s.a.sandbox, s.graded})
	for _, o := range s.own {
		boxes = append(boxes, o.box)
	}
	for _, w := range boxes {
		if w == nil || w.Gone() {
			continue
		}
		if !errors.Is(err, host.ErrTampered) {
			err = w.Untouched(asking)
		}
		if errors.Is(err, host.ErrTampered) {
			return err
		}
	}
	return nil
}

// setup prepares the sandbox for the stage, and opens the agent's session.
func (s *stage) setup(ctx context.Context) error {
	a := s.a
	if err := s.prepareSecond(ctx); err != nil {
		return err
	}
	if err := s.prepareOwn(ctx); err != nil {
		return err
	}
	err := a.phase(ctx, s.phase(record.PhaseSetup, a.owner(record.ByTask)), limits.Setup, func(ctx context.Context) error {
		if err := s.prepare(ctx, a.sandbox); err != nil {
			return err
		}
		if h := s.task.Healthcheck; h != nil {
			return a.sandbox.Healthy(ctx, h)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.beginSurface(ctx); err != nil {
		return err
	}
	return a.phase(ctx, s.phase(record.PhaseSetup, record.ByAgent), limits.Open+limits.Close, s.openAgent)
}

// prepare places files in a sandbox and runs commands there, as the task asks for before
// the stage.
func (s *stage) prepare(ctx context.Context, w *sandbox.Sandbox) error {
	a := s.a
	if err := a.place(ctx, w, task.PlaceSetup, s.task.Name); err != nil {
		return err
	}
	for i := range s.task.Setup {
		if err := a.command(ctx, w, &s.task.Setup[i], limits.Setup); err != nil {
			return fmt.Errorf("setup: %w", err)
		}
	}
	return nil
}

// openAgent opens a new session for the stage, unless the task continues the
// previous one.
func (s *stage) openAgent(ctx context.Context) error {
	a := s.a
	goesOn := s.task.SameSession && a.session != nil
	if a.session != nil && !goesOn {
		if err := a.closeSession(ctx); err != nil {
			a.recorder.Note(s.phase(record.PhaseSetup, record.ByAgent), "close_session", "%s", err)
		}
	}
	if !a.agentActed { // everything that runs now belongs to the task, including what its setup started
		ps, err := a.sandbox.Processes(ctx)
		if err == nil {
			a.sandbox.Known, err = ps.Keys(), a.findMissingUsers(ctx)
		}
		if err != nil {
			return outcome.On(record.ByEnvironment, err)
		}
	}
	if err := s.placeTurn(ctx); err != nil {
		return err
	}
	if err := s.mark(ctx); err != nil {
		return outcome.On(record.ByEnvironment, err)
	}
	view, err := s.view(task.Role(a.role()), string(a.role()), nil)
	if err != nil {
		return err
	}
	if goesOn {
		return outcome.On(record.ByCore, a.session.show(view))
	}
	a.session, err = a.open(ctx, opening{
		role: a.role(), plugin: a.agent, cell: a.in.Cell.Agent, needs: a.needs, view: view, stage: s.task, number: s.i + 1,
		limits: agent.Limits{Time: s.agentTime(), MaxSteps: a.in.Cell.Limits.MaxSteps},
	})
	if err != nil && outcome.Of(record.ByAgent, err).Outcome == record.AgentError {
		return cmp.Or(s.imageFault(ctx), err)
	}
	if err == nil {
		a.scratch = a.session.scratch
	}
	return err
}

// show puts the view of a further stage in place of the session's.
func (s *session) show(view string) error {
	if err := os.RemoveAll(s.view); err != nil {
		return err
	}
	return os.Symlink(view, s.view)
}

// placeTurn puts the files for the agent's turns into the sandbox, except the
// reference solution: an oracle has that in its view, and places it itself.
func (s *stage) placeTurn(ctx context.Context) error {
	a := s.a
	_, err := a.put(ctx, a.sandbox, s.task.Agent.User, func(r *task.Resource) bool {
		return r.Phase == task.PlaceTurn && r.For(task.Role(a.role()), s.task.Name) && (s.task.Reference == nil || r.Name != s.task.Reference.Resource)
	})
	return outcome.On(a.owner(record.ByTask), err)
}

// view makes a view folder of the stage; more, which may be nil, adds to it.
func (s *stage) view(role task.Role, name string, more func(dir string) error) (string, error) {
	dir, err := s.a.folders().View(fmt.Sprintf("view-%d-%s", s.i+1, name), func(dir string) error {
		if err := views.Build(dir, s.a.task, role, s.task.Name); err != nil {
			return outcome.On(record.ByTask, err)
		}
		if more == nil {
			return nil
		}
		return more(dir)
	})
	return dir, outcome.On(record.ByCore, err)
}

// agentTime returns the time limit of one turn; 0 means only the core's own
// limit.
func (s *stage) agentTime() time.Duration {
	l := s.a.in.Cell.Limits
	return cell.Scaled(s.task.Agent.Time.Std(), l.AgentTime, l.TimeFactor)
}

// work runs everything between setup and settle: turns, and the verification of
// rounds between them.
func (s *stage) work(ctx context.Context) error {
	text := views.Instruction(s.task)
	s.message = agent.Message{Stage: s.task.Name, Text: text, Files: views.Files(s.task)}
	from, round := "task", 0
	for {
		if err := s.turn(ctx, from, round); err != nil {
			return err
		}
		if err := s.hooks(ctx); err != nil {
			return err
		}
		cut := s.out.AgentEnd != record.Yielded
		if cut { // the round ends what the agent ran
			if err := s.captures(ctx); err != nil {
				return err
			}
		}
		if more, err := s.round(ctx); err != nil || !more {
			if err == nil && !cut {
				err = s.captures(ctx)
			}
			return err
		}
		from, round = "user", round+1
	}
}

// turn runs one turn of the agent and records it.
func (s *stage) turn(ctx context.Context, from string, round int) error {
	a := s.a
	s.turns++
	if a.session.turns == 0 {
		s.message.Text += a.session.preamble
	}
	s.message.Turn = a.session.turns + 1
	b := s.bounds()
	a.recorder.Append(record.TurnsFile, record.Turn{
		Time: a.now(), Kind: record.TurnMessage, Stage: s.task.Name, Turn: s.turns, Round: round, From: from,
		Text: recorder.Cut(s.message.Text, limits.MessageBytes), Files: s.message.Files,
	})
	if len(a.task.Stages) > 1 {
		s.out.Session = a.session.id
	}
	a.session.recorder.Said(s.task.Name, s.turns, recorder.Cut(s.message.Text, limits.MessageBytes))
	s.out.Ran = true
	var f finished
	p := s.phase(record.PhaseTurn, record.ByAgent)
	p.Round = round
	err := a.phase(ctx, p, b.limit+limits.Return+limits.Control+limits.Turn, func(ctx context.Context) error {
		f = a.session.turn(ctx, s.message, s.turns, b)
		return f.err
	})
	a.res.AgentTime += f.took
	s.charge("turn", f.took)
	s.charge("wait", f.wait)
	if f.end != "" {
		s.out.AgentEnd = f.end
		s.lastWords = f.yield.Message
		s.out.LastTurn = s.lastTurn(&f)
		a.recorder.Append(record.TurnsFile, record.Turn{
			Time: a.now(), Kind: record.TurnYield, Stage: s.task.Name, Turn: s.turns, Agent: a.in.Cell.Agent.Plugin, End: f.end, Stop: f.stop,
			Asked:   f.yield.End == agent.Asked,
			Message: recorder.Cut(f.yield.Message, limits.MessageBytes), ExitCode: f.yield.ExitCode,
			Reason: recorder.Cut(f.yield.Reason, limits.OutputTail), Took: f.took,
		})
	}
	return a.at(p, s.turnFailed(ctx, p, err))
}

// bounds returns the limits of the next turn.
func (s *stage) bounds() bounds {
	t := &s.task.Agent
	b := bounds{limit: cmp.Or(s.agentTime(), limits.Turn), startup: t.Startup.Std(), stall: t.Stall.Std()}
	l := s.a.in.Cell.Limits
	b.setting = cmp.Or(limits.Setting(t.TimeKey, t.Time.Std(), "per_trial.agent_time", l.AgentTime, l.TimeFactor), "the default")
	in := s.a.task.Interaction
	if left, bounded := s.left(); bounded && in.Charges("turn") {
		if left < b.limit {
			b.limit, b.setting = left, "total time of the interaction"
		}
		if in.Charges("wait") {
			b.total = left
		}
	}
	return b
}

// lastTurn describes a turn whose agent did not yield; nil if it did.
func (s *stage) lastTurn(f *finished) *record.LastTurn {
	if f.end == record.Yielded {
		return nil
	}
	last := &record.LastTurn{
		ExitCode: f.yield.ExitCode, Reason: recorder.Cut(f.yield.Reason, limits.OutputTail), Message: recorder.Cut(f.yield.Message, limits.OutputTail),
	}
	if m := s.a.session.models; m != nil {
		last.Exchange = m.State().Last
	}
	return last
}

// down returns why the provider kept the turn from going on. An agent that yields
// has ended: a request that it leaves behind kept it from nothing. Neither did one
// that waited for the rate limit, which an agent can use up on purpose.
func (s *session) down(end record.AgentEnd) error {
	if s.models == nil {
		return nil
	}
	if end == record.Crashed || end == record.Timeout {
		return outcome.Down(s.models.State())
	}
	return s.models.State().Down
}

// hooks runs the task's collect commands after access is cut. They are best
// effort: a failure is a finding.
func (s *stage) hooks(ctx context.Context) error {
	if len(s.task.Hooks) == 0 {
		return nil
	}
	limit := limits.Control
	for i := range s.task.Hooks {
		limit += cmp.Or(s.task.Hooks[i].Time.Std(), limits.Hook)
	}
	p := s.phase(record.PhaseHooks, record.ByTask)
	return s.a.phase(ctx, p, limit, func(ctx context.Context) error {
		for i := range s.task.Hooks {
			err := s.a.command(ctx, s.a.sandbox, &s.task.Hooks[i], limits.Hook)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				s.a.recorder.Note(p, "hook_failed", "%s", err)
			}
		}
		return nil
	})
}

// clean removes what the verification of this stage put into the sandbox before
// the next stage, and recreates the folder of the verifier's logs.
func (s *stage) clean(ctx context.Context) error {
	ctx, end := s.a.sandbox.Ctx(ctx)
	defer end()
	err := s.a.phase(ctx, s.phase(record.PhaseClean, record.ByEnvironment), limits.Setup, func(ctx context.Context) error {
		if err := s.removeTestbeds(ctx); err != nil {
			return err
		}
		if s.mode == task.ModeCopies || feasible.InSecondSandbox(s.mode) {
			return s.a.resume(ctx)
		}
		// The agent may have changed the programs in the sandbox, including the
		// one that removes files.
		err := s.a.sandbox.Remove(ctx, s.fresh())
		if err == nil {
			err = s.a.sandbox.Folders(ctx, s.a.task.Paths.VerifierLogs)
		}
		return outcome.On(record.ByAgent, err)
	})
	if err != nil {
		return s.lost(ctx, err)
	}
	return nil
}
