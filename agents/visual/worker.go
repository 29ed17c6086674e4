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

// The actions of a surface that speak to the user, and the one that only waits, as
// BrowserGym names them.
const (
	sayAction        = "send_msg_to_user"
	infeasibleAction = "report_infeasible"
	waitAction       = "noop"
)

// waitArguments are those of waitAction after a reply that cannot be read: half a
// second, as in GauntletBench's own agent.
const waitArguments = `{"wait_ms":500}`

// worker is the agent in one session.
type worker struct {
	s      *loop.Session[Config]
	offer  *environment.Offer
	kinds  []string
	system string
	talk   []exchange // with the history actions: only the last one
	past   []string   // what was done in each reply, one after the other
	failed string     // why the last action was refused; empty: it was not
	broken int        // replies that could not be read in this turn
	lost   int        // the last ones of them, one after the other

	task   string // of this turn
	images []chat.Image
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
	w := &worker{s: s, offer: offer, kinds: s.Config.Observations, system: systemPrompt(offer, s.Config.Prompt)}
	if len(w.kinds) == 0 {
		for _, k := range offer.Observations {
			if k != "elements" && (k != "marks" || !slices.Contains(offer.Observations, "screenshot")) { // which says the same
				w.kinds = append(w.kinds, k)
			}
		}
	}
	return w
}

// Turn implements loop.Worker.
func (w *worker) Turn(ctx context.Context, m agent.Message, r *loop.Recorder) (agent.Yield, error) {
	w.broken, w.lost, w.failed = 0, 0, ""
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
	w.task, w.images = words, images
	for {
		now := seen
		if w.s.Config.History == historyActions {
			w.talk = nil
		}
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

// next is what follows a reply.
type next struct {
	seen  environment.Observation
	words string
}

// tries is how many replies in a row may be unreadable where no number of steps ends
// the turn.
const tries = 3

// ask gets a reply, and does what it says. done is not nil if the turn ends.
func (w *worker) ask(ctx context.Context, keys []string, r *loop.Recorder) (done *agent.Yield, step trajectory.Step, n next, err error) {
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
		w.lost = 0
		done, n, err = w.act(ctx, list, &step)
		return done, step, n, err
	}
	w.broken++
	w.lost++
	if w.s.Config.Unreadable == unreadableEnd || w.offer.Steps == 0 && w.lost == tries {
		return w.over(agent.Crashed, "", fmt.Sprintf("a reply of the model has no action that can be read: %s", wrong)), step, n, nil
	}
	// The reply counts as a step. A surface without the action refuses it, and counts it all the same.
	if _, done, err = w.do(ctx, environment.Call{Name: waitAction, Arguments: json.RawMessage(waitArguments)}, "action-1", &step, &n); err != nil || done != nil {
		return done, step, n, err
	}
	w.past = append(w.past, waitAction+"("+waitArguments+")")
	w.failed = fmt.Sprintf("That was not an action that can be read: %s. Nothing was done. Reply with an action in a code fence, or with the answer.", wrong)
	n.words = w.failed
	return nil, step, n, nil
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
	var told, made []string
	for i := range list {
		c := environment.Call{Name: list[i].Name, More: i < len(list)-1}
		if c.Arguments, err = arguments(w.offer, &list[i]); err != nil {
			c.Arguments = unnamed(&list[i]) // the core refuses them, and counts the step
		}
		wrong := err
		made = append(made, c.Name+"("+string(c.Arguments)+")")
		w.failed, done, err = w.do(ctx, c, fmt.Sprintf("action-%d", i+1), step, &n)
		if err != nil || done != nil {
			return done, n, err
		}
		if w.failed != "" && wrong != nil {
			w.failed = wrong.Error() // it says which parameters there are
		}
		if w.failed != "" {
			told = append(told, c.Name+" was refused: "+w.failed)
			break
		}
		told = append(told, c.Name+" is done.")
	}
	w.past = append(w.past, strings.Join(made, "; "))
	n.words = strings.Join(told, "\n")
	return nil, n, nil
}

// do does one action. failed is why it was refused; empty: it was not.
func (w *worker) do(ctx context.Context, c environment.Call, id string, step *trajectory.Step, n *next) (failed string, done *agent.Yield, err error) {
	if err = loop.Call(step, id, c.Name, c.Arguments); err != nil {
		return "", nil, err
	}
	s, err := w.s.Surface.Act(ctx, c, w.kinds)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	text := c.Name + " is done."
	if s.Error != "" {
		text = c.Name + " was refused: " + s.Error
	}
	loop.Observe(step, id, text)
	if done = w.ended(&c, &s); done != nil {
		if done.End == agent.Done {
			loop.Final(step)
		}
		return s.Error, done, nil
	}
	if n.seen = s.Observation; s.Error != "" && n.seen.Text == "" && len(n.seen.JSON)+len(n.seen.Frames) == 0 { // the core refused it, and nothing was looked at
		n.seen, err = w.s.Surface.Observe(ctx, w.kinds)
	}
	return s.Error, nil, err
}

// ended reports whether the turn ends with an action. The first message to the user
// is the answer.
func (w *worker) ended(c *environment.Call, s *environment.Step) *agent.Yield {
	var said struct{ Text, Reason string }
	_ = json.Unmarshal(c.Arguments, &said) // of another action: empty
	switch {
	case s.Error == "" && c.Name == sayAction:
		return w.over(agent.Done, said.Text, "")
	case s.Error == "" && c.Name == infeasibleAction:
		return w.over(agent.Done, said.Reason, "the agent says that the task cannot be done")
	case s.Truncated:
		return w.over(agent.MaxSteps, "", "no steps are left")
	case s.Done:
		return w.over(agent.Done, "", "the surface is done")
	}
	return nil
}

// Close implements loop.Worker.
func (*worker) Close(context.Context, *loop.Recorder) error { return nil }

// messages returns the conversation. Of older observations only their names are
// left. With the history actions it is a single message.
func (w *worker) messages() (all []chat.Message) {
	if w.s.Config.History == historyActions {
		return []chat.Message{w.now()}
	}
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
			m.Images = append(m.Images, pictures(e.seen)...)
		}
		all = append(all, m)
		if e.answer {
			all = append(all, chat.Message{Role: chat.Assistant, Text: e.reply})
		}
	}
	return all
}

// now returns the task, what is seen now, and what was done so far.
func (w *worker) now() chat.Message {
	seen := w.talk[len(w.talk)-1].seen
	text := w.task + "\n\n" + w.text(seen)
	if len(w.past) > 0 {
		text += "# Your past actions\n" + strings.Join(w.past, "\n") + "\n"
	}
	if w.failed != "" {
		text += "# Error of the last action\n" + w.failed + "\n"
	}
	return chat.Message{Role: chat.User, Text: text + "# Your next action\n", Images: append(slices.Clone(w.images), pictures(seen)...)}
}

func pictures(o *environment.Observation) (all []chat.Image) {
	for _, f := range o.Frames {
		all = append(all, chat.Image{MediaType: f.MediaType, Data: f.Data})
	}
	return all
}

// maxText is how much text of an observation the model gets, in characters.
const maxText = 60_000

// text returns what is seen as text, part by part.
func (w *worker) text(o *environment.Observation) string {
	text := surface.Text(o, w.kinds)
	if len(o.Frames) > 0 {
		text += "The picture shows what is seen now.\n"
	}
	r := []rune(text)
	if len(r) > maxText {
		return string(r[:maxText]) + "\n(the rest is left out)\n"
	}
	return text
}

// errNoObject means that a text is not a JSON object.
var errNoObject = errors.New("no JSON object")
