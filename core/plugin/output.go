package plugin

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/berth-eval/berth/core/redact"
	"github.com/berth-eval/berth/plugins"
)

// Line is one line that a plugin wrote to stderr, or to stdout after the handshake.
type Line struct {
	Time   time.Time      `json:"time"`
	Plugin string         `json:"plugin"` // name of the program
	PID    int            `json:"pid"`
	Stream string         `json:"stream"`          // stderr or stdout
	Level  string         `json:"level,omitempty"` // of a log record; other lines have none
	Text   string         `json:"text"`
	Fields map[string]any `json:"fields,omitempty"` // of a log record
	// Attempt is the attempt, as in ForAttempt, in whose calls the line was
	// written; empty if that cannot be told. It is known if the plugin says it,
	// as records of the SDKs do, or if the process has served only one attempt.
	Attempt string `json:"attempt,omitempty"`
}

// output is what happens to the lines of plugins.
type output struct {
	secrets *redact.Redactor
	keep    func(Line)
}

// Keep calls keep, which must be safe for concurrent use, for each line that a
// plugin writes from now on, except lines above 200 a second. secrets are replaced
// in these lines, in the log of the host, and in the last words of a plugin in
// errors. Both may be nil.
func (h *Host) Keep(secrets *redact.Redactor, keep func(Line)) {
	h.output.Store(&output{secrets, keep})
}

type attemptKey struct{}

// ForAttempt returns a context for the calls of an attempt. The name is TRIAL/NUMBER.
func ForAttempt(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, attemptKey{}, name)
}

// attempts are the attempts that a process has served.
type attempts struct {
	mu   sync.Mutex
	seen map[string]bool
}

// serve records the attempt of a call, and returns the context that tells the
// plugin about it.
func (a *attempts) serve(ctx context.Context) context.Context {
	name, ok := ctx.Value(attemptKey{}).(string)
	if !ok {
		return ctx
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen == nil {
		a.seen = map[string]bool{}
	}
	a.seen[name] = true
	return metadata.AppendToOutgoingContext(ctx, plugins.AttemptKey, name)
}

// of returns the attempt of a line: the one that the plugin named, if it has served
// it, or else the only one that it has served.
func (a *attempts) of(named string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen[named] {
		return named
	}
	if len(a.seen) == 1 && named == "" {
		for only := range a.seen {
			return only
		}
	}
	return ""
}
