// Package limits holds the limits of an attempt: how much output of a sandbox
// or a plugin is recorded, the default time of each part, and the calls that
// enforce those times with an error that names what took too long.
//
// It must not know what the waits are for.
package limits

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Deadline is the cause of a context that reached one of our limits, or one of the
// task or the experiment.
type Deadline struct {
	What    string // "collect"; with a Setting: "the tests were"
	Limit   time.Duration
	Setting string // that the limit comes from; empty: it is ours
}

// Error says what took too long.
func (d Deadline) Error() string {
	if d.Setting != "" {
		return fmt.Sprintf("%s stopped after %s (%s)", d.What, span(d.Limit), d.Setting)
	}
	return fmt.Sprintf("%s took longer than %s", d.What, d.Limit)
}

// span writes a time like 3 s, 0.5 s or 10m0s.
func span(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.4g s", d.Seconds())
	}
	return d.String()
}

// Setting names the setting that a time comes from: the task's, which is asks, or
// that of the experiment, which replaces or multiplies it. Empty: there is no such
// time.
func Setting(key string, asks time.Duration, experiment string, instead time.Duration, factor float64) string {
	key = cmp.Or(key, "time limit of the task")
	switch {
	case instead > 0:
		return experiment
	case asks == 0:
		return ""
	case factor > 0:
		return fmt.Sprintf("%s, %s, times %s_factor", key, span(asks), experiment)
	}
	return key
}

// Is makes it match context.DeadlineExceeded.
func (d Deadline) Is(err error) bool { return err == context.DeadlineExceeded } //nolint:errorlint // that is what Is is for

// Limited is context.WithTimeoutCause with a cause that says what took too long.
func Limited(ctx context.Context, what string, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, Deadline{What: what, Limit: limit})
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
