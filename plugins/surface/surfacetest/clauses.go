package surfacetest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/surface/host"
	"github.com/berth-eval/berth/plugins/task"
)

type clause = conformance.Clause[Subject]

var needsClauses = []clause{
	{
		Name: "needs are the same each time", Guards: "a plan that says something else than the attempt",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			a, err := json.Marshal(s.needs(ctx, t))
			b, again := json.Marshal(s.needs(ctx, t))
			if err != nil || again != nil || string(a) != string(b) {
				t.Errorf("first %s, then %s", a, b)
			}
		},
	},
	{
		Name: "needs name actions that can be used, and kinds", Guards: "an action whose arguments cannot be checked",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			n := s.needs(ctx, t)
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
		},
	},
}

// openClauses returns the clauses that need an open surface.
func openClauses() []clause {
	all := slices.Concat(seeClauses, actClauses, endClauses)
	for i := range all {
		all[i].Skip = unfit
	}
	return all
}

var seeClauses = []clause{
	{
		Name: "each surface has its own id", Guards: "attempts that work on each other's surface",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			if a, b := s.opened(ctx, t), s.opened(ctx, t); a.id == b.id || a.id == "" {
				t.Errorf("the ids are %q and %q", a.id, b.id)
			}
		},
	},
	{
		Name: "a reset shows something", Guards: "an agent that begins blind",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			if o := s.opened(ctx, t).reset(ctx, t, 1); o.Text == "" && len(o.JSON) == 0 && len(o.Frames) == 0 {
				t.Errorf("the observation is empty")
			}
		},
	},
	{
		Name: "the same level and seed give the same state", Guards: "repetitions that cannot be compared",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			a, b := s.opened(ctx, t).reset(ctx, t, 7), s.opened(ctx, t).reset(ctx, t, 7)
			if !same(a, b) {
				t.Errorf("first %s, then %s", brief(a), brief(b))
			}
		},
	},
	{
		Name: "observing changes nothing", Guards: "an agent that changes the world by looking",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			o := s.open(ctx, t)
			a := o.observe(ctx, t)
			for range 3 {
				if b := o.observe(ctx, t); !same(a, b) {
					t.Fatalf("first %s, then %s", brief(a), brief(b))
				}
			}
		},
	},
	{
		Name: "an observation has only what was asked for", Guards: "pictures that cost tokens although they were not asked for",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			o := s.open(ctx, t)
			for _, kind := range o.needs.Observations {
				seen := o.observe(ctx, t, kind)
				var parts map[string]json.RawMessage
				_ = json.Unmarshal(seen.JSON, &parts) // checked before
				if seen.Text != "" && kind != environment.KindText {
					t.Errorf("asked for %q, it has a text", kind)
				}
				for name := range parts {
					if name != kind {
						t.Errorf("asked for %q, its structure has %q", kind, name)
					}
				}
				for _, f := range seen.Frames {
					if f.Name != kind {
						t.Errorf("asked for %q, it has a frame %q", kind, f.Name)
					}
				}
			}
		},
	},
	{
		Name: "what is shown can be used", Guards: "frames of another type, and files outside of their folder",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			o := s.open(ctx, t)
			seen := o.observe(ctx, t) // which checks it
			var parts map[string]json.RawMessage
			_ = json.Unmarshal(seen.JSON, &parts) // checked before
			names := map[string]bool{}
			for name := range parts {
				names[name] = true
			}
			for _, f := range seen.Frames {
				names[f.Name] = true
			}
			for name := range names {
				if !slices.Contains(o.needs.Observations, name) {
					t.Errorf("it shows %q, which its needs do not name: %q", name, o.needs.Observations)
				}
			}
		},
	},
}

