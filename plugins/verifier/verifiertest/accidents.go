package verifiertest

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/verifier"
)

// patience is how long a verifier may take to notice that its context has
// ended.
const patience = 3 * time.Second

// accidentClauses are about failures around a verifier.
var accidentClauses = []conformance.Clause[Subject]{
	{
		Name:   "the view is not changed",
		Guards: "a verifier that changes what the next verifier judges",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			c := s.cases()[0]
			r := s.request(ctx, t, &c)
			before := digest(t, r.View)
			_, _ = s.Verifier.Verify(ctx, r, ignore)
			if digest(t, r.View) != before {
				t.Errorf("files below the view differ after Verify")
			}
		},
	},
	{
		Name:   "a view that is not there is an error",
		Guards: "a mistake of the core that becomes a verdict",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			c := Case{Request: verifier.Request{View: filepath.Join(t.TempDir(), "gone"), Config: s.cases()[0].Request.Config}}
			v, err := s.Verifier.Verify(ctx, s.request(ctx, t, &c), ignore)
			if err == nil && v.Decision == verifier.Pass {
				t.Errorf("got %s; want an error, or at least no pass", pretty(v))
			}
		},
	},
	{
		Name:   "a cancel ends Verify soon",
		Guards: "a verifier that hangs and holds a sandbox or a processor forever",
		Time:   20 * time.Second,
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			c := s.cases()[0]
			r := s.request(ctx, t, &c)
			var before conformance.Load
			if s.Load != nil {
				before = s.Load()
			}
			canceled, cancel := context.WithCancel(ctx)
			time.AfterFunc(conformance.Delay(20*time.Millisecond), cancel) // the request has arrived by then
			defer cancel()
			ends(t, func() { _, _ = s.Verifier.Verify(canceled, r, ignore) })
			t.Calms(ctx, s.Load, before, patience)
		},
	},
	{
		Name:   "settings that are not JSON are an error",
		Guards: "a task with a typo that is judged by defaults, or ends the plugin",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			c := s.cases()[0]
			r := s.request(ctx, t, &c)
			r.Settings = json.RawMessage(`{"command": [`)
			if v, err := s.Verifier.Verify(ctx, r, ignore); err == nil && v.Decision == verifier.Pass {
				t.Errorf("got %s; want an error, or at least no pass", pretty(v))
			}
		},
	},
	{
		Name:   "a configuration with an unknown key is an error",
		Guards: "a misspelt option that silently does nothing",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			c := s.cases()[0]
			r := s.request(ctx, t, &c)
			r.Config = json.RawMessage(`{"an_option_that_no_verifier_has": true}`)
			if v, err := s.Verifier.Verify(ctx, r, ignore); err == nil {
				t.Errorf("got %s; want an error that names the key", pretty(v))
			} else if !strings.Contains(err.Error(), "an_option_that_no_verifier_has") {
				t.Errorf("error %q does not name the key", err)
			}
		},
	},
	{
		Name:   "links, pipes and huge files in the attempt do no harm",
		Guards: "an agent that leaves /dev/zero, a FIFO or a link out of the view where an answer should be",
		Time:   45 * time.Second,
		Run:    hostile,
	},
	{
		Name:   "after a failure the next request works",
		Guards: "one bad attempt that spoils all later ones of the run",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			c := s.cases()[0]
			before, err1 := s.Verifier.Verify(ctx, s.request(ctx, t, &c), ignore)
			_, _ = s.Verifier.Verify(ctx, verifier.Request{View: "/nonexistent", Timeout: time.Second, Settings: json.RawMessage(`[]`)}, ignore)
			after, err2 := s.Verifier.Verify(ctx, s.request(ctx, t, &c), ignore)
			if before.Decision != after.Decision || (err1 == nil) != (err2 == nil) {
				t.Errorf("before: %s; after: %s", got(before, err1), got(after, err2))
			}
		},
	},
	{
		Name:   "a shell that refuses is an error, not a verdict",
		Guards: "a sandbox that was lost during verification and counts as a fail or a pass",
		Skip: func(s Subject) string {
			if s.Traits.Needs == verifier.NeedsNone {
				return "it needs no shell"
			}
			return ""
		},
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			c := s.cases()[0]
			c.Request.Shell = "unix:" + filepath.Join(t.TempDir(), "gone")
			v, err := s.Verifier.Verify(ctx, s.request(ctx, t, &c), ignore)
			if err == nil {
				t.Errorf("got %s; want an error", pretty(v))
			}
		},
	},
}

// ends fails the clause if f takes longer than patience.
func ends(t *conformance.T, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(conformance.Patience(patience)):
		t.Errorf("still working %v after the cancel", patience)
	}
}

// hostile replaces every artifact with something that must not be opened
// without a check.
func hostile(ctx context.Context, t *conformance.T, s Subject) {
	for name, spoil := range map[string]func(path string) error{
		"a link to /dev/zero":     func(p string) error { return os.Symlink("/dev/zero", p) },
		"a link out of the view":  func(p string) error { return os.Symlink("/etc/passwd", p) },
		"a pipe without a writer": func(p string) error { return syscall.Mkfifo(p, 0o644) },
		"a link to itself":        func(p string) error { return os.Symlink(filepath.Base(p), p) },
		"a file of 1 TiB":         func(p string) error { return sparse(p, 1<<40) },
	} {
		c := s.cases()[0]
		r := s.request(ctx, t, &c)
		spoiled := false
		for file := range c.Files {
			if !strings.HasPrefix(file, "attempt/artifacts/") {
				continue
			}
			spoiled = true
			path := filepath.Join(r.View, filepath.FromSlash(file))
			if err := os.Remove(path); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := spoil(path); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		var before conformance.Load
		if s.Load != nil {
			before = s.Load()
		}
		deadline := conformance.Patience(2 * time.Second)
		bounded, cancel := context.WithTimeout(ctx, deadline)
		done := make(chan struct{})
		go func() {
			defer close(done)
			v, err := s.Verifier.Verify(bounded, r, ignore)
			if err == nil && v.Decision == verifier.Pass && s.Traits.Needs == verifier.NeedsNone && len(s.Cases) > 0 && spoiled {
				t.Errorf("%s: got %s", name, pretty(v))
			}
		}()
		select {
		case <-done:
		case <-time.After(deadline + conformance.Patience(patience)):
			t.Errorf("%s: still working after its deadline", name)
		}
		cancel()
		t.Calms(ctx, s.Load, before, patience)
	}
}

func sparse(path string, bytes int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := f.Truncate(bytes); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
