package view

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/control"
	"github.com/berth-eval/berth/cmd/berth/output"
)

// statusTime is how long a page waits for the process of a run.
const statusTime = 2 * time.Second

// buttons are the forms with which a run is changed. Only the user who runs it, on
// its machine, gets them.
type buttons struct {
	Address string // that the forms go to
	Status  *control.Status
	Missing string // why the state is not shown
}

// buttonsOf returns the forms of a run; nil if there are none.
func buttonsOf(ctx context.Context, dir, address string) *buttons {
	c, err := control.Find(dir)
	switch {
	case err == control.ErrNoProcess: //nolint:errorlint // one that wraps it says where the process is
		return nil
	case err != nil:
		return &buttons{Missing: err.Error()}
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	b := &buttons{Address: address}
	switch b.Status, err = c.Status(ctx); {
	case errors.Is(err, control.ErrNoProcess): // it has just ended
		return nil
	case err != nil:
		b.Status, b.Missing = nil, err.Error()
	}
	return b
}

// controlRun makes the change of a run that a form asks for.
func (s *Server) controlRun(r *request) (back, said string, err error) {
	k, err := s.run(r.PathValue("run"))
	if err != nil {
		return "", "", err
	}
	q := control.Request{Action: r.PostForm.Get("action"), Why: r.field("why"), Yes: r.PostForm.Get("yes") == "yes"}
	back = address(k.Dir)
	switch q.Action {
	case control.Pause, control.Continue, control.Drain:
		q.Yes = false
	case control.Cancel:
		if q.Cell, q.Yes = r.field("cell"), false; q.Cell == "" {
			return back, unchanged(errors.New("write the cell into the field")), nil
		}
	case control.Set:
		if q.Set, err = limitsOf(r); err != nil {
			return back, unchanged(err), nil
		}
	default:
		return back, unchanged(fmt.Errorf("this page has no action %q", q.Action)), nil
	}
	return back, ask(r.Context(), k.Dir, q, nil), nil
}

// limitsOf reads the limits of a form.
func limitsOf(r *request) (map[string]*float64, error) {
	set := map[string]*float64{}
	for _, name := range control.Limits {
		text := r.field(name)
		switch text {
		case "":
			continue
		case "none":
			set[name] = nil
			continue
		}
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
			return nil, fmt.Errorf("%s: %q is not a number", name, partOf(text, 100).Text)
		}
		set[name] = &n
	}
	if len(set) == 0 {
		return nil, errors.New("write the new limit into the field")
	}
	return set, nil
}

// controlAttempt makes the change of an attempt that a form asks for.
func (s *Server) controlAttempt(r *request) (back, said string, err error) {
	a, err := s.attempt(r)
	if err != nil {
		return "", "", err
	}
	q := control.Request{Action: r.PostForm.Get("action"), Trial: a.Trial.ID, Why: r.field("why")}
	if q.Action != control.Cancel && q.Action != control.EndTurn {
		return a.Page(), unchanged(fmt.Errorf("this page has no action %q", q.Action)), nil
	}
	return a.Page(), ask(r.Context(), a.run, q, a), nil
}

// goesOn reports whether an attempt is in progress: an action on its trial must not
// be about a later attempt, which the person has not seen.
func (a *attempt) goesOn(ctx context.Context, c *control.Client) bool {
	if a.State != output.UnderWay {
		return false
	}
	status, err := c.Status(ctx)
	if err != nil || status.InProgress > len(status.Attempts) { // not all are listed
		return true // Do says what is wrong
	}
	return slices.ContainsFunc(status.Attempts, func(o output.CtlAttempt) bool { return o.Trial == a.Trial.ID && o.Attempt == a.Number })
}

// ask asks the process of a run for a change, and returns a sentence about it. about
// is the attempt that it is about; nil: the whole run.
func ask(ctx context.Context, dir string, q control.Request, about *attempt) string {
	c, err := control.Find(dir)
	if err != nil {
		return unchanged(err)
	}
	defer c.Close()
	if about != nil && !about.goesOn(ctx, c) {
		return unchanged(errors.New("the attempt is not in progress"))
	}
	answer, err := c.Do(ctx, q)
	_, refused := errors.AsType[*control.RefusedError](err)
	switch {
	case err == nil:
		return "Done: " + answer.Did + "."
	case refused || errors.Is(err, control.ErrNoProcess):
		return unchanged(err)
	}
	return "It is not known whether something was changed: " + err.Error() + "."
}

// unchanged is the sentence about a form that did nothing.
func unchanged(why error) string { return "Nothing was changed: " + why.Error() + "." }

// limit returns a limit of the state of a run; nil if the state is not known. It may
// be called on nil.
func (b *buttons) limit(name string) *output.CtlLimit {
	if b == nil || b.Status == nil {
		return nil
	}
	i := slices.IndexFunc(b.Status.Limits, func(l output.CtlLimit) bool { return l.Name == name })
	if i < 0 {
		return nil
	}
	return &b.Status.Limits[i]
}
