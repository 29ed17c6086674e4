package verifiertest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/verifier"
)

// NoCases is why no verdict is compared with the right one: a verifier that always
// fails passes then, too.
const NoCases = "the author gave no cases"

// verdictClauses are about what a verifier returns.
var verdictClauses = []conformance.Clause[Subject]{
	{
		Name:   "a submission that can be judged gets a verdict",
		Guards: "a verifier that fails on everything, and so passes each clause that expects no pass",
		Proof:  true,
		Run:    judges,
	},
	{
		Name:   "a verdict has a decision and finite scores",
		Guards: "a NaN or an empty decision that enters the mean of a table",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			for _, c := range s.cases() {
				r := s.request(ctx, t, &c)
				v, err := s.Verifier.Verify(ctx, r, ignore)
				if errors.Is(err, verifier.ErrBadReward) { // a score that is not finite becomes this error on the wire
					t.Errorf("%s: %v", c.Name, err)
				}
				if err == nil {
					err = shape(&r, &v)
				}
				if err != nil {
					t.Errorf("%s: %s", c.Name, got(v, err))
				}
			}
		},
	},
	{
		Name:   "known submissions get the expected verdict",
		Guards: "a verifier that keeps the contract and gives wrong verdicts",
		Skip: func(s Subject) string {
			if len(s.Cases) == 0 {
				return NoCases
			}
			return ""
		},
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			for _, c := range s.Cases {
				v, err := s.Verifier.Verify(ctx, s.request(ctx, t, &c), ignore)
				if err != nil || c.Want != "" && v.Decision != c.Want {
					t.Errorf("%s: got %s; want %s", c.Name, got(v, err), c.Want)
				}
				for name, want := range c.Scores {
					if got, ok := v.Scores[name]; err == nil && (!ok || got.Value != want) {
						t.Errorf("%s: got %s; want score %s = %g", c.Name, pretty(v), name, want)
					}
				}
			}
		},
	},
	{
		Name:   "nothing to judge is never a pass",
		Guards: "an empty folder, after a failed collection, that counts as solved",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			empty := Case{Request: verifier.Request{Config: s.cases()[0].Request.Config}, Files: map[string]string{"task.json": `{"name": "kit/empty", "stages": [{"name": "main"}]}`}}
			v, err := s.Verifier.Verify(ctx, s.request(ctx, t, &empty), ignore)
			if err == nil && v.Decision == verifier.Pass {
				t.Errorf("got %s for a view without an attempt", pretty(v))
			}
		},
	},
	{
		Name:   "the same work gets the same verdict",
		Guards: "state kept from one attempt to the next",
		Skip: func(s Subject) string {
			if s.Traits.Needs != verifier.NeedsNone || len(s.Traits.Models) > 0 {
				return "it works in a sandbox or asks a model"
			}
			return ""
		},
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			c := s.cases()[0]
			r := s.request(ctx, t, &c)
			first, err1 := s.Verifier.Verify(ctx, r, ignore)
			second, err2 := s.Verifier.Verify(ctx, r, ignore)
			if (err1 == nil) != (err2 == nil) || !reflect.DeepEqual(first, second) {
				t.Errorf("first: %s; then: %s", got(first, err1), got(second, err2))
			}
		},
	},
	{
		Name:   "each of many concurrent requests gets its own answer",
		Guards: "verdicts that are mixed up between attempts of a busy run",
		Run:    many,
	},
	{
		Name:   "a handoff contains nothing of the references",
		Guards: "the expected answer that reaches the agent through the simulated user",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			const marker = "MARKER-4f1c-of-the-references"
			c := s.cases()[0]
			files := map[string]string{"references/kit-marker.txt": marker + "\n"}
			maps.Copy(files, c.Files)
			c.Files = files
			v, err := s.Verifier.Verify(ctx, s.request(ctx, t, &c), ignore)
			if err == nil && strings.Contains(v.Handoff, marker) {
				t.Errorf("handoff holds what stands in references/: %q", v.Handoff)
			}
		},
	},
	{
		Name:   "a verifier that judges between turns answers there",
		Guards: "an announced ability that does not exist",
		Skip: func(s Subject) string {
			if !s.Traits.Rounds {
				return "it does not judge between turns"
			}
			return ""
		},
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			c := s.cases()[0]
			r := s.request(ctx, t, &c)
			r.Round, r.RoundsLeft = 1, 2
			v, err := s.Verifier.Verify(ctx, r, ignore)
			if err != nil {
				t.Fatalf("in round 1: %v", err)
			}
			if err = shape(&r, &v); err != nil {
				t.Errorf("%s", got(v, err))
			}
			if s.Traits.Needs != verifier.NeedsOwn {
				return
			}
			r.Round, r.RoundsLeft, r.Earlier = 2, 1, []verifier.Verdict{v} // in the same sandbox
			if _, err = s.Verifier.Verify(ctx, r, ignore); err != nil {
				t.Errorf("in round 2, in the sandbox of round 1: %v", err)
			}
		},
	},
	{
		Name:   "it can judge with the setting that gives it its own sandbox",
		Guards: "an announced setting with which every attempt is an error",
		Skip: func(s Subject) string {
			switch {
			case len(s.Traits.OwnWith) == 0:
				return "no setting gives it its own sandbox"
			case s.Shell == nil:
				return "that is a sandbox, and none can be made here: berth doctor says why"
			}
			return ""
		},
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			for name, text := range s.Traits.OwnWith {
				c := s.cases()[0]
				config, err := with(cmp.Or(string(c.Request.Config), string(s.Config)), name, text)
				if err != nil {
					t.Fatalf("the configuration of %s: %v", c.Name, err)
				}
				c.Request.Config = config
				r := s.request(ctx, t, &c)
				if v, err := s.Verifier.Verify(ctx, r, ignore); err != nil {
					t.Errorf("%s = %q: %v", name, text, err)
				} else if err = shape(&r, &v); err != nil {
					t.Errorf("%s = %q: %s", name, text, got(v, err))
				}
			}
		},
	},
	{
		Name:   "it has the capabilities that it announces",
		Guards: "a capability in Describe that fails when it is used",
		Skip: func(s Subject) string {
			if !slices.Contains(s.Capabilities, verifier.CapabilityRewrite) {
				return "it announces no capability of the kit"
			}
			return ""
		},
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			w, ok := s.Verifier.(verifier.Rewriter)
			if !ok {
				t.Fatalf("announces %q and has no Rewrite", verifier.CapabilityRewrite)
			}
			c := s.cases()[0]
			r := s.request(ctx, t, &c)
			r.Round, r.RoundsLeft = 1, 1
			if _, err := w.Rewrite(ctx, r, verifier.Verdict{Decision: verifier.Continue, Handoff: "continue"}, "please continue"); err != nil {
				t.Errorf("rewrite: %v", err)
			}
		},
	},
}

