package verifiertest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/verifier"
)

type clause = conformance.Clause[Subject]

// NoCases is why no verdict is compared with the right one: a verifier that always
// fails passes then, too.
const NoCases = "the author gave no cases"

// patience is how long a verifier may take to notice that its context has
// ended.
const patience = 3 * time.Second

// verdictClauses are about what a verifier returns.
var verdictClauses = []clause{
	conformance.New("a submission that can be judged gets a verdict", "a verifier that fails on everything, and so passes each clause that expects no pass", judges).AsProof(),
	conformance.New("a verdict has a decision and finite scores", "a NaN or an empty decision that enters the mean of a table", func(t *conformance.T, s Subject) {
		for _, c := range s.cases() {
			s.shaped(t, c.Name, s.request(t, &c))
		}
	}),
	conformance.New("known submissions get the expected verdict", "a verifier that keeps the contract and gives wrong verdicts", func(t *conformance.T, s Subject) {
		for _, c := range s.Cases {
			v, err := s.verify(t.Context(), s.request(t, &c))
			if err != nil || c.Want != "" && v.Decision != c.Want {
				t.Errorf("%s: got %s; want %s", c.Name, got(v, err), c.Want)
			}
			for name, want := range c.Scores {
				if got, ok := v.Scores[name]; err == nil && (!ok || got.Value != want) {
					t.Errorf("%s: got %s; want score %s = %g", c.Name, pretty(v), name, want)
				}
			}
		}
	}).Unless(func(s Subject) bool { return len(s.Cases) == 0 }, NoCases),
	noPass("nothing to judge is never a pass", "an empty folder, after a failed collection, that counts as solved", func(t *conformance.T, s Subject) verifier.Request {
		return s.request(t, &Case{Request: verifier.Request{Config: s.cases()[0].Request.Config}, Files: map[string]string{"task.json": plain["task.json"]}})
	}),
	conformance.New("the same work gets the same verdict", "state kept from one attempt to the next", func(t *conformance.T, s Subject) {
		r := s.first(t)
		first, err1 := s.verify(t.Context(), r)
		second, err2 := s.verify(t.Context(), r)
		if (err1 == nil) != (err2 == nil) || !reflect.DeepEqual(first, second) {
			t.Errorf("first: %s; then: %s", got(first, err1), got(second, err2))
		}
	}).Unless(func(s Subject) bool { return s.Traits.Needs != verifier.NeedsNone || len(s.Traits.Models) > 0 }, "it works in a sandbox or asks a model"),
	conformance.New("each of many concurrent requests gets its own answer", "verdicts that are mixed up between attempts of a busy run", many),
	conformance.New("a handoff contains nothing of the references",
		"the expected answer that reaches the agent through the simulated user", func(t *conformance.T, s Subject) {
			const marker = "MARKER-4f1c-of-the-references"
			c := s.cases()[0]
			c.Files = maps.Clone(c.Files)
			c.Files["references/kit-marker.txt"] = marker + "\n"
			if v, err := s.verify(t.Context(), s.request(t, &c)); err == nil && strings.Contains(v.Handoff, marker) {
				t.Errorf("handoff holds what stands in references/: %q", v.Handoff)
			}
		}),
	conformance.New("a verifier that judges between turns answers there", "an announced ability that does not exist", func(t *conformance.T, s Subject) {
		r := s.first(t)
		r.Round, r.RoundsLeft = 1, 2
		v := s.shaped(t, "in round 1", r)
		if s.Traits.Needs == verifier.NeedsOwn {
			r.Round, r.RoundsLeft, r.Earlier = 2, 1, []verifier.Verdict{v}
			s.shaped(t, "in round 2, in the sandbox of round 1", r)
		}
	}).Unless(func(s Subject) bool { return !s.Traits.Rounds }, "it does not judge between turns"),
	conformance.New("it can judge with the setting that gives it its own sandbox", "an announced setting with which every attempt is an error", func(t *conformance.T, s Subject) {
		for name, text := range s.Traits.OwnWith {
			c := s.cases()[0]
			config := map[string]any{}
			t.Must("the configuration of "+c.Name, json.Unmarshal([]byte(cmp.Or(string(c.Request.Config), string(s.Config), "{}")), &config))
			config[name] = text
			var err error
			c.Request.Config, err = json.Marshal(config)
			t.Must("the configuration of "+c.Name, err)
			s.shaped(t, name+" = "+text, s.request(t, &c))
		}
	}).Unless(func(s Subject) bool { return len(s.Traits.OwnWith) == 0 }, "no setting gives it its own sandbox").
		Unless(func(s Subject) bool { return s.Shell == nil }, "that is a sandbox, and none can be made here: berth doctor says why"),
	conformance.New("it has the capabilities that it announces", "a capability in Describe that fails when it is used", func(t *conformance.T, s Subject) {
		w, ok := s.Verifier.(verifier.Rewriter)
		if !ok {
			t.Fatalf("announces %q and has no Rewrite", verifier.CapabilityRewrite)
		}
		r := s.first(t)
		r.Round, r.RoundsLeft = 1, 1
		_, err := w.Rewrite(t.Context(), r, verifier.Verdict{Decision: verifier.Continue, Handoff: "continue"}, "please continue")
		t.Check("rewrite", err)
	}).Unless(func(s Subject) bool { return !slices.Contains(s.Capabilities, verifier.CapabilityRewrite) }, "it announces no capability of the kit"),
}

