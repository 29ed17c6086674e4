package trial

import (
	"context"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/plugins/task"
)

// Part is a part of an attempt whose number at the same time may be limited.
type Part int

// The parts. An attempt begins in Building. A task of several stages goes through
// Working and Verifying in each stage.
const (
	Building  Part = iota + 1 // its image is prepared, its sandbox is created
	Working                   // its agent works
	Verifying                 // its verifiers work, until the next stage or the end
)

// Places limits how many attempts are in the same part. An attempt leaves a part
// when it enters another one.
type Places interface {
	// Try enters a part if there is a place. It does not wait.
	Try(p Part) bool
	// Enter waits for a place. Fails with the cause of ctx when that ends before.
	Enter(ctx context.Context, p Part) error
}

// enter waits for a place. The wait is in no phase, and is charged to no role.
func (a *attempt) enter(ctx context.Context, p Part) error {
	if a.in.Places == nil {
		return nil
	}
	return a.in.Places.Enter(ctx, p)
}

// awaitVerification waits for a place to verify the stage. In mode live the
// sandbox is frozen meanwhile, because processes that the agent left could
// otherwise work for longer when other attempts are slow. In the other modes
// they have ended.
func (s *stage) awaitVerification(ctx context.Context) (err error) {
	a := s.a
	if a.in.Places == nil || a.in.Places.Try(Verifying) {
		return nil
	}
	if s.mode == task.ModeLive {
		freeze := s.phase(record.PhaseFreeze, record.ByEnvironment)
		if err = a.phase(ctx, freeze, limits.Control, a.sandbox.Halt); err != nil {
			return err
		}
		defer func() {
			thaw := a.phase(context.WithoutCancel(ctx), s.phase(record.PhaseThaw, record.ByEnvironment), limits.Control, a.resume)
			if err == nil {
				err = thaw
			}
		}()
	}
	return a.at(s.phase(record.PhaseVerify, record.ByCore), a.enter(ctx, Verifying))
}
