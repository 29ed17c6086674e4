package surfacetest

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/surface/host"
	"github.com/berth-eval/berth/plugins/task"
)

type clause = conformance.Clause[Subject]

var needsClauses = []clause{
	conformance.New("needs are the same each time", "a plan that says something else than the attempt", func(t *conformance.T, s Subject) {
		a, err := json.Marshal(s.needs(t))
		b, again := json.Marshal(s.needs(t))
		if err != nil || again != nil || string(a) != string(b) {
			t.Errorf("first %s, then %s", a, b)
		}
	}),
	conformance.New("needs name actions that can be used, and kinds", "an action whose arguments cannot be checked", func(t *conformance.T, s Subject) {
		n := s.needs(t)
		if len(n.Actions) == 0 {
			t.Errorf("there is no action")
		}
		for _, p := range host.Problems(n, &task.Surface{}) {
			t.Errorf("%s", p)
		}
		for _, a := range n.Actions {
			if a.Doc == "" {
				t.Errorf("action %q has no doc: a model has to know what it does", a.Name)
			}
		}
		kinds := slices.Compact(slices.Sorted(slices.Values(n.Observations)))
		if len(kinds) == 0 || len(kinds) != len(n.Observations) || slices.Contains(kinds, "") {
			t.Errorf("the kinds of observation are %q: name each one once", n.Observations)
		}
	}),
}

var seeClauses = []clause{
	conformance.New("each surface has its own id", "attempts that work on each other's surface", func(t *conformance.T, s Subject) {
		if a, b := s.opened(t), s.opened(t); a.id == b.id || a.id == "" {
			t.Errorf("the ids are %q and %q", a.id, b.id)
		}
	}),
	conformance.New("a reset shows something", "an agent that begins blind", func(t *conformance.T, s Subject) {
		if o := s.opened(t).reset(1); o.Text == "" && len(o.JSON) == 0 && len(o.Frames) == 0 {
			t.Errorf("the observation is empty")
		}
	}),
	conformance.New("the same level and seed give the same state", "repetitions that cannot be compared", func(t *conformance.T, s Subject) {
		a, b := s.opened(t), s.opened(t)
		a.equal(a.reset(7), b.reset(7))
	}),
	conformance.New("observing changes nothing", "an agent that changes the world by looking", func(t *conformance.T, s Subject) {
		o := s.open(t)
		first := o.observe()
		for range 3 {
			o.equal(first, o.observe())
		}
	}),
	conformance.New("an observation has only what was asked for", "pictures that cost tokens although they were not asked for", func(t *conformance.T, s Subject) {
		o := s.open(t)
		for _, kind := range o.needs.Observations {
			seen := o.observe(kind)
			if seen.Text != "" && kind != environment.KindText {
				t.Errorf("asked for %q, it has a text", kind)
			}
			for _, name := range shown(seen) {
				if name != kind {
					t.Errorf("asked for %q, it shows %q", kind, name)
				}
			}
		}
	}),
	conformance.New("what is shown can be used", "frames of another type, and files outside of their folder", func(t *conformance.T, s Subject) {
		o := s.open(t)
		for _, name := range shown(o.observe()) { // observe checks it
			if !slices.Contains(o.needs.Observations, name) {
				t.Errorf("it shows %q, which its needs do not name: %q", name, o.needs.Observations)
			}
		}
	}),
}

// shown are the names of the frames and of the parts of the structure.
func shown(o environment.Observation) (names []string) {
	var parts map[string]json.RawMessage
	_ = json.Unmarshal(o.JSON, &parts) // checked before
	for name := range parts {
		names = append(names, name)
	}
	for _, f := range o.Frames {
		names = append(names, f.Name)
	}
	return names
}

var actClauses = []clause{
	conformance.New("an action that fits is done", "a surface on which nothing can be done", func(t *conformance.T, s Subject) {
		o := s.open(t)
		if step := o.act(); step.Error != "" {
			t.Errorf("%+v was refused: %s", o.call(), step.Error)
		}
	}).AsProof(),
	conformance.New("arguments that do not fit are a step with an error", "a surface that does not check its arguments itself", func(t *conformance.T, s Subject) {
		o := s.open(t)
		for _, a := range o.needs.Actions {
			if len(a.Schema) == 0 {
				continue
			}
			step, err := o.Act(t.Context(), o.id, environment.Call{Name: a.Name, Arguments: json.RawMessage(`{"no-such-argument":{"a":[1]}}`)}, nil)
			t.Check(a.Name+": the call", err)
			if e, ok := Example(a.Schema); ok && string(e) != "{}" && step.Error == "" {
				t.Errorf("%s without the arguments that it requires was done", a.Name)
			}
		}
	}),
	conformance.New("an unknown action is a step with an error, and changes nothing",
		"a mistake of the agent that ends the attempt, or gains something", func(t *conformance.T, s Subject) {
			o := s.open(t)
			before := o.observe()
			step, err := o.Act(t.Context(), o.id, unknown, nil)
			if err != nil || step.Error == "" {
				t.Fatalf("got %+v, %v", step, err)
			}
			o.equal(before, o.observe())
		}),
	conformance.New("a reset after actions gives the first state again", "a stage that begins where another ended", func(t *conformance.T, s Subject) {
		o := s.opened(t)
		first := o.reset(3)
		o.act()
		o.equal(first, o.reset(3))
	}),
	conformance.New("surfaces do not share their state", "attempts that disturb each other", func(t *conformance.T, s Subject) {
		a, b := s.open(t), s.open(t)
		before := b.observe()
		a.act()
		a.equal(before, b.observe())
	}),
	conformance.New("many concurrent calls are answered", "a surface that holds up another", func(t *conformance.T, s Subject) {
		const many = 8
		results := make(chan error, many)
		for range many {
			o := s.open(t)
			go func() {
				_, err := o.Observe(t.Context(), o.id, nil)
				results <- err
			}()
		}
		for range many {
			t.Check("observe", <-results)
		}
	}),
	conformance.New("after an action that was cancelled the surface works", "a turn that is cut off and leaves nothing to capture", func(t *conformance.T, s Subject) {
		o := s.open(t)
		cut, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // many are done before that
		defer cancel()
		_, _ = o.Act(cut, o.id, o.call(), nil) // it may be done or not
		o.observe()
		o.equal(o.reset(1), o.observe())
	}),
}

var endClauses = []clause{
	conformance.New("a call with an unknown id is an error",
		"a call that works on another surface", func(t *conformance.T, s Subject) { s.open(t).without("no-such-surface") }),
	conformance.New("a surface can be closed twice", "a cleanup that fails because it was done already", func(t *conformance.T, s Subject) {
		o := s.open(t)
		for _, id := range []string{o.id, o.id, "no-such-surface"} {
			t.Check("close "+id, o.CloseSurface(t.Context(), id))
		}
	}),
	conformance.New("a closed surface can no longer be used", "a surface that cannot be freed", func(t *conformance.T, s Subject) {
		o := s.open(t)
		t.Must("close", o.CloseSurface(t.Context(), o.id))
		o.without(o.id)
	}),
	conformance.New("an unknown capture is an error, and writes nothing", "a verifier that judges something else", func(t *conformance.T, s Subject) {
		o, dir := s.open(t), t.TempDir()
		t.Unchanged(dir, func() {
			if files, err := o.Capture(t.Context(), o.id, environment.Capture{Name: "no-such-capture", Folder: dir}); err == nil {
				t.Errorf("got %q; want an error", files)
			}
		})
	}),
}