// accidentClauses are about failures around a verifier.
var accidentClauses = []clause{
	conformance.New("the view is not changed", "a verifier that changes what the next verifier judges", func(t *conformance.T, s Subject) {
		r := s.first(t)
		t.Unchanged(r.View, func() { _, _ = s.verify(t.Context(), r) })
	}),
	noPass("a view that is not there is an error", "a mistake of the core that becomes a verdict", func(t *conformance.T, s Subject) verifier.Request {
		return s.request(t, &Case{Request: verifier.Request{View: filepath.Join(t.TempDir(), "gone"), Config: s.cases()[0].Request.Config}})
	}),
	conformance.New("a cancel ends Verify soon", "a verifier that hangs and holds a sandbox or a processor forever", func(t *conformance.T, s Subject) {
		r := s.first(t)
		canceled, cancel := context.WithCancel(t.Context())
		defer cancel()
		t.Calms(s.Load, patience, func() {
			time.AfterFunc(conformance.Delay(20*time.Millisecond), cancel) // the request has arrived by then
			t.Ends("after the cancel", patience, func() { _, _ = s.verify(canceled, r) })
		})
	}).Within(20 * time.Second),
	noPass("settings that are not JSON are an error", "a task with a typo that is judged by defaults, or ends the plugin", func(t *conformance.T, s Subject) verifier.Request {
		r := s.first(t)
		r.Settings = json.RawMessage(`{"command": [`)
		return r
	}),
	conformance.New("links, pipes and huge files in the attempt do no harm",
		"an agent that leaves /dev/zero, a FIFO or a link out of the view where an answer should be", hostile).Within(45 * time.Second),
	conformance.New("after a failure the next request works", "one bad attempt that spoils all later ones of the run", func(t *conformance.T, s Subject) {
		before, err1 := s.verify(t.Context(), s.first(t))
		_, _ = s.verify(t.Context(), verifier.Request{View: "/nonexistent", Timeout: time.Second, Settings: json.RawMessage(`[]`)})
		after, err2 := s.verify(t.Context(), s.first(t))
		if before.Decision != after.Decision || (err1 == nil) != (err2 == nil) {
			t.Errorf("before: %s; after: %s", got(before, err1), got(after, err2))
		}
	}),
	conformance.New("a shell that refuses is an error, not a verdict",
		"a sandbox that was lost during verification and counts as a fail or a pass", func(t *conformance.T, s Subject) {
			c := s.cases()[0]
			c.Request.Shell = "unix:" + filepath.Join(t.TempDir(), "gone")
			if v, err := s.verify(t.Context(), s.request(t, &c)); err == nil {
				t.Errorf("got %s; want an error", pretty(v))
			}
		}).Unless(func(s Subject) bool { return s.Traits.Needs == verifier.NeedsNone }, "it needs no shell"),
}

