// Package conformance runs the clauses of a contract's kit, both under go test
// and from the command line, so that the same clauses test plugins in any
// language.
//
// It must not know any contract: the clauses are in the kits, such as
// environmenttest. One call adds a clause to the list of a kit:
//
//	conformance.New("a reset shows something", "an agent that begins blind", func(t *conformance.T, s Subject) {
//		…
//	}).Within(20 * time.Second),
//
// and a row in the tests of `berth plugin test` names a plugin that breaks it.
package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Clause is one promise of a contract. S is what the kit tests: a plugin and
// everything needed to test it.
type Clause[S any] struct {
	// Name states the promise, as a clause: "exit code is a result, not an
	// error".
	Name string
	// Guards is the accident that the clause prevents.
	Guards string
	// Time is how long the clause may take on an idle machine, see Patience; 0
	// means ten seconds. A clause that takes longer has failed.
	Time time.Duration
	// Proof marks the clause that shows the plugin doing what plugins of its
	// kind are for. A plugin that has passed no such clause counts as untested.
	Proof bool
	// Needed marks a clause that tests what the clauses after it need. If it fails,
	// they are not tried: each would fail for the same reason.
	Needed bool
	// Skip returns why the clause does not apply to s, or an empty string if it
	// does. If Skip is nil, the clause always applies.
	Skip func(s S) string
	// Run tests the clause.
	Run func(t *T, s S)
}

// New returns a clause that always applies and takes no longer than ten seconds.
// guards is the accident that it prevents.
func New[S any](name, guards string, run func(t *T, s S)) Clause[S] {
	return Clause[S]{Name: name, Guards: guards, Run: run}
}

// Within returns the clause with another Time.
func (c Clause[S]) Within(d time.Duration) Clause[S] { c.Time = d; return c }

// Unless returns the clause with one more reason to skip it: why, where is holds.
func (c Clause[S]) Unless(is func(s S) bool, why string) Clause[S] {
	before := c.Skip
	c.Skip = func(s S) string {
		if before != nil {
			if reason := before(s); reason != "" {
				return reason
			}
		}
		if is(s) {
			return why
		}
		return ""
	}
	return c
}

// AsProof returns the clause as a Proof.
func (c Clause[S]) AsProof() Clause[S] { c.Proof = true; return c }

// AsNeed returns the clause as one that is Needed.
func (c Clause[S]) AsNeed() Clause[S] { c.Needed = true; return c }

// T is how a clause reports its result. Its methods are safe for concurrent
// use. Those that end the clause (Fatalf, Skipf and Must, and the fixtures of
// this package) must be called from the goroutine that runs it.
type T struct {
	ctx      context.Context
	mu       sync.Mutex
	failures []string
	skipped  string // why; empty: it was tried
	logs     []string
	cleanups []func(context.Context)
}

// Context ends when the time of the clause is up.
func (t *T) Context() context.Context { return t.ctx }

// Errorf marks the clause as failed and continues.
func (t *T) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
}

// Fatalf marks the clause as failed and ends it.
func (t *T) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

