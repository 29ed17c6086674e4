// Package counter is a surface for tests: a number that an agent brings to 10.
//
// It must not be served to users: it has no task, and keeps to no bound.
package counter

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/fault"
)

// Game is the surface. Its level is the number to begin with; the seed is added
// to it. Safe for concurrent use.
type Game struct {
	mu    sync.Mutex
	count int
	open  map[string]*counted
}

type counted struct{ n int }

var _ environment.Surface = (*Game)(nil)

// Needs implements environment.Surface.
func (*Game) Needs(_ context.Context, r environment.SurfaceRequest) (environment.SurfaceNeeds, error) {
	n := environment.SurfaceNeeds{
		Actions: []environment.Action{
			{Name: "add", Doc: "Adds a number.", Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","minimum":1,"maximum":9}},"required":["n"],"additionalProperties":false}`)},
			{Name: "clear", Doc: "Goes back to 0."},
		},
		Observations: []string{environment.KindText, "number", "screen"},
	}
	if _, err := level(r.Level); err != nil {
		n.Refusals = []string{err.Error()}
	}
	return n, nil
}

func level(s string) (int, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		err = fmt.Errorf("%w: level %q is not a number", fault.ErrInvalid, s)
	}
	return n, err
}

// OpenSurface implements environment.Surface.
func (c *Game) OpenSurface(context.Context, environment.SurfaceSpec) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[string]*counted{}
	}
	c.count++
	id := fmt.Sprint("counter-", c.count)
	c.open[id] = &counted{}
	return id, nil
}

// with calls f with the state of a surface.
func (c *Game) with(ctx context.Context, id string, f func(*counted)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.open[id]
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case s == nil:
		return fmt.Errorf("counter %q: %w", id, environment.ErrNoSandbox)
	}
	f(s)
	return nil
}

// Reset implements environment.Surface.
func (c *Game) Reset(ctx context.Context, id string, s environment.Start) (o environment.Observation, err error) {
	n, err := level(s.Level)
	if err != nil {
		return o, err
	}
	err = c.with(ctx, id, func(at *counted) {
		at.n = n + int(s.Seed)
		o = at.seen(s.Want)
	})
	return o, err
}

// Observe implements environment.Surface.
func (c *Game) Observe(ctx context.Context, id string, want []string) (o environment.Observation, err error) {
	err = c.with(ctx, id, func(at *counted) { o = at.seen(want) })
	return o, err
}

// Act implements environment.Surface.
func (c *Game) Act(ctx context.Context, id string, call environment.Call, want []string) (s environment.Step, err error) {
	err = c.with(ctx, id, func(at *counted) {
		var a struct{ N int }
		_ = json.Unmarshal(call.Arguments, &a) // what does not fit is refused below
		reward := 0.0
		switch {
		case call.Name == "add" && (a.N < 1 || a.N > 9):
			s.Error = "n is not from 1 to 9"
		case call.Name == "add" && at.n+a.N > 10:
			s.Error = fmt.Sprintf("%d and %d are more than 10", at.n, a.N)
		case call.Name == "add":
			at.n += a.N
			reward = float64(a.N)
		case call.Name == "clear":
			at.n = 0
		default:
			s.Error = fmt.Sprintf("no action %q", call.Name)
		}
		s.Observation, s.Done, s.Reward = at.seen(want), at.n == 10, &reward
		s.Info = json.RawMessage(fmt.Sprintf(`{"left":%d}`, 10-at.n))
	})
	return s, err
}

// Capture implements environment.Surface.
func (c *Game) Capture(ctx context.Context, id string, w environment.Capture) ([]string, error) {
	text := ""
	if err := c.with(ctx, id, func(at *counted) { text = fmt.Sprintf(`{"number":%d}`, at.n) }); err != nil {
		return nil, err
	}
	if w.Name != "export" {
		return nil, fmt.Errorf("%w: no capture %q", fault.ErrInvalid, w.Name)
	}
	return []string{"export.json"}, os.WriteFile(filepath.Join(w.Folder, "export.json"), []byte(text), 0o600)
}

// CloseSurface implements environment.Surface.
func (c *Game) CloseSurface(_ context.Context, id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, id)
	return nil
}

// seen returns what is seen of a counter.
func (s *counted) seen(want []string) (o environment.Observation) {
	wanted := func(kind string) bool { return len(want) == 0 || slices.Contains(want, kind) }
	if wanted(environment.KindText) {
		o.Text = fmt.Sprintf("The number is %d.", s.n)
	}
	if wanted("number") {
		o.JSON = json.RawMessage(fmt.Sprintf(`{"number":%d}`, s.n))
	}
	if wanted("screen") {
		o.Frames = []environment.Frame{{Name: "screen", MediaType: "image/png", Data: Picture(s.n)}}
	}
	return o
}

// Picture returns a picture in the format PNG, another one for each n.
func Picture(n int) []byte {
	im := image.NewGray(image.Rect(0, 0, 20, 10))
	for i := range n {
		im.SetGray(i%20, i/20, color.Gray{Y: 255})
	}
	var b bytes.Buffer
	if err := png.Encode(&b, im); err != nil {
		panic(err) // to memory
	}
	return b.Bytes()
}
