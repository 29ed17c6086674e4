package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"

	"github.com/berth-eval/berth/core/gateway/tape"
	"github.com/berth-eval/berth/core/gateway/wire"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/verifier"
)

// replay is a run whose exchanges are played again.
type replay struct {
	dir   string
	index *store.Index
}

// recorded reads the run that a model is replayed from.
func (g *Gateway) recorded(name string) (*replay, error) {
	if r := g.replays[name]; r != nil {
		return r, nil
	}
	dir := name
	if g.o.FindRun != nil {
		var err error
		if dir, err = g.o.FindRun(name); err != nil {
			return nil, fmt.Errorf("replay: %w", err)
		}
	}
	_, index, err := store.Read(dir)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	g.replays[name] = &replay{dir: dir, index: index}
	return g.replays[name], nil
}

// attempt is the record of the accepted attempt of a trial: the same trial, or
// the only one of the same task and repetition.
func (r *replay) attempt(spec *models.Spec) (string, error) {
	t := r.index.Trial(spec.Trial)
	if t == nil {
		for i, other := range r.index.Trials {
			if other.Task != spec.Task || other.Repetition != spec.Repetition {
				continue
			}
			if t != nil {
				return "", fmt.Errorf("replay: %s has several trials of task %q and repetition %d, and none that is this one: replay the experiment that it ran", r.dir, spec.Task, spec.Repetition)
			}
			t = r.index.Trials[i]
		}
	}
	if t == nil {
		return "", fmt.Errorf("replay: %s has no trial of task %q and repetition %d", r.dir, spec.Task, spec.Repetition)
	}
	a := t.Accepted()
	if a == nil {
		return "", fmt.Errorf("replay: the trial of task %q in %s was not finished", spec.Task, r.dir)
	}
	return filepath.Join(r.dir, store.TrialsDir, filepath.FromSlash(t.Dir), "attempt-"+strconv.Itoa(a.Number)), nil
}

// player plays what a role and a model said in an attempt.
func (s *session) player(e *entry, d wire.Dialect) (*tape.Player, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.player != nil {
		return e.player, nil
	}
	dir, err := e.up.replay.attempt(&s.spec)
	if err != nil {
		return nil, err
	}
	e.player, err = tape.Open(filepath.Join(dir, filepath.FromSlash(ExchangesFile)), s.spec.Role, e.name, d.Fleeting())
	return e.player, err
}

// played answers from the record. A request that was not recorded is an error
// of the replay, not of the agent.
func (x *exchange) played() (*http.Response, error) {
	x.digests()
	p, err := x.s.player(x.e, x.d)
	var resp *http.Response
	if err == nil {
		resp, err = p.Play(x.line.Kind, x.line.Match, x.clean(x.body.Bytes()))
	}
	if err == nil {
		return resp, nil
	}
	if _, differs := errors.AsType[*tape.DiffersError](err); differs {
		x.s.find("replay_differs", verifier.Note, err.Error())
	}
	return nil, &replayError{err}
}

// replayError is why a record cannot answer.
type replayError struct{ err error }

func (e *replayError) Error() string { return e.err.Error() }

func (e *replayError) Unwrap() error { return e.err }

// clean is a body without what is secret in this session.
func (x *exchange) clean(b []byte) []byte { return x.s.secrets.clean(b) }
