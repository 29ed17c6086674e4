package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/calls"
	"github.com/berth-eval/berth/plugins/agent/loop"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/model/chat"
	"github.com/berth-eval/berth/plugins/surface"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// The actions of a surface that speak to the user, as BrowserGym names them.
const (
	sayAction        = "send_msg_to_user"
	infeasibleAction = "report_infeasible"
)

// worker is the agent in one session.
type worker struct {
	s      *loop.Session[Config]
	offer  *environment.Offer
	kinds  []string
	system string
	talk   []exchange
	said   int // messages to the user in this turn
	broken int // replies that could not be read in this turn
}

// exchange is a message to the model, and its reply.
type exchange struct {
	words  string       // before what is seen
	images []chat.Image // of the task's instruction
	seen   *environment.Observation
	reply  string
	answer bool // the model has replied
}

func newWorker(s *loop.Session[Config], offer *environment.Offer) *worker {
	w := &worker{s: s, offer: offer, kinds: s.Config.Observations, system: systemPrompt(offer)}
	if len(w.kinds) == 0 {
		for _, k := range offer.Observations {
			if k != "elements" && (k != "dom" || !slices.Contains(offer.Observations, "axtree")) {
				w.kinds = append(w.kinds, k)
			}
		}
	}
	return w
}

// Turn implements loop.Worker.
func (w *worker) Turn(ctx context.Context, m agent.Message, r *loop.Recorder) (agent.Yield, error) {
	w.said, w.broken = 0, 0
	keys := resultKeys(m.Text)
	images, err := loop.Images(w.s.Setup.View, m.Files)
	if err != nil {
		return agent.Yield{}, err
	}
	seen, err := w.s.Surface.Observe(ctx, w.kinds)
	if err != nil {
		return agent.Yield{}, err
	}
	words := m.Text
	if len(w.talk) == 0 && w.s.Config.Prefix != "" {
		words = w.s.Config.Prefix + "\n\n" + words
	}
	words = "Your task:\n\n" + words
	for {
		now := seen
		w.talk = append(w.talk, exchange{words: words, images: images, seen: &now})
		images = nil
		done, step, next, err := w.ask(ctx, keys, r)
		if err != nil {
			return agent.Yield{}, err
		}
		if err = r.Step(step); err != nil || done != nil {
			if done == nil {
				done = &agent.Yield{}
			}
			return *done, err
		}
		seen, words = next.seen, next.words
	}
}

// next is what follows an action.
type next struct {
	seen  environment.Observation
	words string
}

// tries is how often a model may write replies that cannot be read, one after the
// other.
const tries = 3

// ask gets a reply that can be read, and does what it says. done is not nil if the
// turn ends.
func (w *worker) ask(ctx context.Context, keys []string, r *loop.Recorder) (done *agent.Yield, step trajectory.Step, n next, err error) {
	for try := 1; ; try++ {
		q := chat.Request{System: w.system, Messages: w.messages(), Effort: w.s.Config.ReasoningEffort, Temperature: w.s.Config.Temperature}
		reply, err := r.Ask(ctx, w.s.Model, q)
		if err != nil {
			return nil, step, n, err
		}
		last := &w.talk[len(w.talk)-1]
		last.reply, last.answer = reply.Text, true
		step = r.Of(reply, reply.Text)
		if text, ok := answer(reply.Text, keys); ok {
			return w.over(agent.Done, text, ""), step, n, nil
		}
		list, wrong := calls.Parse(reply.Text)
		if wrong == nil {
			done, n, err = w.act(ctx, list, &step)
			return done, step, n, err
		}
		w.broken++
		if try == tries {
			return w.over(agent.Crashed, "", fmt.Sprintf("%d replies of the model one after the other have no action that can be read: %s", tries, wrong)), step, n, nil
		}
		if err = r.Step(step); err != nil {
			return nil, step, n, err
		}
		w.talk = append(w.talk, exchange{words: fmt.Sprintf("That was no action that can be read: %s. Nothing was done. Reply with an action in a code fence, or with the answer.", wrong)})
	}
}

