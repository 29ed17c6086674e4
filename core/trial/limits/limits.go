// Package limits holds the limits of an attempt: how much output of a sandbox
// or a plugin is recorded, the default time of each part, and the calls that
// enforce those times with an error that names what took too long.
//
// It must not know what the waits are for.
package limits

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Deadline is the cause of a context that reached one of our limits.
type Deadline struct {
	What  string
	Limit time.Duration
}

// Error says what took too long.
func (d Deadline) Error() string { return fmt.Sprintf("%s took longer than %s", d.What, d.Limit) }

// Is makes it match context.DeadlineExceeded.
func (d Deadline) Is(err error) bool { return err == context.DeadlineExceeded } //nolint:errorlint // that is what Is is for

// Limited is context.WithTimeoutCause with a cause that says what took too long.
func Limited(ctx context.Context, what string, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, Deadline{what, limit})
}

// Caused prefers the reason why ctx ended to a bare "context canceled".
func Caused(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	cause := context.Cause(ctx)
	if errors.Is(err, cause) {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return cause
	}
	return fmt.Errorf("%w (%w)", cause, err)
}

// Sleep waits for d, or for the end of ctx, whose cause it returns.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
