package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/dialect"
)

// Recording is a run whose exchanges are replayed.
type Recording interface {
	// Attempt returns the folder of the recorded attempt that stands for an
	// attempt of this run. cell is the name of its cell.
	Attempt(trial, cell, task string, repetition int) (dir string, err error)
}

// cellOf returns the name of the cell of a trial; empty if there are no cells.
func (g *Gateway) cellOf(trial string) string {
	for i := range g.o.Cells {
		if c := &g.o.Cells[i]; slices.Contains(c.Trials, trial) {
			return c.Name
		}
	}
	return ""
}

// recorded returns the run that a model is replayed from.
func (g *Gateway) recorded(name string) (Recording, error) {
	if r := g.replays[name]; r != nil {
		return r, nil
	}
	if g.o.Replay == nil || g.o.Dialects.Replay == nil {
		return nil, errors.New("replay: there are no runs to replay from")
	}
	r, err := g.o.Replay(name)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	g.replays[name] = r
	return r, nil
}

// player returns the player for a role and a model in an attempt.
func (s *session) player(e *entry, d dialect.Dialect) (dialect.Replayed, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.player != nil {
		return e.player, nil
	}
	dir, err := e.up.replay.Attempt(s.spec.Trial, s.g.cellOf(s.spec.Trial), s.spec.Task, s.spec.Repetition)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	e.player, err = s.g.o.Dialects.Replay(filepath.Join(dir, filepath.FromSlash(record.ExchangesFile)), s.spec.Role, e.name, d.Fleeting())
	return e.player, err
}

// played answers from the record. A request that was not recorded is an error
// of the replay, not of the agent.
func (x *exchange) played() (*http.Response, error) {
	x.digests()
	p, err := x.s.player(x.e, x.d)
	var resp *http.Response
	var served dialect.Served
	if err == nil {
		resp, served, err = p.Answer(&dialect.Replay{Kind: x.line.Kind, Path: x.line.Path, Match: x.line.Match, Body: x.asked})
	}
	if err == nil && served.Fallback != "" {
		err = x.playedBy(served.Fallback)
	}
	if err != nil {
		if errors.Is(err, dialect.ErrDiffers) {
			x.s.find("replay_differs", err.Error())
		}
		x.s.g.o.Log.Warn().Msgf("replay of task %s (repetition %d, attempt %d), model %q: %s", x.s.spec.Task, x.s.spec.Repetition, x.s.spec.Attempt, x.e.up.model.Name, err)
		return nil, &replayError{err}
	}
	if served.Ignored != "" {
		x.line.Alike = true
		x.e.alike.Do(func() {
			x.s.find("replay_alike", fmt.Sprintf("requests differ from the recorded run in values that change from run to run, which is ignored (alike in the record of requests); "+
				"the first: %s", served.Ignored))
		})
	}
	return resp, nil
}

// playedBy makes a fallback the model that the answer is from.
func (x *exchange) playedBy(name string) error {
	for e := x.e.next; e != nil; e = e.next {
		if e.up.model.Name == name {
			x.s.find("model_fallback", fmt.Sprintf("model %q did not serve in the recorded run, and %q was asked instead", x.line.Model, name))
			x.line.FallbackFor, x.line.Model = x.line.Model, name
			x.e, x.price = e, e.up.priceOf(name)
			return nil
		}
	}
	return fmt.Errorf("replay: recorded fallback %q is no longer configured for model %q: add it to fallback", name, x.e.up.model.Label)
}

// replayError says why a record cannot answer.
type replayError struct{ err error }

func (e *replayError) Error() string { return e.err.Error() }

func (e *replayError) Unwrap() error { return e.err }

// recorded returns a body as it is recorded: without the secrets of this session
// and of its attempt, which an agent may have told the model.
func (x *exchange) recorded(b []byte) []byte {
	if b = x.clean(b); x.s.spec.Mask != nil {
		b = x.s.spec.Mask(b)
	}
	return b
}

// clean returns a body without the secrets of this session.
func (x *exchange) clean(b []byte) []byte { return x.s.secrets.clean(b) }
