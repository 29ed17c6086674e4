package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/output"
	"github.com/berth-eval/berth/plugins/suggest"
	"github.com/berth-eval/berth/plugins/surface"
)

// maxLines bounds the record of an attempt.
const maxLines = 100_000

// actions returns what the agent may do now.
func (s *Surface) actions(ctx context.Context) (environment.Offer, error) {
	release, _, err := s.admit(ctx, nil)
	if err != nil {
		return environment.Offer{}, err
	}
	defer release()
	return s.stage.offer, nil
}

// observe lets the agent observe.
func (s *Surface) observe(ctx context.Context, want []string) (environment.Observation, error) {
	release, want, err := s.admit(ctx, want)
	if err != nil {
		return environment.Observation{}, err
	}
	defer release()
	o, err := s.observed(ctx, surface.Line{Kind: surface.KindObserve}, s.limit, func(ctx context.Context) (environment.Observation, error) {
		return s.o.Plugin.Observe(ctx, s.id, s.stage.asked(want))
	})
	return shown(o, want), err
}

// observed makes a call that returns an observation, and records it.
func (s *Surface) observed(ctx context.Context, l surface.Line, limit time.Duration, f func(context.Context) (environment.Observation, error)) (environment.Observation, error) {
	l.Time = s.o.Now()
	o, err := within(ctx, s, limit, f)
	if err == nil {
		err = s.keep(&l, &o)
	}
	s.line(l, err)
	return o, err
}

// act lets the agent act. What it may not do is a step with an error.
func (s *Surface) act(ctx context.Context, c environment.Call, want []string) (environment.Step, error) {
	release, want, err := s.admit(ctx, want)
	if err != nil {
		return environment.Step{}, err
	}
	defer release()
	l := surface.Line{Kind: surface.KindAct, Action: output.First(c.Name, 200), Arguments: recorded(c.Arguments), Time: s.o.Now()}
	st := s.stage
	if st.ended != "" {
		step := environment.Step{Error: st.ended, Done: st.done, Truncated: !st.done}
		l.Error, l.Done, l.Truncated = step.Error, step.Done, step.Truncated
		s.line(l, nil)
		return step, nil
	}
	if st.within == 0 {
		st.count++
	}
	l.Step = st.count
	step := environment.Step{Error: st.refuse(&c)}
	if step.Error == "" {
		s.mu.Lock()
		first := !s.any
		s.any = true
		s.mu.Unlock()
		step, err = call(ctx, s, func(ctx context.Context) (environment.Step, error) {
			return s.o.Plugin.Act(ctx, s.id, c, st.asked(want))
		})
		if first && errors.Is(err, environment.ErrRefused) { // nothing was done: something is missing
			s.mu.Lock()
			s.any = false
			s.mu.Unlock()
		}
		if err == nil {
			err = s.keepStep(&l, &step)
		}
	}
	if err != nil {
		step = environment.Step{}
	} else {
		st.follow(&c, &step)
		s.end(&step)
	}
	l.Error, l.Done, l.Truncated, l.Reward, l.Info = step.Error, step.Done, step.Truncated, step.Reward, step.Info
	s.line(l, err)
	step.Reward, step.Info, step.Observation = nil, nil, shown(step.Observation, want)
	return step, err
}

// asked returns the kinds that the plugin is asked for: those that the agent gets,
// and the pictures, which the record has whatever the agent sees.
func (st *stage) asked(want []string) []string {
	all := slices.Clone(want)
	for _, k := range st.always {
		if !slices.Contains(all, k) {
			all = append(all, k)
		}
	}
	return all
}

// maxWithin is how many actions of a reply are one step.
const maxWithin = 100

// follow notes whether the next action belongs to the same step: it does in a reply
// that has more of them, up to one that is refused.
func (st *stage) follow(c *environment.Call, step *environment.Step) {
	if st.within++; !st.replies || !c.More || step.Error != "" || st.within == maxWithin {
		st.within = 0
	}
}

