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

	"github.com/berth-eval/berth/environments/internal/surfaces"
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

func newSurface() *surfaces.Kind { return &surfaces.Kind{Name: "sokoban", Ask: needs, Start: start} }

// open is one game.
type open struct {
	config Config
	task   settings
	frames surfaces.Frames
	game   *room.Game // nil before the first Reset
}

func needs(r environment.SurfaceRequest) (n environment.SurfaceNeeds, err error) {
	var c Config
	var s settings
	if err = errors.Join(surfaces.Read(r.Config, &c), surfaces.Read(r.Settings, &s)); err != nil {
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

func start(_ context.Context, spec environment.SurfaceSpec) (surfaces.Open, error) {
	o := &open{frames: surfaces.Frames{Folder: spec.Frames}}
	if err := errors.Join(surfaces.Read(spec.Config, &o.config), surfaces.Read(spec.Settings, &o.task)); err != nil {
		return nil, err
	}
	if ps := problems(&o.config, &o.task); len(ps) > 0 {
		return nil, fmt.Errorf("%w: %s", fault.ErrBadConfig, ps[0])
	}
	return o, nil
}

// begun fails before the first Reset.
func (o *open) begun() error {
	if o.game == nil {
		return fmt.Errorf("%w: the surface was not reset", fault.ErrInvalid)
	}
	return nil
}

// Reset implements surfaces.Open. The seed changes nothing.
func (o *open) Reset(_ context.Context, start environment.Start) (seen environment.Observation, err error) {
	r, err := room.Parse(start.Level)
	if err != nil {
		return seen, fmt.Errorf("%w: %w", fault.ErrInvalid, err)
	}
	o.game = room.Play(r, o.task.Boxes, o.task.Most)
	return o.seen(start.Want)
}

// Observe implements surfaces.Open.
func (o *open) Observe(_ context.Context, want []string) (environment.Observation, error) {
	if err := o.begun(); err != nil {
		return environment.Observation{}, err
	}
	return o.seen(want)
}

// Act implements surfaces.Open.
func (o *open) Act(_ context.Context, call environment.Call, want []string) (step environment.Step, err error) {
	if err = o.begun(); err != nil {
		return step, err
	}
	if step.Error = o.refuse(call); step.Error == "" {
		o.act(call.Name, &step)
	}
	step.Done = o.game.Solved()
	step.Truncated = !step.Done && o.game.Over()
	step.Observation, err = o.seen(want)
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
		if err = o.frames.Put(&frame); err != nil {
			return seen, err
		}
		seen.Frames = append(seen.Frames, frame)
	}
	return seen, nil
}

// Capture implements surfaces.Open.
func (o *open) Capture(_ context.Context, w environment.Capture) ([]string, error) {
	if err := o.begun(); err != nil {
		return nil, err
	}
	if w.Name != captureState {
		return nil, fmt.Errorf("%w: there is no capture %q: the only one is %s", fault.ErrInvalid, w.Name, captureState)
	}
	return []string{"state.json"}, os.WriteFile(filepath.Join(w.Folder, "state.json"), o.state(&room.Result{}), 0o600)
}

// Close implements surfaces.Open.
func (*open) Close(context.Context) error { return nil }
