package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/berth-eval/berth/environments/sokoban/internal/room"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/suggest"
)

// The kinds of observation.
const (
	kindImage = "image"
	kindTiny  = "tiny"
	kindGrid  = "grid"
)

// moves are the actions that move the player, in the order of room.Direction.
var moves = []string{"Up", "Down", "Left", "Right"}

const restart = "Restart"

// captureState is the name of the only capture.
const captureState = "state"

// surfaces are the open ones. Safe for concurrent use.
type surfaces struct {
	mu   sync.Mutex
	all  map[string]*open
	next int
}

func newSurface() *surfaces { return &surfaces{all: map[string]*open{}} }

// open is one game. Its calls come one after another.
type open struct {
	mu     sync.Mutex
	config Config
	task   settings
	frames string
	count  int // files in frames
	game   *room.Game
}

// Needs implements environment.Surface.
func (*surfaces) Needs(_ context.Context, r environment.SurfaceRequest) (n environment.SurfaceNeeds, err error) {
	var c Config
	var s settings
	if err = errors.Join(read(r.Config, &c), read(r.Settings, &s)); err != nil {
		return n, err
	}
	n = environment.SurfaceNeeds{Observations: []string{kindImage, kindTiny, kindGrid}, Pictures: []string{kindImage}, Refusals: problems(&c, &s)}
	if _, err := room.Parse(r.Level); err != nil {
		n.Refusals = append(n.Refusals, err.Error()+".")
	}
	for d, name := range moves {
		where := []string{"above", "below", "to the left", "to the right"}[d]
		n.Actions = append(n.Actions, environment.Action{Name: name, Doc: "Moves the player to the cell " + where + ", and pushes a box that is there one cell further if that is free."})
	}
	if s.Restart {
		n.Actions = append(n.Actions, environment.Action{Name: restart, Doc: "Puts the player and all boxes back to where they were at the start."})
	}
	return n, nil
}

