package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/collect"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/core/trial/recorder"
	"github.com/berth-eval/berth/core/trial/views"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// judgesRounds reports whether a verifier is called between turns rather than
// at the end: it supports this, and the task has an interaction.
func (s *stage) judgesRounds(name string) bool {
	return s.a.task.Interaction != nil && s.a.verifiers[name].Traits.Rounds
}

// left returns the rest of the total time of the interaction.
func (s *stage) left() (time.Duration, bool) {
	in := s.a.task.Interaction
	if in == nil || in.Total == 0 {
		return 0, false
	}
	return max(0, in.Total.Std()-s.charged), true
}

// charge counts time against the total, if the task charges that part.
func (s *stage) charge(part string, d time.Duration) {
	if s.a.task.Interaction.Charges(part) {
		s.charged += d
	}
}

// followUps returns how many further messages of the user are allowed.
func (s *stage) followUps() int {
	in := s.a.task.Interaction
	if in == nil || s.a.in.Cell.User == nil {
		return 0
	}
	return in.MaxFollowUps - (s.turns - 1)
}

// round runs after a turn if the task has an interaction: verifiers judge
// copies that are taken while the sandbox is frozen, and the user answers. more
// reports that s.message is the next message to the agent.
func (s *stage) round(ctx context.Context) (more bool, err error) {
	uses := s.ofRounds()
	in := s.a.task.Interaction
	if in == nil || (len(uses) == 0 && s.followUps() <= 0) {
		return false, nil
	}
	if s.out.AgentEnd != record.Yielded {
		err = s.a.phase(ctx, s.phase(record.PhaseSettle, record.ByEnvironment), limits.Control, func(ctx context.Context) error {
			_, failed := s.a.endAgent(ctx)
			return failed
		})
		if err != nil {
			return false, err
		}
	}
	verdicts, err := s.judgeRound(ctx, uses)
	s.out.Rounds = append(s.out.Rounds, verdicts...) // including those before an error
	if err != nil {
		return false, err
	}
	why := s.over(verdicts)
	if why == "" {
		if more, err = s.nextMessage(ctx, uses, verdicts); more || err != nil {
			return more, err
		}
		if why = record.OverSilent; s.out.UserEnd != "" {
			why = record.OverUser
		}
	}
	s.a.recorder.Append(record.TurnsFile, record.Turn{Time: s.a.now(), Kind: record.TurnOver, Stage: s.task.Name, Turn: s.turns, Over: why, Reason: s.out.UserEnd})
	return false, nil
}

// over returns why the user may not speak after a round; empty: it may.
func (s *stage) over(verdicts []verifier.Verdict) record.Over {
	left, bounded := s.left()
	at := s.phase(record.PhaseJudge, record.ByVerifier)
	switch {
	case !outcome.GoOn(verdicts):
		return record.OverDecided
	case s.followUps() <= 0:
		return record.OverFollowUps
	case bounded && left <= 0:
		s.a.recorder.Note(at, "interaction_time", "the total time of the interaction is over after %d turns", s.turns)
		return record.OverTotal
	case s.out.Failure != nil || !s.a.task.Interaction.Follows(string(s.out.AgentEnd)):
		return record.OverAgent // the stage keeps a failure
	case s.out.AgentEnd != record.Yielded && !s.a.needs.KeepsSession:
		s.a.recorder.Note(at, "session_over", "turn %d ended by %s, and agent %s cannot continue its session after that", s.turns, s.out.AgentEnd, s.a.in.Cell.Agent.Plugin)
		return record.OverAgent
	default:
		return ""
	}
}

