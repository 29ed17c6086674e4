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
		return fmt.Sprintf("%s, %s, times time_factor", key, span(asks))
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
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Sizes. Bytes, unless the name says otherwise.
const (
	ArtifactBytes   = 4 << 30  // of file contents in one collection
	WorkBytes       = 4 << 30  // of what mode image copies
	ArtifactEntries = 100_000  // files and folders in one collection
	ArtifactFills   = 16 << 20 // of artifacts that may be the cause of a full disk; a disk without room for so little was full before
	ArtifactDropped = 50       // names of left out entries that the manifest lists
	StepBytes       = 8 << 20  // of one step as JSON; what is longer is cut
	StepText        = 1 << 20  // of one text in a step that had to be cut
	Steps           = 100_000  // of one session
	StepsBytes      = 1 << 30  // of all steps of one session
	LogLine         = 64 << 10 // of one line of a plugin's log
	LogBytes        = 64 << 20 // of the log of an attempt
	LogsBytes       = 1 << 30  // of the logs that an agent left in the sandbox
	MessageBytes    = 1 << 20  // of a message or an agent's last words
	VerdictBytes    = 4 << 20  // of a verdict's texts together
	Scores          = 1000     // named scores of one verdict
	Findings        = 1000     // of one attempt; the rest is counted
	FindingText     = 4096     // of one finding
	ErrorText       = 16 << 10 // of one error message in the record
	OutputTail      = 4096     // of the output of a task's own command, kept in an error
	ListedProcesses = 20       // in one finding
	ListedFiles     = 10       // in one finding
	HashedTests     = 1 << 30  // of the verifier's files, looked at again after it
)

// Times, when neither the task nor the experiment gives one.
const (
	Check      = 30 * time.Second
	Prepare    = 30 * time.Minute       // pull or build of an image
	Create     = 10 * time.Minute       // start of a sandbox, where the task does not say
	Connect    = 60 * time.Second       // until the first message of sandboxd
	Watch      = 200 * time.Millisecond // between two checks of whether it can still come
	Service    = 60 * time.Second
	Entrypoint = 60 * time.Second // an entrypoint of an image, before the agent starts anyway
	HeadStart  = 2 * time.Second  // for programs that were started to listen, where nothing tells when they are ready
	Setup      = 10 * time.Minute // the task's own commands before a stage
	Open       = 6 * time.Minute  // of an agent's session
	Turn       = 24 * time.Hour   // an agent without a deadline still has one
	Hook       = 60 * time.Second
	Judge      = 30 * time.Minute
	User       = 15 * time.Minute
	Control    = 30 * time.Second // one call to sandboxd
	Collect    = 15 * time.Minute
	Verify     = 60 * time.Minute
	Close      = 60 * time.Second // of an agent's session
	Destroy    = 2 * time.Minute
	Farewell   = 2 * time.Second  // for a turn to end by itself after its access is cut, before it is cancelled
	Return     = 10 * time.Second // for a plugin's call to return after it was cancelled
	Lease      = 60 * time.Second
)