// noPass returns a clause about a request that must not be a pass.
func noPass(name, guards string, request func(*conformance.T, Subject) verifier.Request) clause {
	return clause{Name: name, Guards: guards, Run: func(t *conformance.T, s Subject) {
		if v, err := s.verify(t.Context(), request(t, s)); err == nil && v.Decision == verifier.Pass {
			t.Errorf("got %s; want an error, or at least no pass", pretty(v))
		}
	}}
}

// first is the request of the first case.
func (s *Subject) first(t *conformance.T) verifier.Request { return s.request(t, &s.cases()[0]) }

// shaped judges a request and fails the clause unless it gets a verdict of the right form.
func (s *Subject) shaped(t *conformance.T, what string, r verifier.Request) verifier.Verdict {
	v, err := s.verify(t.Context(), r)
	if err == nil {
		err = shape(&r, &v)
	}
	if err != nil {
		t.Errorf("%s: %s", what, got(v, err))
	}
	return v
}

// judges wants a verdict of every work whose author knows it, and one at least.
func judges(t *conformance.T, s Subject) {
	verdicts := 0
	var failed error
	for _, c := range s.cases() {
		_, err := s.verify(t.Context(), s.request(t, &c))
		switch {
		case err == nil:
			verdicts++
		case c.Want != "":
			t.Errorf("%s: no verdict: %v; want %s", c.Name, err, c.Want)
		}
		failed = errors.Join(failed, err)
	}
	if verdicts > 0 {
		return
	}
	if len(s.Cases) == 0 {
		t.Fatalf("no verdict on the example of the kit: %v. If the verifier needs other files, give it cases: --case DIR of berth plugin test, or Cases of the kit in Go", failed)
	}
	t.Errorf("no verdict on any of %d cases: %v", len(s.Cases), failed)
}

// many sends 16 requests at once and compares each verdict with that of a
// single request.
func many(t *conformance.T, s Subject) {
	cs := s.cases()
	if s.Traits.Needs != verifier.NeedsNone && len(cs) > 2 {
		cs = cs[:2] // each case needs its own sandboxes
	}
	decide := func(r verifier.Request) verifier.Decision {
		v, err := s.verify(t.Context(), r)
		if err != nil {
			return "error"
		}
		return v.Decision
	}
	alone := make([]verifier.Decision, len(cs))
	for i := range cs {
		alone[i] = decide(s.request(t, &cs[i]))
	}
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i := range 16 {
		c := i % len(cs)
		r := s.request(t, &cs[c])
		all.Go(func() {
			<-begin
			if is := decide(r); is != alone[c] {
				t.Errorf("%s: among others %q, alone %q", cs[c].Name, is, alone[c])
			}
		})
	}
	close(begin)
	all.Wait()
}

// hostile replaces every artifact with something that must not be opened
// without a check.
func hostile(t *conformance.T, s Subject) {
	for name, spoil := range map[string]func(path string) error{
		"a link to /dev/zero":     func(p string) error { return os.Symlink("/dev/zero", p) },
		"a link out of the view":  func(p string) error { return os.Symlink("/etc/passwd", p) },
		"a pipe without a writer": func(p string) error { return syscall.Mkfifo(p, 0o644) },
		"a link to itself":        func(p string) error { return os.Symlink(filepath.Base(p), p) },
		"a file of 1 TiB": func(p string) error {
			return errors.Join(os.WriteFile(p, nil, 0o644), os.Truncate(p, 1<<40))
		},
	} {
		r, spoiled := s.first(t), false
		for file := range s.cases()[0].Files {
			if strings.HasPrefix(file, "attempt/artifacts/") {
				path := filepath.Join(r.View, filepath.FromSlash(file))
				t.Must(name, errors.Join(os.Remove(path), spoil(path)))
				spoiled = true
			}
		}
		known := s.Traits.Needs == verifier.NeedsNone && len(s.Cases) > 0 && spoiled
		deadline := conformance.Patience(2 * time.Second)
		bounded, cancel := context.WithTimeout(t.Context(), deadline)
		t.Calms(s.Load, patience, func() {
			t.Ends(name, 2*time.Second+patience, func() {
				if v, err := s.verify(bounded, r); err == nil && v.Decision == verifier.Pass && known {
					t.Errorf("%s: got %s", name, pretty(v))
				}
			})
		})
		cancel()
	}
}
