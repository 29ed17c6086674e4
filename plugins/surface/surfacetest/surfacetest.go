// Package surfacetest is the conformance kit of surfaces, in process and through
// a built plugin.
//
// It must not know any kind of surface: it makes the arguments of actions from
// their schemas.
package surfacetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/surface/host"
)

// Subject is a surface under test.
type Subject struct {
	Surface environment.Surface
	// Request is what Needs is asked, with the configuration, and the settings
	// and level of a task.
	Request environment.SurfaceRequest
	// Shell opens a shell in a sandbox for the surface, until the clause ends;
	// nil: there are no sandboxes, and surfaces that need one are not tried.
	Shell func(t *conformance.T) (address string, revoke func())
}

// Run runs every clause as a subtest. Call it from the plugin's own tests, once
// in process and once through the built binary.
func Run(t *testing.T, s Subject) {
	t.Helper()
	conformance.Test(t, s, Clauses())
}

// Clauses returns all clauses of the kit in the order in which they run.
func Clauses() []conformance.Clause[Subject] {
	open := slices.Concat(seeClauses, actClauses, endClauses)
	for i := range open {
		open[i].Skip = unfit
	}
	return append(slices.Clone(needsClauses), open...)
}

// needs asks what the surface needs.
func (s *Subject) needs(t *conformance.T) environment.SurfaceNeeds {
	n, err := s.Surface.Needs(t.Context(), s.Request)
	t.Must("needs", err)
	if len(n.Refusals) > 0 {
		t.Fatalf("it refuses to be opened: %s", n.Refusals[0])
	}
	return n
}

// unfit says why a surface cannot be opened here.
func unfit(s Subject) string {
	ctx, cancel := context.WithTimeout(context.Background(), conformance.Patience(10*time.Second))
	defer cancel()
	n, err := s.Surface.Needs(ctx, s.Request)
	switch {
	case err != nil:
		return "" // the clauses say so
	case n.Shell && s.Shell == nil:
		return "the surface needs a sandbox, and there is no environment for it"
	case len(n.Ports) > 0:
		return "the surface needs ports of a sandbox, which the kit does not have"
	}
	return ""
}

// opened is a surface that is open until the clause ends.
type opened struct {
	environment.Surface

	t      *conformance.T
	id     string
	needs  environment.SurfaceNeeds
	frames string
	level  string
}

// opened opens a surface.
func (s *Subject) opened(t *conformance.T) *opened {
	o := &opened{Surface: s.Surface, t: t, needs: s.needs(t), frames: t.TempDir(), level: s.Request.Level}
	spec := environment.SurfaceSpec{
		Config: s.Request.Config, Settings: s.Request.Settings, Frames: o.frames, Scratch: t.TempDir(), Workdir: "/app", Ports: map[string]string{},
	}
	if o.needs.Shell {
		spec.Shell, _ = s.Shell(t)
	}
	var err error
	o.id, err = s.Surface.OpenSurface(t.Context(), spec)
	o.must("open", err)
	t.Cleanup(func(ctx context.Context) { _ = s.Surface.CloseSurface(ctx, o.id) }) // a clause is about it
	return o
}

// open opens a surface and resets it.
func (s *Subject) open(t *conformance.T) *opened {
	o := s.opened(t)
	o.reset(1)
	return o
}

// must ends the clause where err is set. A surface that refuses lacks something on
// this machine, such as a program in the sandbox, and could not be tried.
func (o *opened) must(what string, err error) {
	if errors.Is(err, environment.ErrRefused) {
		o.t.Skipf("%s: %v", what, err)
	}
	o.t.Must(what, err)
}

func (o *opened) reset(seed int64) environment.Observation {
	seen, err := o.Reset(o.t.Context(), o.id, environment.Start{Level: o.level, Seed: seed})
	o.must("reset", err)
	return o.checked(seen)
}

func (o *opened) observe(want ...string) environment.Observation {
	seen, err := o.Observe(o.t.Context(), o.id, want)
	o.must(fmt.Sprintf("observe %q", want), err)
	return o.checked(seen)
}

// checked checks an observation as the core does, and reads its frames.
func (o *opened) checked(seen environment.Observation) environment.Observation {
	err := host.Check(seen)
	for i := range seen.Frames {
		if err == nil {
			err = host.Load(&seen.Frames[i], o.frames)
		}
	}
	o.t.Must("an observation", err)
	return seen
}

