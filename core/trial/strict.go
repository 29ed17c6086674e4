package trial

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// again is the second verification of a stage, in a strict experiment: what is
// exposed is graded again on a snapshot from before the first verification, with the
// system files of the image.
type again struct {
	second *second // nil: nothing can be graded again
	taken  bool    // it has the snapshot
	rounds []verifier.Verdict

	began  int      // number of findings at the beginning of the stage
	from   int      // and after its last round: no verdict of a round is made again
	noted  bool     // the result says why nothing was graded again
	asked  []string // listening processes that are not in the second sandbox
	grades bool     // it is under way
}

// beforehand takes the snapshot for a second verification, if the result will or
// may be exposed: the tests change the sandbox. An error there only means that the
// result stays exposed.
func (s *stage) beforehand(ctx context.Context) error {
	a := s.a
	if s.again.second == nil {
		return nil
	}
	s.again.rounds = slices.Clone(s.out.Rounds)
	marked := a.marked
	now, err := s.lookForChanges(ctx, s.atEnd())
	a.marked = marked // verify looks, too
	if err == nil && len(now.Files)+len(now.Services) == 0 && s.remains == "" && !a.sandbox.Served() && !s.exposed() {
		s.again.second = nil
		return nil
	}
	p := s.phase(record.PhaseCreate, record.ByEnvironment)
	return a.phase(ctx, p, limits.Prepare+2*limits.Control, func(ctx context.Context) error {
		s.second = s.again.second
		err := a.sandbox.Halt(ctx)
		if err == nil {
			err = s.snapshot(ctx, p)
		}
		n := len(a.recorder.All())
		resumed := a.resume(ctx)
		if err == nil && slices.ContainsFunc(a.recorder.All()[n:], exposes) {
			err = errors.New("processes went on while the sandbox was copied, and may have changed the copy alone")
		}
		a.marked, s.second, s.again.taken = marked, nil, err == nil
		if err != nil {
			s.notAgain(p, err)
		}
		return outcome.On(record.ByEnvironment, resumed)
	})
}

func (s *stage) notAgain(p record.Phase, err error) {
	s.again.noted = true
	s.a.recorder.Note(p, "not_graded_again", "it could not be graded a second time: %s", err)
}

// unsettled says why a strict experiment leaves a verified stage exposed, if nothing
// else says so.
func (s *stage) unsettled() {
	all := s.a.recorder.All()
	rounds := slices.ContainsFunc(all[s.again.began:s.again.from], exposes)
	if !s.a.in.Cell.Strict || s.again.noted || !s.out.Verified || !rounds && (s.out.Again != nil || !s.exposed()) {
		return
	}
	why := "nothing exposed it before the tests, and so there is no snapshot from before them"
	switch {
	case rounds:
		why = "the verdicts of rounds are not made again, and something exposed it before the last of them"
	case !feasible.Strict(s.a.in.Cell, s.mode):
		why = fmt.Sprintf("mode %q is not verified a second time", s.mode)
	case !s.inSandbox(s.atEnd()):
		why = "no verifier works in the sandbox after the last turn"
	}
	s.a.recorder.Note(s.phase(record.PhaseVerify, record.ByVerifier), "not_graded_again", "it was not graded a second time: %s", why)
}

func exposes(f record.Finding) bool { return f.Severity == verifier.Exposed }

// exposed reports whether the stage has a finding that exposes its result.
func (s *stage) exposed() bool {
	return slices.ContainsFunc(s.a.recorder.All()[s.again.from:], exposes)
}

// gradeAgain verifies an exposed result a second time, keeps both verdicts, and
// compares them. Only what it finds itself can still expose the result.
func (s *stage) gradeAgain(ctx context.Context, reach feasible.Reachable) error {
	if s.again.second == nil || !s.again.taken {
		return nil
	}
	defer func() { s.again.second = nil }()
	p := s.phase(record.PhaseVerify, record.ByVerifier)
	if !s.exposed() || !s.out.Verified {
		return s.a.dropSnapshots(ctx)
	}
	first, to := *s, len(s.a.recorder.All())
	s.mode, s.second, s.remains, s.secluded, s.again.grades = task.ModeSnapshot, s.again.second, "", false, true
	s.out = &outcome.Stage{Name: first.out.Name, Ran: true, AgentEnd: first.out.AgentEnd, Rounds: s.again.rounds}
	err := s.createSecond(ctx, reach)
	if err == nil {
		graded, end := s.graded.Ctx(ctx)
		s.graded.Allow(reach.Verify)
		err = s.verify(graded)
		end()
	}
	second := s.out
	gone := s.removeSecond(context.WithoutCancel(ctx))
	s.mode, s.second, s.out, s.graded, s.remains, s.secluded, s.again.grades = first.mode, nil, first.out, first.graded, first.remains, first.secluded, false
	if ctx.Err() != nil {
		return errors.Join(err, gone)
	}
	if gone != nil {
		s.a.recorder.Note(p, "cleanup", "%s", gone)
	}
	if err != nil {
		s.notAgain(p, err)
		return nil
	}
	s.compare(p, second, to)
	return nil
}

// compare records the second verdict, and whether it agrees. to is the number of
// findings before it.
func (s *stage) compare(p record.Phase, second *outcome.Stage, to int) {
	was, is := outcome.StageOutcome(s.a.success, s.out), outcome.StageOutcome(s.a.success, second)
	same := was == is
	if was == record.Scored {
		same = maps.Equal(s.out.Scores(), second.Scores())
	}
	s.out.Again = &record.Again{
		Mode: string(task.ModeSnapshot), Outcome: is, Same: same, Rewards: second.Scores(), Verdicts: second.Verdicts, VerifierImage: second.VerifierImage, System: second.System,
	}
	text := fmt.Sprintf("the first verdict is %s; on a snapshot with the system files of the image it is %s", was, is)
	switch {
	case same:
		s.a.settled = append(s.a.settled, [2]int{s.again.from, to})
		s.a.recorder.Note(p, "graded_again", "%s: findings of before do not expose the result", text)
	case was == record.Passed && len(s.again.asked) > 0:
		s.a.recorder.Exposed(p, "needs_live", "%s, where these do not run: %s. A task that grades what is left running cannot be graded again",
			text, listed(s.again.asked, 0))
	default:
		s.a.recorder.Violated(p, "verdicts_differ", "%s", text)
	}
}

// settle makes notes of the exposed findings that a second verification has
// settled.
func settle(findings []record.Finding, ranges [][2]int) {
	for _, r := range ranges {
		for i := r[0]; i < r[1] && i < len(findings); i++ {
			if findings[i].Severity == verifier.Exposed {
				findings[i].Severity = verifier.Note
			}
		}
	}
}