// judgeRound copies the artifacts and lets the verifiers of rounds judge them.
// Also with an error it returns the verdicts so far.
func (s *stage) judgeRound(ctx context.Context, uses []task.VerifierUse) (verdicts []verifier.Verdict, err error) {
	forUser := slices.ContainsFunc(s.task.Artifacts, func(a task.Artifact) bool { return slices.Contains(a.Audience, task.RoleUser) })
	if len(uses) == 0 && !forUser {
		return nil, nil
	}
	if err = s.createOwn(ctx, uses); err != nil {
		return nil, err
	}
	a, round := s.a, s.turns
	thaw, err := s.freeze(ctx, round)
	if err != nil {
		return nil, err
	}
	defer func() { err = cmp.Or(err, thaw()) }()
	copies := s.roundCopies(round)
	copying := s.phase(record.PhaseCopy, record.ByEnvironment)
	copying.Round = round
	begin := a.now()
	err = a.phase(ctx, copying, limits.Collect, func(ctx context.Context) (err error) {
		s.copied, err = s.artifactsInto(ctx, copying, copies)
		return err
	})
	s.charge("copy", a.now().Sub(begin))
	if a.task.Interaction.Hold == task.HoldCopy {
		err = cmp.Or(err, thaw())
	}
	if err != nil || len(uses) == 0 {
		return nil, err
	}
	return s.judgeCopies(ctx, uses, copies)
}

// judgeCopies lets the verifiers of rounds judge the copies of the round of the last
// turn. Also with an error it returns the verdicts so far.
func (s *stage) judgeCopies(ctx context.Context, uses []task.VerifierUse, copies string) (verdicts []verifier.Verdict, err error) {
	a, round := s.a, s.turns
	at := s.phase(record.PhaseJudge, record.ByVerifier)
	at.Round = round
	begin := a.now()
	limit := time.Duration(len(uses)) * (min(s.verifyTime(), limits.Judge) + limits.Return)
	err = a.phase(ctx, at, limit, func(ctx context.Context) error {
		for n, u := range uses {
			v, judgeErr := s.judge(ctx, judgement{
				use: u, number: n + 1, round: round, left: s.followUps(), earlier: slices.Concat(s.out.Rounds, verdicts), copies: copies,
			})
			if judgeErr == nil {
				verdicts = append(verdicts, v)
				continue
			}
			judgeErr = fmt.Errorf("verifier %s, round %d: %w", u.Name, round, judgeErr)
			if judgeErr = s.failed(ctx, at, u, judgeErr); judgeErr != nil {
				return judgeErr
			}
		}
		return nil
	})
	s.charge("judge", a.now().Sub(begin))
	return verdicts, err
}

// roundCopies returns the folder of the attempt with the copies of a round.
func (s *stage) roundCopies(round int) string {
	dir := filepath.Join(s.a.in.Record.Dir(), record.RoundsDir)
	if len(s.a.task.Stages) > 1 {
		dir = filepath.Join(dir, s.task.Name)
	}
	return filepath.Join(dir, fmt.Sprint(round))
}

// ofRounds returns the verifiers that judge rounds.
func (s *stage) ofRounds() (uses []task.VerifierUse) {
	for _, u := range s.task.Verifiers {
		if s.judgesRounds(u.Name) {
			uses = append(uses, u)
		}
	}
	return uses
}

// nextMessage asks the simulated user for the next message.
func (s *stage) nextMessage(ctx context.Context, uses []task.VerifierUse, verdicts []verifier.Verdict) (more bool, err error) {
	a := s.a
	p := s.phase(record.PhaseUser, record.ByUser)
	p.Round = s.turns
	limit := cmp.Or(a.in.Cell.User.Time, limits.User)
	begin := a.now()
	text := ""
	err = a.phase(ctx, p, limits.Open+limit+limits.Close+limits.Judge, func(ctx context.Context) error {
		said, failed := s.userSays(ctx, p, limit, verdicts)
		if lost := s.unlessFixed(p, uses, failed); lost != nil || failed == nil && said == "" {
			return lost
		}
		text, failed = s.rewrite(ctx, uses, verdicts, said)
		return failed
	})
	s.charge("user", a.now().Sub(begin))
	if err != nil || strings.TrimSpace(text) == "" {
		return false, err
	}
	s.message = agent.Message{Stage: s.task.Name, Text: text}
	return true, nil
}

// unlessFixed returns the failure of the simulated user, or nil if a verifier
// writes a fixed line instead.
func (s *stage) unlessFixed(p record.Phase, uses []task.VerifierUse, failed error) error {
	if failed == nil || cmp.Or(s.a.in.Cell.User.OnError, s.a.task.Interaction.OnUserError) != task.FixedLine {
		return failed
	}
	f := outcome.Of(record.ByUser, failed)
	ofUser := slices.Contains([]record.Outcome{record.UserError, record.ModelError, record.RateLimited}, f.Outcome) && f.Stops == ""
	if !ofUser || !slices.ContainsFunc(uses, func(u task.VerifierUse) bool { return s.rewriter(u) != nil }) {
		return failed
	}
	s.a.recorder.Note(p, "user_failed", "a fixed line was sent in the place of the simulated user's message: %s", failed)
	return nil
}