// call returns a call whose arguments fit.
func (o *opened) call() environment.Call {
	for _, a := range o.needs.Actions {
		if arguments, ok := Example(a.Schema); ok {
			return environment.Call{Name: a.Name, Arguments: arguments}
		}
	}
	o.t.Fatalf("the kit cannot make arguments for any action: give one a schema with types, minima and enumerations only")
	return environment.Call{}
}

// act performs an action that fits.
func (o *opened) act() environment.Step {
	c := o.call()
	step, err := o.Act(o.t.Context(), o.id, c, nil)
	o.must(fmt.Sprintf("act %s(%s)", c.Name, c.Arguments), err)
	step.Observation = o.checked(step.Observation)
	return step
}

// unknown is an action that no surface has.
var unknown = environment.Call{Name: "no-such-action", Arguments: json.RawMessage("{}")}

// without wants each call with an id of no surface to fail.
func (o *opened) without(id string) {
	ctx := o.t.Context()
	_, reset := o.Reset(ctx, id, environment.Start{Level: o.level, Seed: 1})
	_, observe := o.Observe(ctx, id, nil)
	_, act := o.Act(ctx, id, unknown, nil)
	_, capture := o.Capture(ctx, id, environment.Capture{Name: "x", Folder: o.frames})
	for what, err := range map[string]error{"reset": reset, "observe": observe, "act": act, "capture": capture} {
		if !errors.Is(err, environment.ErrNoSandbox) {
			o.t.Errorf("%s: got %v, want NO_SANDBOX", what, err)
		}
	}
}

// equal fails the clause unless two observations show the same state.
func (o *opened) equal(a, b environment.Observation) {
	if !same(a, b) {
		o.t.Errorf("first %s, then %s", brief(a), brief(b))
	}
}

// same reports whether two observations show the same state.
func same(a, b environment.Observation) bool {
	return a.Text == b.Text && reflect.DeepEqual(state(a.JSON), state(b.JSON)) &&
		slices.EqualFunc(a.Frames, b.Frames, func(x, y environment.Frame) bool { return x.Name == y.Name && bytes.Equal(x.Data, y.Data) })
}

// state is the structure of an observation without what differs each time.
func state(raw json.RawMessage) (v any) {
	_ = json.Unmarshal(raw, &v) // nothing, or checked before
	if parts, ok := v.(map[string]any); ok {
		for _, kind := range []string{environment.KindElapsed, environment.KindAction, environment.KindFailure} {
			delete(parts, kind)
		}
	}
	return v
}

// brief describes an observation in a message.
func brief(o environment.Observation) string {
	b, _ := json.Marshal(o) // checked before
	return fmt.Sprintf("%.500s", b)
}

// Example returns arguments that fit a schema, if it is made of types, minima,
// enumerations and objects.
func Example(raw json.RawMessage) (json.RawMessage, bool) {
	if len(raw) == 0 {
		return json.RawMessage("{}"), true
	}
	v, ok := example(raw, 0)
	if !ok {
		return nil, false
	}
	b, err := json.Marshal(v)
	return b, err == nil
}

func example(raw json.RawMessage, depth int) (any, bool) {
	var s struct {
		Type       string                     `json:"type"`
		Enum       []any                      `json:"enum"`
		Const      any                        `json:"const"`
		Minimum    *float64                   `json:"minimum"`
		MinItems   int                        `json:"minItems"`
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if json.Unmarshal(raw, &s) != nil || depth > 10 || s.MinItems > 0 {
		return nil, false
	}
	switch {
	case s.Const != nil:
		return s.Const, true
	case len(s.Enum) > 0:
		return s.Enum[0], true
	}
	switch s.Type {
	case "object":
		object := map[string]any{}
		for _, name := range s.Required {
			v, ok := example(s.Properties[name], depth+1)
			if !ok {
				return nil, false
			}
			object[name] = v
		}
		return object, true
	case "string":
		return "a", true
	case "integer", "number":
		if s.Minimum != nil {
			return *s.Minimum, true
		}
		return 0, true
	case "boolean":
		return false, true
	case "array":
		return []any{}, true
	default:
		return nil, false
	}
}