// end decides whether a further step may follow.
func (s *Surface) end(step *environment.Step) {
	st := s.stage
	if st.steps > 0 && st.count >= st.steps && st.within == 0 && !step.Done {
		step.Truncated = true
	}
	switch {
	case step.Done:
		st.ended, st.done = "the episode is over: the surface said done", true
	case step.Truncated && st.steps > 0 && st.count >= st.steps:
		st.ended = fmt.Sprintf("the %d steps of the task are used up", st.steps)
	case step.Truncated:
		st.ended = "the episode is over: the surface ended it at its own bound"
	default:
		return
	}
	s.mu.Lock()
	s.over = step.Truncated && !step.Done
	s.mu.Unlock()
}

// refuse says why the agent may not make a call; empty: it may. It fills in
// arguments that are missing.
func (st *stage) refuse(c *environment.Call) string {
	schema, known := st.schemas[c.Name]
	if !known {
		var names []string
		for _, a := range st.offer.Actions {
			names = append(names, a.Name)
		}
		return fmt.Sprintf("there is no action %q%s", output.First(c.Name, 200), suggest.After(c.Name, names))
	}
	if len(c.Arguments) == 0 {
		c.Arguments = json.RawMessage("{}")
	}
	var object map[string]json.RawMessage
	switch err := json.Unmarshal(c.Arguments, &object); {
	case len(c.Arguments) > surface.MaxText:
		return fmt.Sprintf("the arguments have %d bytes, at most %d are allowed", len(c.Arguments), surface.MaxText)
	case err != nil || object == nil || !utf8.Valid(c.Arguments):
		return "the arguments are not a JSON object"
	case schema == nil && len(object) > 0:
		return fmt.Sprintf("action %q takes no arguments", c.Name)
	case schema == nil:
		return ""
	}
	if err := schema.Check(c.Arguments); err != nil {
		return "the arguments do not fit: " + output.First(strings.TrimSpace(err.Error()), 2000)
	}
	return ""
}

// admit lets a call of the agent in, and returns the kinds of observation that
// it gets.
func (s *Surface) admit(ctx context.Context, want []string) (release func(), kinds []string, err error) {
	if release, err = s.acquire(ctx); err != nil {
		return nil, nil, err
	}
	if s.stage == nil {
		release()
		return nil, nil, fmt.Errorf("%w: this stage of the task has no surface", fault.ErrRevoked)
	}
	offers := s.stage.offer.Observations
	for _, k := range want {
		if !slices.Contains(offers, k) {
			err = fmt.Errorf("%w: there is no kind of observation %q%s", fault.ErrInvalid, k, suggest.After(k, offers))
		}
	}
	if s.lines >= maxLines {
		err = fmt.Errorf("%w: the record of the surface has %d lines, and no more are kept", fault.ErrNoRoom, s.lines)
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	if len(want) == 0 {
		want = offers
	}
	return release, want, nil
}

// shown returns the parts of an observation that are of these kinds.
func shown(o environment.Observation, kinds []string) environment.Observation {
	if !slices.Contains(kinds, environment.KindText) {
		o.Text = ""
	}
	o.Frames = slices.DeleteFunc(slices.Clone(o.Frames), func(f environment.Frame) bool { return !slices.Contains(kinds, f.Name) })
	var parts map[string]json.RawMessage
	if json.Unmarshal(o.JSON, &parts) != nil {
		o.JSON = nil
		return o
	}
	hidden := false
	for name := range parts {
		if !slices.Contains(kinds, name) {
			delete(parts, name)
			hidden = true
		}
	}
	if hidden {
		o.JSON = nil
		if b, err := json.Marshal(parts); err == nil && len(parts) > 0 {
			o.JSON = b
		}
	}
	return o
}

// line adds a line to the record. The caller holds the right to call.
func (s *Surface) line(l surface.Line, failed error) {
	s.lines++
	l.Stage, l.Took = s.stage.name, s.o.Now().Sub(l.Time)
	if failed != nil {
		l.Error = output.First(failed.Error(), 4096)
	}
	s.o.Append(l)
}

// recorded returns arguments as the record keeps them.
func recorded(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return nil
	}
	if json.Valid(raw) && utf8.Valid(raw) && len(raw) <= surface.MaxText {
		return raw
	}
	b, err := json.Marshal(output.First(string(raw), 4096))
	if err != nil {
		return nil
	}
	return b
}