// rewriter returns a verifier that makes messages to the agent; nil: it does not.
func (s *stage) rewriter(u task.VerifierUse) verifier.Rewriter {
	w, _ := s.a.verifiers[u.Name].Verifier.(verifier.Rewriter)
	return w
}

// userSays runs one turn of the simulated user. Its last message is the answer,
// whether its turn ends with a question or not. An empty message ends the
// interaction, and the reason of the turn says why.
func (s *stage) userSays(ctx context.Context, p record.Phase, limit time.Duration, verdicts []verifier.Verdict) (string, error) {
	if err := s.openUser(ctx); err != nil {
		return "", err
	}
	u := s.user
	err := os.RemoveAll(filepath.Join(u.view, views.AttemptFolder)) // that of the round before
	if err == nil {
		copies := views.Copies{Dir: s.roundCopies(s.turns), Shown: s.shownToUser()}
		err = views.Attempt(u.view, s.a.in.Record.Dir(), copies, task.RoleUser)
	}
	if err != nil {
		return "", outcome.On(record.ByCore, err)
	}
	setting := "the default"
	if s.a.in.Cell.User.Time > 0 {
		setting = "time of the user block"
	}
	m := agent.Message{Stage: s.task.Name, Turn: u.turns + 1, Text: s.briefing(verdicts)}
	u.recorder.Said(s.task.Name, s.turns, m.Text)
	f := u.turn(ctx, m, s.turns, bounds{limit: limit, setting: setting})
	switch {
	case f.err != nil:
		return "", fmt.Errorf("user %s: %w", s.a.in.Cell.User.Agent.Plugin, outcome.Model(record.ByUser, u.models, f.err))
	case u.down(f.end) != nil:
		return "", outcome.On(record.ByModel, fmt.Errorf("user %s: %w", s.a.in.Cell.User.Agent.Plugin, u.down(f.end)))
	case f.end == record.Crashed, f.end == record.Timeout, f.end == record.Refused:
		// Its answer is unknown, so the agent cannot be measured.
		return "", outcome.On(record.ByUser, fmt.Errorf("user %s: its turn ended by %s: %s", s.a.in.Cell.User.Agent.Plugin, f.end, f.yield.Reason))
	case f.end != record.Yielded: // by a limit of the experiment
		s.a.recorder.Note(p, "user_ended", "the simulated user ended by %s: no further message", f.end)
		return "", nil
	}
	if strings.TrimSpace(f.yield.Message) == "" {
		s.out.UserEnd = s.a.recorder.Text(f.yield.Reason, verifier.MaxLabelBytes)
	}
	return recorder.Cut(f.yield.Message, limits.MessageBytes), nil
}

// openUser opens the user's session, once per stage.
func (s *stage) openUser(ctx context.Context) error {
	if s.user != nil {
		return nil
	}
	a := s.a
	user := a.in.Cell.User.Agent
	plugin, used, err := a.in.Plugins.Agent(ctx, user.Plugin)
	if err != nil {
		return outcome.On(record.ByUser, err)
	}
	a.use(used)
	needs, err := a.ask(ctx, plugin, used, user, agent.RoleUser)
	if err != nil {
		return err
	}
	if ps := feasible.User(user, &needs, a.in.Gateway != nil); len(ps) > 0 {
		return outcome.On(record.ByConfig, errors.New(ps[0].String()))
	}
	view, err := s.view(task.RoleUser, "user", nil)
	if err != nil {
		return err
	}
	s.user, err = a.open(ctx, opening{role: agent.RoleUser, plugin: plugin, cell: user, needs: needs, view: view, stage: s.task, number: s.i + 1})
	if err != nil { // it may be tried again after the next turn
		err = errors.Join(err, os.RemoveAll(view))
	}
	return err
}