// with returns a configuration with one more attribute.
func with(config, name, text string) (json.RawMessage, error) {
	all := map[string]any{}
	if config != "" {
		if err := json.Unmarshal([]byte(config), &all); err != nil {
			return nil, err
		}
	}
	all[name] = text
	return json.Marshal(all)
}

// judges wants a verdict of every work whose author knows it, and one at least.
func judges(ctx context.Context, t *conformance.T, s Subject) {
	verdicts := 0
	var last error
	for _, c := range s.cases() {
		_, err := s.Verifier.Verify(ctx, s.request(ctx, t, &c), ignore)
		switch {
		case err == nil:
			verdicts++
		case c.Want != "":
			t.Errorf("%s: no verdict: %v; want %s", c.Name, err, c.Want)
		}
		last = errors.Join(last, err)
	}
	if verdicts > 0 {
		return
	}
	if len(s.Cases) == 0 {
		t.Fatalf("no verdict on the example of the kit: %v. If the verifier needs other files, give it cases: --case DIR of berth plugin test, or Cases of the kit in Go", last)
	}
	t.Errorf("no verdict on any of %d cases: %v", len(s.Cases), last)
}

// many sends 16 requests at once and compares each verdict with that of a
// single request.
func many(ctx context.Context, t *conformance.T, s Subject) {
	cs := s.cases()
	if s.Traits.Needs != verifier.NeedsNone && len(cs) > 2 {
		cs = cs[:2] // each case needs its own sandboxes
	}
	alone := make([]verifier.Decision, len(cs))
	for i := range cs {
		v, err := s.Verifier.Verify(ctx, s.request(ctx, t, &cs[i]), ignore)
		if err != nil {
			v.Decision = "error"
		}
		alone[i] = v.Decision
	}
	requests := make([]verifier.Request, 16)
	for i := range requests {
		requests[i] = s.request(ctx, t, &cs[i%len(cs)])
	}
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() {
			v, err := s.Verifier.Verify(ctx, requests[i], ignore)
			if err != nil {
				v.Decision = "error"
			}
			if want := alone[i%len(cs)]; v.Decision != want {
				t.Errorf("%s: among others %q (%v), alone %q", cs[i%len(cs)].Name, v.Decision, err, want)
			}
		})
	}
	all.Wait()
}