// OpenSurface implements environment.Surface.
func (e *surfaces) OpenSurface(_ context.Context, spec environment.SurfaceSpec) (string, error) {
	o := &open{frames: spec.Frames}
	if err := errors.Join(read(spec.Config, &o.config), read(spec.Settings, &o.task)); err != nil {
		return "", err
	}
	if ps := problems(&o.config, &o.task); len(ps) > 0 {
		return "", fmt.Errorf("%w: %s", fault.ErrBadConfig, ps[0])
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.next++
	id := fmt.Sprintf("sokoban-%d", e.next)
	e.all[id] = o
	return id, nil
}

// with calls f with an open game.
func (e *surfaces) with(ctx context.Context, id string, f func(*open) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	e.mu.Lock()
	o := e.all[id]
	e.mu.Unlock()
	if o == nil {
		return fmt.Errorf("%w: surface %q", environment.ErrNoSandbox, id)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return f(o)
}

// playing is with, for calls after the first Reset.
func (e *surfaces) playing(ctx context.Context, id string, f func(*open) error) error {
	return e.with(ctx, id, func(o *open) error {
		if o.game == nil {
			return fmt.Errorf("%w: surface %q was not reset", fault.ErrInvalid, id)
		}
		return f(o)
	})
}

// Reset implements environment.Surface. The seed changes nothing.
func (e *surfaces) Reset(ctx context.Context, id string, start environment.Start) (seen environment.Observation, err error) {
	r, err := room.Parse(start.Level)
	if err != nil {
		return seen, fmt.Errorf("%w: %w", fault.ErrInvalid, err)
	}
	err = e.with(ctx, id, func(o *open) error {
		o.game = room.Play(r, o.task.Boxes, o.task.Most)
		seen, err = o.seen(start.Want)
		return err
	})
	return seen, err
}

// Observe implements environment.Surface.
func (e *surfaces) Observe(ctx context.Context, id string, want []string) (seen environment.Observation, err error) {
	err = e.playing(ctx, id, func(o *open) error {
		seen, err = o.seen(want)
		return err
	})
	return seen, err
}

// Act implements environment.Surface.
func (e *surfaces) Act(ctx context.Context, id string, call environment.Call, want []string) (step environment.Step, err error) {
	err = e.playing(ctx, id, func(o *open) error {
		if step.Error = o.refuse(call); step.Error == "" {
			o.act(call.Name, &step)
		}
		step.Done = o.game.Solved()
		step.Truncated = !step.Done && o.game.Over()
		step.Observation, err = o.seen(want)
		return err
	})
	return step, err
}

// refuse says why an action is not done; empty: it is.
func (o *open) refuse(call environment.Call) string {
	names := moves
	if o.task.Restart {
		names = append(slices.Clone(moves), restart)
	}
	var given map[string]json.RawMessage
	switch {
	case !slices.Contains(names, call.Name):
		return fmt.Sprintf("there is no action %q%s", call.Name, suggest.After(call.Name, names))
	case len(bytes.TrimSpace(call.Arguments)) > 0 && (json.Unmarshal(call.Arguments, &given) != nil || len(given) > 0):
		return fmt.Sprintf("action %q takes no arguments", call.Name)
	case o.game.Solved():
		return "the level is solved already"
	case o.game.Over():
		return fmt.Sprintf("the %d steps of the level are used up", o.task.Most)
	}
	return ""
}

// info is what the core and verifiers learn of a step, and agents do not.
type info struct {
	Grid     string `json:"grid"`
	Hash     string `json:"hash"`
	Steps    int    `json:"steps"`
	OnTarget int    `json:"boxes_on_target"` // as rewards count
	// Gained is what the last start or restart has paid so far, without the cost of
	// steps.
	Gained float64 `json:"gained"`
	Solved bool    `json:"solved"`
	Moved  bool    `json:"moved"`
	Pushed bool    `json:"pushed"`
}

func (o *open) act(name string, step *environment.Step) {
	var r room.Result
	if name == restart {
		r = o.game.Restart()
	} else {
		r = o.game.Step(room.Direction(slices.Index(moves, name)))
	}
	step.Reward = &r.Reward
	step.Info = o.state(&r)
}

// state returns all of the state as JSON.
func (o *open) state(r *room.Result) json.RawMessage {
	raw, err := json.Marshal(info{
		Grid: o.game.String(), Hash: o.game.Hash(), Steps: o.game.Steps(), OnTarget: o.game.OnTarget(), Gained: o.game.Gained(),
		Solved: o.game.Solved(), Moved: r.Moved, Pushed: r.Pushed,
	})
	if err != nil {
		panic(err) // texts and numbers
	}
	return raw
}

// maxInline is the size of a frame that is sent with its observation, in bytes.
const maxInline = 1 << 20

// seen returns what is seen of a game.
func (o *open) seen(want []string) (seen environment.Observation, err error) {
	wanted := func(kind string) bool { return len(want) == 0 || slices.Contains(want, kind) }
	if wanted(kindGrid) {
		if seen.JSON, err = json.Marshal(map[string]string{kindGrid: o.game.String()}); err != nil {
			return seen, err
		}
	}
	for _, f := range []struct {
		kind string
		draw func() []byte
	}{{kindImage, func() []byte { return o.game.Picture(o.config.Size) }}, {kindTiny, o.game.Tiny}} {
		if !wanted(f.kind) {
			continue
		}
		frame := environment.Frame{Name: f.kind, MediaType: "image/png", Data: f.draw()}
		if len(frame.Data) > maxInline {
			o.count++
			frame.Path = fmt.Sprintf("%d.png", o.count)
			if err = os.WriteFile(filepath.Join(o.frames, frame.Path), frame.Data, 0o600); err != nil {
				return seen, err
			}
			frame.Data = nil
		}
		seen.Frames = append(seen.Frames, frame)
	}
	return seen, nil
}

// Capture implements environment.Surface.
func (e *surfaces) Capture(ctx context.Context, id string, w environment.Capture) (files []string, err error) {
	err = e.playing(ctx, id, func(o *open) error {
		if w.Name != captureState {
			return fmt.Errorf("%w: there is no capture %q: the only one is %s", fault.ErrInvalid, w.Name, captureState)
		}
		files = []string{"state.json"}
		return os.WriteFile(filepath.Join(w.Folder, files[0]), o.state(&room.Result{}), 0o600)
	})
	return files, err
}

// CloseSurface implements environment.Surface.
func (e *surfaces) CloseSurface(_ context.Context, id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.all, id)
	return nil
}