// over ends the turn.
func (w *worker) over(end agent.End, message, reason string) *agent.Yield {
	if w.broken > 0 && reason == "" {
		reason = fmt.Sprintf("%d replies of the model could not be read", w.broken)
	}
	return &agent.Yield{End: end, Message: message, Reason: reason}
}

// act does the actions of a reply, up to one that is refused, or after which
// nothing may follow.
func (w *worker) act(ctx context.Context, list []calls.Call, step *trajectory.Step) (done *agent.Yield, n next, err error) {
	var told []string
	for i := range list {
		c := &list[i]
		id := fmt.Sprintf("action-%d", i+1)
		given, wrong := arguments(w.offer, c)
		if wrong != nil {
			given = json.RawMessage("{}")
		}
		if err = loop.Call(step, id, c.Name, given); err != nil {
			return nil, n, err
		}
		var s environment.Step
		if wrong == nil {
			if s, err = w.s.Surface.Act(ctx, environment.Call{Name: c.Name, Arguments: given}, w.kinds); err != nil {
				return nil, n, fmt.Errorf("%s: %w", c.Name, err)
			}
			n.seen = s.Observation
		} else if n.seen, err = w.s.Surface.Observe(ctx, w.kinds); err != nil {
			return nil, n, err
		} else {
			s.Error = wrong.Error()
		}
		text := c.Name + " is done."
		if s.Error != "" {
			text = c.Name + " was refused: " + s.Error
		}
		loop.Observe(step, id, text)
		told = append(told, text)
		if done = w.ended(c.Name, given, &s); done != nil {
			return done, n, nil
		}
		if s.Error != "" {
			break
		}
	}
	n.words = strings.Join(told, "\n")
	return nil, n, nil
}

// ended reports whether the turn ends with an action.
func (w *worker) ended(name string, arguments json.RawMessage, s *environment.Step) *agent.Yield {
	var said struct{ Text, Reason string }
	_ = json.Unmarshal(arguments, &said) // of another action: empty
	switch {
	case s.Truncated:
		return w.over(agent.MaxSteps, "", "no actions are left")
	case s.Done:
		return w.over(agent.Done, "", "the surface is done")
	case s.Error != "":
		return nil
	case name == infeasibleAction:
		return w.over(agent.Done, said.Reason, "the agent says that the task cannot be done")
	case name == sayAction:
		if w.said++; w.said == 2 { // the first one may be a question or news
			return w.over(agent.Done, said.Text, "")
		}
	}
	return nil
}

// Close implements loop.Worker.
func (*worker) Close(context.Context, *loop.Recorder) error { return nil }

// messages returns the conversation. Of older observations only their names are
// left.
func (w *worker) messages() (all []chat.Message) {
	full := w.s.Config.Memory
	for i := range slices.Backward(w.talk) {
		if w.talk[i].seen == nil {
			continue
		}
		if full--; full < 0 {
			w.talk[i].seen = nil
			w.talk[i].words += "\n\n(What was seen here is left out.)"
		}
	}
	for i := range w.talk {
		e := &w.talk[i]
		m := chat.Message{Role: chat.User, Text: e.words, Images: slices.Clone(e.images)}
		if e.seen != nil {
			m.Text += "\n\n" + w.text(e.seen)
			for _, f := range e.seen.Frames {
				m.Images = append(m.Images, chat.Image{MediaType: f.MediaType, Data: f.Data})
			}
		}
		all = append(all, m)
		if e.answer {
			all = append(all, chat.Message{Role: chat.Assistant, Text: nonEmpty(e.reply)})
		}
	}
	return all
}

func nonEmpty(s string) string {
	if strings.TrimSpace(s) == "" {
		return "(nothing)" // providers refuse an empty message
	}
	return s
}

// text returns what is seen as text, part by part.
func (w *worker) text(o *environment.Observation) string {
	text := surface.Text(o, w.kinds)
	if len(o.Frames) > 0 {
		text += "The picture shows what is seen now.\n"
	}
	r := []rune(text)
	if len(r) > w.s.Config.MaxText {
		return string(r[:w.s.Config.MaxText]) + "\n(the rest is left out)\n"
	}
	return text
}

// errNoObject means that a text is not a JSON object.
var errNoObject = errors.New("no JSON object")
