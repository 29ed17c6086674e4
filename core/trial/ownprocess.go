package trial

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/verifier"
)

// callVerifier calls a verifier. One process serves the verifications of all
// attempts, so when it ends, any of them may be the cause. A call whose process
// ends is therefore repeated once, in its own process. If that process
// ends too, the work of the agent is the cause, and the agent must not get
// another attempt. scratch is emptied before the second call.
func callVerifier[T any](ctx context.Context, s *stage, p VerifierPlugin, scratch string, f func(verifier.Verifier) (T, error)) (T, error) {
	v, err := f(p.Verifier)
	if !died(err) || p.OwnProcess == nil || !s.a.touched || ctx.Err() != nil {
		return v, err
	}
	own, stop, failed := p.OwnProcess(ctx)
	if failed != nil {
		return v, fmt.Errorf("%w; it could not be started again: %w", err, failed)
	}
	defer stop()
	if failed = errors.Join(os.RemoveAll(scratch), os.Mkdir(scratch, 0o700)); failed != nil {
		return v, outcome.On(record.ByCore, failed)
	}
	s.a.recorder.Note(s.phase(record.PhaseVerify, record.ByVerifier), "verifier_repeated",
		"the process of the verifier ended, and the verification was repeated in its own process: %s", err)
	if v, err = f(own); died(err) {
		err = &record.Error{Boundary: record.ByVerifier, Outcome: record.VerifierError, Err: fmt.Errorf(
			"its process ended, and again when this attempt was the only one in it, so what the agent left is the cause: %w", err)}
	}
	return v, err
}

// died reports whether a call failed because the process of its plugin ended. A
// panic ends only the call.
func died(err error) bool {
	return errors.Is(err, plugin.ErrPluginGone) && !errors.Is(err, fault.ErrPanic)
}