// shownToUser returns the copies of the round that the user may see. A copy that
// lies within one that the user may not see, or has one in it, is left out: it
// could hold files of both.
func (s *stage) shownToUser() (shown []string) {
	forUser := func(e collect.Entry) bool { return slices.Contains(e.Audience, task.RoleUser) }
	within := func(a, b string) bool { return strings.HasPrefix(a+"/", b+"/") }
	for _, e := range s.copied {
		to := e.Destination
		hidden := slices.IndexFunc(s.copied, func(o collect.Entry) bool {
			return !forUser(o) && (within(to, o.Destination) || within(o.Destination, to))
		})
		switch {
		case !forUser(e) || e.Status == collect.Skipped:
		case hidden >= 0:
			s.a.recorder.Note(s.phase(record.PhaseUser, record.ByUser), "artifact_hidden",
				"%s is not shown to the user: its copy overlaps with that of %s, which is not for the user", e.Source, s.copied[hidden].Source)
		default:
			shown = append(shown, strings.TrimPrefix(to, "artifacts/"))
		}
	}
	return shown
}

// briefing returns the text for the simulated user: its persona, the task, the
// agent's last message, and the handoffs of the verdicts, but nothing else of
// them.
func (s *stage) briefing(verdicts []verifier.Verdict) string {
	var b strings.Builder
	part := func(title, text string) {
		if text = strings.TrimSpace(text); text != "" {
			fmt.Fprintf(&b, "## %s\n\n%s\n\n", title, text)
		}
	}
	if s.user.turns == 0 {
		part("You", s.persona())
		part("What you asked for", views.Instruction(s.task))
	}
	part("What the assistant answered", s.lastWords)
	if s.out.AgentEnd != record.Yielded {
		part("Note", "The assistant was stopped before it had finished ("+string(s.out.AgentEnd)+").")
	}
	var notes []string
	for _, v := range verdicts {
		notes = append(notes, v.Handoff)
	}
	part("What you know of its work", strings.Join(slices.DeleteFunc(notes, func(n string) bool { return n == "" }), "\n"))
	part("Your turn", "Write the next message to the assistant, or nothing if you are done.")
	return b.String()
}

// persona returns the text of the experiment and the task about the user. A
// secret persona is only in the view, because this text is recorded.
func (s *stage) persona() string {
	own := strings.TrimSpace(s.a.in.Cell.User.Persona + "\n\n" + s.a.task.Interaction.Persona)
	name := s.a.task.Interaction.User
	for i := range s.a.task.Resources {
		r := &s.a.task.Resources[i]
		if r.Name != name || name == "" || r.Folder {
			continue
		}
		text, err := os.ReadFile(filepath.Join(s.user.view, filepath.FromSlash(name)))
		if err != nil || r.Secret || len(text) > limits.MessageBytes || !utf8.Valid(text) {
			return own + "\n\nYour part is described in " + name + "."
		}
		return own + "\n\n" + string(text)
	}
	return own
}

// rewrite lets the verifiers check the next message. An empty one asks for a fixed
// line.
func (s *stage) rewrite(ctx context.Context, uses []task.VerifierUse, verdicts []verifier.Verdict, text string) (string, error) {
	for n, u := range uses {
		plugin := s.a.verifiers[u.Name]
		i := slices.IndexFunc(verdicts, func(v verifier.Verdict) bool { return v.Verifier == u.Name })
		if s.rewriter(u) == nil || i < 0 {
			continue
		}
		r, done, err := s.request(ctx, judgement{
			use: u, number: 100 + n, round: s.turns, left: s.followUps(), earlier: verdicts,
		}, plugin)
		if err != nil {
			return "", err
		}
		text, err = call(ctx, record.ByVerifier, "rewrite by "+u.Name, min(s.verifyTime(), limits.Judge), func(ctx context.Context) (string, error) {
			return callVerifier(ctx, s, plugin, r.Scratch, func(v verifier.Verifier) (string, error) {
				w, ok := v.(verifier.Rewriter)
				if !ok {
					return "", fmt.Errorf("verifier %s no longer rewrites messages", u.Name)
				}
				return w.Rewrite(ctx, r, verdicts[i], text)
			})
		})
		if err = errors.Join(err, done()); err != nil || text == "" {
			return "", err
		}
	}
	return recorder.Cut(text, limits.MessageBytes), nil
}