// Must ends the clause as failed if err is set. what says what was tried.
func (t *T) Must(what string, err error) {
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Check marks the clause as failed if err is set, and continues.
func (t *T) Check(what string, err error) {
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// Skipf ends the clause, which could not be tried. A clause that has failed before
// stays failed.
func (t *T) Skipf(format string, args ...any) {
	t.mu.Lock()
	t.skipped = fmt.Sprintf(format, args...)
	t.mu.Unlock()
	runtime.Goexit()
}

// Logf adds a line that is shown if the clause fails.
func (t *T) Logf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.logs = append(t.logs, fmt.Sprintf(format, args...))
}

// Cleanup runs f after the clause, last registered first. Its context is not that
// of the clause, which may have ended.
func (t *T) Cleanup(f func(ctx context.Context)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

// Status is the result of a clause.
type Status string

// The statuses.
const (
	Pass Status = "pass"
	Fail Status = "fail"
	Skip Status = "skip"
)

// Result is the result of one clause.
type Result struct {
	Clause string        `json:"clause"`
	Guards string        `json:"guards"`
	Status Status        `json:"status"`
	Detail []string      `json:"detail,omitempty"` // what was wrong, or why it was skipped
	Proof  bool          `json:"proof,omitempty"`  // see Clause.Proof
	Hung   bool          `json:"hung,omitempty"`   // it used up its time; no clause after it was run
	Took   time.Duration `json:"took_ns"`
}

// Run tests the clauses on s, one after the other, and calls each with every
// result. It stops at the first clause that uses up its time, because those
// after it would probably hang too, and returns false. It also stops at a clause that
// is Needed and fails.
func Run[S any](ctx context.Context, s S, clauses []Clause[S], each func(Result)) bool {
	for i := range clauses {
		if ctx.Err() != nil {
			return true
		}
		r := clauses[i].try(ctx, s)
		if each(r); r.Hung {
			return false
		}
		if clauses[i].Needed && r.Status == Fail {
			return true
		}
	}
	return true
}

// Only returns the clauses whose name contains words, ignoring case; empty:
// all.
func Only[S any](clauses []Clause[S], words string) (out []Clause[S]) {
	for i := range clauses {
		if strings.Contains(strings.ToLower(clauses[i].Name), strings.ToLower(words)) {
			out = append(out, clauses[i])
		}
	}
	return out
}

// Names returns the names of clauses.
func Names[S any](clauses []Clause[S]) (out []string) {
	for i := range clauses {
		out = append(out, clauses[i].Name)
	}
	return out
}

// Test runs every clause as a subtest, up to the one at which Run stops.
func Test[S any](t *testing.T, s S, clauses []Clause[S]) {
	t.Helper()
	why := ""
	for i := range clauses {
		c := &clauses[i]
		t.Run(c.Name, func(t *testing.T) {
			if why != "" {
				t.Skip(why)
			}
			r := c.try(t.Context(), s)
			if r.Hung || c.Needed && r.Status == Fail {
				why = fmt.Sprintf("not tried, because %q failed", c.Name)
			}
			switch r.Status {
			case Skip:
				t.Skip(r.Detail[0])
			case Fail:
				for _, d := range r.Detail {
					t.Error(d)
				}
				t.Logf("guards against: %s", c.Guards)
			case Pass:
			}
		})
	}
}

// cleanupTime is how long the clean-up of a clause may take.
const cleanupTime = 15 * time.Second

func (c *Clause[S]) try(ctx context.Context, s S) Result {
	began := time.Now()
	r := Result{Clause: c.Name, Guards: c.Guards, Status: Pass, Proof: c.Proof}
	if c.Skip != nil {
		if why := c.Skip(s); why != "" {
			r.Status, r.Detail = Skip, []string{why}
			return r
		}
	}
	limit := Patience(cmp.Or(c.Time, 10*time.Second))
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t := &T{ctx: bounded}
	if !inTime(limit, func() { c.guarded(t, s) }) || errors.Is(bounded.Err(), context.DeadlineExceeded) {
		r.Hung = true
		t.Errorf("did not end within %v; the clauses after it were not tried", limit)
	}
	cancel()
	if within := Patience(cleanupTime); !inTime(within, func() { t.clean(context.WithoutCancel(ctx), within) }) {
		t.Errorf("its clean-up did not end within %v", within)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case len(t.failures) > 0:
		if c.Needed && !r.Hung {
			t.failures = append(t.failures, "the clauses after it need this, and were not tried")
		}
		r.Status, r.Detail = Fail, append(t.failures, t.logs...)
	case t.skipped != "":
		r.Status, r.Detail = Skip, []string{t.skipped}
	}
	r.Took = time.Since(began)
	return r
}

// guarded turns a panic of a clause into a failure of that clause.
func (c *Clause[S]) guarded(t *T, s S) {
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	c.Run(t, s)
}

func (t *T) clean(ctx context.Context, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	t.mu.Lock()
	cleanups := t.cleanups
	t.mu.Unlock()
	for _, f := range slices.Backward(cleanups) {
		f(ctx)
	}
}

// inTime runs f in its own goroutine, which Fatalf may end. It reports
// whether f ended within limit and a moment more, because a clause first sees
// the end of its context.
func inTime(limit time.Duration, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
		return true
	case <-time.After(limit + Patience(500*time.Millisecond)):
		return false
	}
}
