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
	"os"
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
	Shell func(ctx context.Context, t *conformance.T) (address string)
}

// Run runs every clause as a subtest. Call it from the plugin's own tests, once
// in process and once through the built binary.
func Run(t *testing.T, s Subject) {
	t.Helper()
	conformance.Test(t, s, Clauses())
}

// Clauses returns all clauses of the kit in the order in which they run.
func Clauses() []conformance.Clause[Subject] {
	return append(append([]conformance.Clause[Subject]{}, needsClauses...), openClauses()...)
}

// needs asks what the surface needs.
func (s *Subject) needs(ctx context.Context, t *conformance.T) environment.SurfaceNeeds {
	n, err := s.Surface.Needs(ctx, s.Request)
	if err != nil {
		t.Fatalf("needs: %v", err)
	}
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

// must ends the clause where err is set. A surface that refuses lacks something on
// this machine, such as a program in the sandbox, and could not be tried.
func must(t *conformance.T, what string, err error) {
	switch {
	case errors.Is(err, environment.ErrRefused):
		t.Skipf("%s: %v", what, err)
	case err != nil:
		t.Fatalf("%s: %v", what, err)
	}
}

// opened is a surface that is open until the clause ends.
type opened struct {
	environment.Surface

	id     string
	needs  environment.SurfaceNeeds
	frames string
	level  string
}

// open opens a surface and resets it.
func (s *Subject) open(ctx context.Context, t *conformance.T) *opened {
	o := s.opened(ctx, t)
	o.reset(ctx, t, 1)
	return o
}

// opened opens a surface.
func (s *Subject) opened(ctx context.Context, t *conformance.T) *opened {
	o := &opened{Surface: s.Surface, needs: s.needs(ctx, t), frames: t.TempDir(), level: s.Request.Level}
	spec := environment.SurfaceSpec{
		Config: s.Request.Config, Settings: s.Request.Settings, Frames: o.frames, Scratch: t.TempDir(), Workdir: "/app", Ports: map[string]string{},
	}
	if o.needs.Shell {
		spec.Shell = s.Shell(ctx, t)
	}
	var err error
	o.id, err = s.Surface.OpenSurface(ctx, spec)
	must(t, "open", err)
	t.Cleanup(func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), conformance.Patience(10*time.Second))
		defer cancel()
		_ = s.Surface.CloseSurface(end, o.id) // a clause is about it
	})
	return o
}

func (o *opened) reset(ctx context.Context, t *conformance.T, seed int64) environment.Observation {
	seen, err := o.Reset(ctx, o.id, environment.Start{Level: o.level, Seed: seed})
	must(t, "reset", err)
	return o.checked(t, seen)
}

func (o *opened) observe(ctx context.Context, t *conformance.T, want ...string) environment.Observation {
	seen, err := o.Observe(ctx, o.id, want)
	must(t, fmt.Sprintf("observe %q", want), err)
	return o.checked(t, seen)
}

// checked checks an observation as the core does, and reads its frames.
func (o *opened) checked(t *conformance.T, seen environment.Observation) environment.Observation {
	if err := host.Check(seen); err != nil {
		t.Fatalf("%v", err)
	}
	for i := range seen.Frames {
		if err := host.Load(&seen.Frames[i], o.frames); err != nil {
			t.Fatalf("%v", err)
		}
	}
	return seen
}

// fitting returns a call whose arguments fit, or nil.
func (o *opened) fitting() *environment.Call {
	for _, a := range o.needs.Actions {
		if arguments, ok := Example(a.Schema); ok {
			return &environment.Call{Name: a.Name, Arguments: arguments}
		}
	}
	return nil
}

// act performs an action that fits.
func (o *opened) act(ctx context.Context, t *conformance.T) environment.Step {
	c := o.fitting()
	if c == nil {
		t.Fatalf("the kit cannot make arguments for any action: give one a schema with types, minima and enumerations only")
	}
	step, err := o.Act(ctx, o.id, *c, nil)
	must(t, fmt.Sprintf("act %s(%s)", c.Name, c.Arguments), err)
	step.Observation = o.checked(t, step.Observation)
	return step
}

// same reports whether two observations show the same state.
func same(a, b environment.Observation) bool {
	if a.Text != b.Text || !sameJSON(a.JSON, b.JSON) || len(a.Frames) != len(b.Frames) {
		return false
	}
	for i := range a.Frames {
		if a.Frames[i].Name != b.Frames[i].Name || !bytes.Equal(a.Frames[i].Data, b.Frames[i].Data) {
			return false
		}
	}
	return true
}

func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return len(a) == 0 && len(b) == 0
	}
	for _, v := range []any{x, y} {
		if parts, ok := v.(map[string]any); ok {
			for _, kind := range []string{environment.KindElapsed, environment.KindAction, environment.KindFailure} {
				delete(parts, kind)
			}
		}
	}
	p, err := json.Marshal(x)
	q, other := json.Marshal(y)
	return err == nil && other == nil && bytes.Equal(p, q)
}

// brief describes an observation in a message.
func brief(o environment.Observation) string {
	b, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	if len(b) > 500 {
		b = append(b[:500:500], "…"...)
	}
	return string(b)
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

// empty reports whether a folder is empty.
func empty(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) == 0
}
