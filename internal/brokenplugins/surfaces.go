package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/surface/counter"
)

// game is a counter of which a fault changes some calls.
type game struct {
	counter.Game
	badly

	calls atomic.Int64
}

// badly is how a game is broken; nil fields are as they should be.
type badly struct {
	needs   func(g *game, n *environment.SurfaceNeeds)
	open    func(id string) string
	reset   func(g *game, id string, o *environment.Observation)
	observe func(g *game, id string, o *environment.Observation)
	want    func([]string) []string
	act     func(g *game, ctx context.Context, id string, c *environment.Call, s *environment.Step)
	id      func(g *game, id string) string
	capture func(folder string) []string
	close   func(g *game) error
}

func on(how badly) func(plugins.Info) plugins.Plugin {
	return func(i plugins.Info) plugins.Plugin {
		return plugins.Environment(i, nil, environment.SurfaceOnly(&game{badly: how}))
	}
}

func one(environment.Call) environment.Call {
	return environment.Call{Name: "add", Arguments: json.RawMessage(`{"n":1}`)}
}

// surfaces are surfaces that are broken in one way.
var surfaces = table{
	"restless": {"needs something else each time", on(badly{needs: func(g *game, n *environment.SurfaceNeeds) { n.MemoryMiB = g.calls.Add(1) }})},
	"unschooled": {"has an action whose schema is none", on(badly{needs: func(_ *game, n *environment.SurfaceNeeds) {
		n.Actions[0].Schema = json.RawMessage(`{"type":"dog"}`)
	}})},
	"kindless": {"names no kind of observation", on(badly{needs: func(_ *game, n *environment.SurfaceNeeds) { n.Observations = nil }})},
	"sole":     {"has one surface for all", on(badly{open: func(string) string { return "counter-1" }})},
	"blank": {"shows nothing after a reset", on(badly{reset: func(_ *game, _ string, o *environment.Observation) {
		*o = environment.Observation{}
	}})},
	"dicey": {"begins in another state each time", on(badly{reset: func(g *game, id string, o *environment.Observation) {
		for range g.calls.Add(1) % 5 {
			_, _ = g.Game.Act(context.Background(), id, one(environment.Call{}), nil)
		}
		*o, _ = g.Game.Observe(context.Background(), id, nil)
	}})},
	"nudging": {"counts when it is looked at", on(badly{observe: func(g *game, id string, _ *environment.Observation) {
		_, _ = g.Game.Act(context.Background(), id, one(environment.Call{}), nil)
	}})},
	"lavish": {"shows all that it has", on(badly{want: func([]string) []string { return nil }})},
	"forged": {"says that its PNG is a JPEG", on(badly{observe: func(_ *game, _ string, o *environment.Observation) {
		for i := range o.Frames {
			o.Frames[i].MediaType = "image/jpeg"
		}
	}})},
	"unwilling": {"refuses every action", on(badly{act: func(_ *game, _ context.Context, _ string, _ *environment.Call, s *environment.Step) { s.Error = "no" }})},
	"eager": {"takes an unknown action for another", on(badly{act: func(_ *game, _ context.Context, _ string, c *environment.Call, s *environment.Step) {
		if c.Name != "add" {
			s.Error = ""
		}
	}})},
	"gullible": {"acts without the arguments that it requires", on(badly{act: func(_ *game, _ context.Context, _ string, _ *environment.Call, s *environment.Step) { s.Error = "" }})},
	"spiteful": {"counts when it refuses", on(badly{act: func(g *game, ctx context.Context, id string, c *environment.Call, s *environment.Step) {
		if s.Error != "" {
			_, _ = g.Game.Act(ctx, id, one(*c), nil)
		}
	}})},
	"hospitable": {"takes every id for the first surface", on(badly{id: func(*game, string) string { return "counter-1" }})},
	"immortal":   {"does not close", on(badly{close: func(*game) error { return nil }})},
	"touchy":     {"does not close twice", on(badly{close: func(*game) error { return errors.New("it is closed") }})},
	"sulky": {"shows nothing any more after a cancel", on(badly{
		act: func(g *game, ctx context.Context, _ string, _ *environment.Call, _ *environment.Step) {
			select {
			case <-ctx.Done():
				g.calls.Store(1000)
			case <-time.After(time.Second):
			}
		},
		observe: func(g *game, _ string, o *environment.Observation) {
			if g.calls.Load() >= 1000 {
				o.JSON = json.RawMessage("[]")
			}
		},
	})},
	"inventive": {"captures what it does not know", on(badly{capture: func(folder string) []string {
		_ = os.WriteFile(filepath.Join(folder, "x"), nil, 0o600)
		return []string{"x"}
	}})},
	"lonely": {"answers for one surface only", on(badly{id: func(g *game, id string) string {
		if id != "counter-1" && g.calls.Add(1) > 8 {
			return "none"
		}
		return id
	}})},
}

func (g *game) of(id string) string {
	if g.id != nil {
		return g.id(g, id)
	}
	return id
}

func (g *game) Needs(ctx context.Context, r environment.SurfaceRequest) (environment.SurfaceNeeds, error) {
	n, err := g.Game.Needs(ctx, r)
	if g.needs != nil {
		g.needs(g, &n)
	}
	return n, err
}

func (g *game) OpenSurface(ctx context.Context, s environment.SurfaceSpec) (string, error) {
	id, err := g.Game.OpenSurface(ctx, s)
	if g.open != nil {
		id = g.open(id)
	}
	return id, err
}

func (g *game) Reset(ctx context.Context, id string, s environment.Start) (environment.Observation, error) {
	o, err := g.Game.Reset(ctx, g.of(id), s)
	if g.reset != nil {
		g.reset(g, id, &o)
	}
	return o, err
}

func (g *game) Observe(ctx context.Context, id string, want []string) (environment.Observation, error) {
	if g.want != nil {
		want = g.want(want)
	}
	o, err := g.Game.Observe(ctx, g.of(id), want)
	if g.observe != nil {
		g.observe(g, id, &o)
	}
	return o, err
}

func (g *game) Act(ctx context.Context, id string, c environment.Call, want []string) (environment.Step, error) {
	s, err := g.Game.Act(ctx, g.of(id), c, want)
	if g.act != nil {
		g.act(g, ctx, id, &c, &s)
	}
	return s, err
}

func (g *game) Capture(ctx context.Context, id string, c environment.Capture) ([]string, error) {
	if g.capture != nil {
		return g.capture(c.Folder), nil
	}
	c.Folder = filepath.Clean(c.Folder)
	return g.Game.Capture(ctx, g.of(id), c)
}

func (g *game) CloseSurface(ctx context.Context, id string) error {
	if g.close != nil {
		return g.close(g)
	}
	return g.Game.CloseSurface(ctx, id)
}