var actClauses = []clause{
	{
		Name: "an action that fits is done", Guards: "a surface on which nothing can be done", Proof: true,
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			o := s.open(ctx, t)
			if step := o.act(ctx, t); step.Error != "" {
				t.Errorf("%+v was refused: %s", o.fitting(), step.Error)
			}
		},
	},
	{
		Name: "an unknown action is a step with an error", Guards: "a mistake of the agent that ends the attempt",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			o := s.open(ctx, t)
			step, err := o.Act(ctx, o.id, environment.Call{Name: "no-such-action", Arguments: json.RawMessage("{}")}, nil)
			if err != nil || step.Error == "" {
				t.Errorf("got %+v, %v", step, err)
			}
		},
	},
	{
		Name: "arguments that do not fit are a step with an error", Guards: "a surface that does not check its arguments itself",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			o := s.open(ctx, t)
			for _, a := range o.needs.Actions {
				if len(a.Schema) == 0 {
					continue
				}
				step, err := o.Act(ctx, o.id, environment.Call{Name: a.Name, Arguments: json.RawMessage(`{"no-such-argument":{"a":[1]}}`)}, nil)
				if err != nil {
					t.Errorf("%s: the call failed: %v", a.Name, err)
				}
				if e, ok := Example(a.Schema); ok && string(e) != "{}" && step.Error == "" {
					t.Errorf("%s without the arguments that it requires was done", a.Name)
				}
			}
		},
	},
	{
		Name: "an action that is refused changes nothing", Guards: "an agent that gains something by wrong actions",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			o := s.open(ctx, t)
			before := o.observe(ctx, t)
			step, err := o.Act(ctx, o.id, environment.Call{Name: "no-such-action", Arguments: json.RawMessage("{}")}, nil)
			if err != nil || step.Error == "" {
				t.Fatalf("got %+v, %v", step, err)
			}
			if after := o.observe(ctx, t); !same(before, after) {
				t.Errorf("before %s, then %s", brief(before), brief(after))
			}
		},
	},
	{
		Name: "a reset after actions gives the first state again", Guards: "a stage that begins where another ended",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			o := s.opened(ctx, t)
			first := o.reset(ctx, t, 3)
			o.act(ctx, t)
			if again := o.reset(ctx, t, 3); !same(first, again) {
				t.Errorf("first %s, then %s", brief(first), brief(again))
			}
		},
	},
	{
		Name: "surfaces do not share their state", Guards: "attempts that disturb each other",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			a, b := s.open(ctx, t), s.open(ctx, t)
			before, mine := b.observe(ctx, t), a.observe(ctx, t)
			a.act(ctx, t)
			if same(mine, a.observe(ctx, t)) {
				t.Logf("the action of the kit changed nothing that is seen")
			}
			if after := b.observe(ctx, t); !same(before, after) {
				t.Errorf("after an action on another surface it shows %s instead of %s", brief(after), brief(before))
			}
		},
	},
	{
		Name: "many concurrent calls are answered", Guards: "a surface that holds up another",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			const many = 8
			results := make(chan error, many)
			for range many {
				o := s.open(ctx, t)
				go func() {
					_, err := o.Observe(ctx, o.id, nil)
					results <- err
				}()
			}
			for range many {
				if err := <-results; err != nil {
					t.Errorf("observe: %v", err)
				}
			}
		},
	},
	{
		Name: "after an action that was cancelled the surface works", Guards: "a turn that is cut off and leaves nothing to capture",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			o := s.open(ctx, t)
			c := o.fitting()
			if c == nil {
				t.Fatalf("the kit cannot make arguments for any action")
			}
			cut, cancel := context.WithTimeout(ctx, 50*time.Millisecond) // many are done before that
			defer cancel()
			_, _ = o.Act(cut, o.id, *c, nil) // it may be done or not
			o.observe(ctx, t)
			if again := o.reset(ctx, t, 1); !same(again, o.observe(ctx, t)) {
				t.Errorf("a reset and the observation after it differ")
			}
		},
	},
}

var endClauses = []clause{
	{
		Name: "a call with an unknown id is an error", Guards: "a call that works on another surface",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			o := s.open(ctx, t)
			for what, err := range o.calls(ctx, "no-such-surface") {
				if !errors.Is(err, environment.ErrNoSandbox) {
					t.Errorf("%s: got %v, want NO_SANDBOX", what, err)
				}
			}
		},
	},
	{
		Name: "a surface can be closed twice", Guards: "a cleanup that fails because it was done already",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			o := s.open(ctx, t)
			if err := errors.Join(o.CloseSurface(ctx, o.id), o.CloseSurface(ctx, o.id), o.CloseSurface(ctx, "no-such-surface")); err != nil {
				t.Errorf("close: %v", err)
			}
		},
	},
	{
		Name: "a closed surface can no longer be used", Guards: "a surface that cannot be freed",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			o := s.open(ctx, t)
			if err := o.CloseSurface(ctx, o.id); err != nil {
				t.Fatalf("close: %v", err)
			}
			for what, err := range o.calls(ctx, o.id) {
				if !errors.Is(err, environment.ErrNoSandbox) {
					t.Errorf("%s: got %v, want NO_SANDBOX", what, err)
				}
			}
		},
	},
	{
		Name: "an unknown capture is an error, and writes nothing", Guards: "a verifier that judges something else",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			o := s.open(ctx, t)
			dir := t.TempDir()
			files, err := o.Capture(ctx, o.id, environment.Capture{Name: "no-such-capture", Folder: dir})
			if err == nil || !empty(dir) {
				t.Errorf("got %q, %v; the folder is empty: %v", files, err, empty(dir))
			}
		},
	},
}

// calls makes each call with an id, and returns the errors.
func (o *opened) calls(ctx context.Context, id string) map[string]error {
	c := environment.Call{Name: "no-such-action", Arguments: json.RawMessage("{}")}
	_, reset := o.Reset(ctx, id, environment.Start{Level: o.level, Seed: 1})
	_, observe := o.Observe(ctx, id, nil)
	_, act := o.Act(ctx, id, c, nil)
	_, capture := o.Capture(ctx, id, environment.Capture{Name: "x", Folder: o.frames})
	return map[string]error{"reset": reset, "observe": observe, "act": act, "capture": capture}
}
