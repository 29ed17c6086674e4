package main

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/loop"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/model/chat"
	"github.com/berth-eval/berth/plugins/surface"
	"github.com/berth-eval/berth/plugins/trajectory"
)

//go:embed prompts
var prompts embed.FS

// prompt returns one of the planner's own texts.
func prompt(name string) string {
	b, err := prompts.ReadFile("prompts/" + name + ".md")
	if err != nil {
		panic(err) // they are part of the program
	}
	return strings.TrimSpace(string(b))
}

// worker is the agent in one session.
type worker struct {
	s      *loop.Session[Config]
	offer  *environment.Offer
	kinds  []string
	system string // with marks for what is seen
	told   string // the text after an observation, with such marks

	task  string                   // of the turn
	shown []chat.Image             // pictures of the task
	first *environment.Observation // before the first action of the turn
	pairs []pair
}

// pair is a reply of the model, and what was seen after its actions.
type pair struct {
	reply string
	words string // what was done
	seen  environment.Observation
}

func newWorker(s *loop.Session[Config], offer *environment.Offer) (*worker, error) {
	w := &worker{s: s, offer: offer, kinds: s.Config.Observations}
	if len(w.kinds) == 0 {
		w.kinds = offer.Observations
	}
	c := &s.Config
	var actions strings.Builder
	for i := range offer.Actions {
		fmt.Fprintf(&actions, "- %s: %s\n", offer.Actions[i].Name, offer.Actions[i].Doc)
	}
	w.system = strings.NewReplacer(
		"{{actions}}", actions.String(), "{{steps}}", fmt.Sprint(offer.Steps), "{{format}}", cmp.Or(c.FormatPrompt, prompt(c.format()))+"\n",
	).Replace(cmp.Or(c.Prompt, prompt(cmp.Or(c.Mode, modeOnline))))
	w.told = cmp.Or(c.Continue, prompt("continue"))
	for _, m := range mark.FindAllStringSubmatch(w.system+w.told, -1) {
		if !slices.Contains(w.kinds, m[1]) {
			return nil, fmt.Errorf("%w: a prompt has {{%s}}, and the agent sees no %s: it sees %s", agent.ErrBadConfig, m[1], m[1], strings.Join(w.kinds, ", "))
		}
	}
	return w, nil
}

// mark stands for a kind of observation in a prompt.
var mark = regexp.MustCompile(`\{\{([a-z][a-z0-9_]*)\}\}`)

// filled replaces the marks of a prompt by what is seen.
func (w *worker) filled(text string, seen *environment.Observation) string {
	return mark.ReplaceAllStringFunc(text, func(m string) string {
		return cut(surface.Part(seen, strings.Trim(m, "{}")))
	})
}

// Turn implements loop.Worker.
func (w *worker) Turn(ctx context.Context, m agent.Message, r *loop.Recorder) (agent.Yield, error) {
	if len(w.offer.Actions) == 0 {
		return agent.Yield{End: agent.Done, Reason: "the surface has no action"}, nil
	}
	pictures, err := loop.Images(w.s.Setup.View, m.Files)
	if err != nil {
		return agent.Yield{}, err
	}
	seen, err := w.s.Surface.Observe(ctx, w.kinds)
	if err != nil {
		return agent.Yield{}, err
	}
	w.task, w.shown, w.first, w.pairs = m.Text, pictures, &seen, nil
	loops, lost := w.s.Config.MaxLoop, 0
	if w.s.Config.Mode == modeGlobal {
		loops = 1
	}
	for range loops {
		done, acted, err := w.step(ctx, r)
		if err != nil || done != nil {
			if done == nil {
				done = &agent.Yield{}
			}
			return *done, err
		}
		if !acted {
			lost++
		}
	}
	y := agent.Yield{End: agent.Done, Reason: "all actions of the plan are done"}
	if w.s.Config.Mode != modeGlobal {
		y = agent.Yield{End: agent.MaxSteps, Reason: fmt.Sprintf("the %d steps of the planner are used up", loops)}
	}
	if lost > 0 {
		y.Reason += fmt.Sprintf("; in %d of them the model named no action", lost)
	}
	return y, nil
}

// tries is how many replies a step may have until one names an action.
const tries = 3

// step asks for what to do next, and does it. done is not nil if the turn ends.
func (w *worker) step(ctx context.Context, r *loop.Recorder) (done *agent.Yield, acted bool, err error) {
	c := &w.s.Config
	q := chat.Request{System: w.filled(w.system, w.latest()), Messages: w.messages(), MaxTokens: c.MaxTokens, Effort: c.ReasoningEffort, Temperature: number(c.Temperature), TopP: number(c.TopP)}
	for try := 1; ; try++ {
		reply, err := r.Ask(ctx, w.s.Model, q)
		if err != nil {
			return nil, false, err
		}
		step := r.Of(reply, reply.Text)
		if calls := c.parse(reply.Text, w.offer.Actions); len(calls) > 0 {
			p := pair{reply: reply.Text}
			done, err = w.act(ctx, calls, &p, &step)
			if done == nil && err == nil && c.Mode == modeGlobal { // the plan is done
				loop.Final(&step)
			}
			w.pairs = append(w.pairs, p)
			if failed := r.Step(step); err == nil {
				err = failed
			}
			return done, true, err
		}
		if err = r.Step(step); err != nil || try == tries {
			return nil, false, err
		}
		q.Messages = append(q.Messages,
			chat.Message{Role: chat.Assistant, Text: reply.Text},
			chat.Message{Role: chat.User, Text: cmp.Or(c.Regenerate, prompt("regenerate"))})
	}
}

// number returns a setting that may be left to the provider.
func number(v float64) *float64 {
	if v == unset {
		return nil
	}
	return &v
}

// act does the actions of a reply, up to one after which nothing may follow. What
// is refused is told, and the next one is tried.
func (w *worker) act(ctx context.Context, calls []environment.Call, p *pair, step *trajectory.Step) (done *agent.Yield, err error) {
	var told []string
	for i := range calls {
		call := &calls[i]
		call.More = i < len(calls)-1
		if len(call.Arguments) == 0 {
			call.Arguments = json.RawMessage("{}")
		}
		id := fmt.Sprintf("action-%d", i+1)
		if err = loop.Call(step, id, call.Name, call.Arguments); err != nil {
			return nil, err
		}
		s, err := w.s.Surface.Act(ctx, *call, w.kinds)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", call.Name, err)
		}
		text := call.Name + " is done."
		if s.Error != "" {
			text = call.Name + " was refused: " + s.Error
		}
		loop.Observe(step, id, text)
		told, p.seen = append(told, text), s.Observation
		if s.Done {
			loop.Final(step)
			return &agent.Yield{End: agent.Done, Reason: "the surface is done"}, nil
		}
		if s.Truncated {
			return &agent.Yield{End: agent.MaxSteps, Reason: "no actions are left"}, nil
		}
	}
	p.words = strings.Join(told, "\n")
	return nil, nil //nolint:nilnil // the turn continues
}

// Close implements loop.Worker.
func (*worker) Close(context.Context, *loop.Recorder) error { return nil }

// messages returns the conversation: the task, and the last pairs of action and
// observation. Only the newest observations have their pictures; those of the task
// are always there.
func (w *worker) messages() []chat.Message {
	c := &w.s.Config
	kept := w.pairs[max(0, len(w.pairs)-c.AM):]
	first := chat.Message{Role: chat.User, Text: "Your task:\n\n" + w.task, Images: slices.Clone(w.shown)}
	if len(kept) == len(w.pairs) { // it stands right before the first pair
		w.show(&first, w.first, w.system, len(kept) < c.OM)
	}
	all := []chat.Message{first}
	for i := range kept {
		m := chat.Message{Role: chat.User, Text: kept[i].words + "\n\n" + w.filled(w.told, &kept[i].seen)}
		w.show(&m, &kept[i].seen, w.system+w.told, len(kept)-i <= c.OM)
		all = append(all, chat.Message{Role: chat.Assistant, Text: kept[i].reply}, m)
	}
	return all
}

// latest returns what was seen last.
func (w *worker) latest() *environment.Observation {
	if n := len(w.pairs); n > 0 {
		return &w.pairs[n-1].seen
	}
	return w.first
}

// maxText is how much text of an observation the model gets, in characters.
const maxText = 60_000

// cut shortens a text for the model.
func cut(s string) string {
	if text := []rune(s); len(text) > maxText {
		return string(text[:maxText]) + "\n(the rest is left out)\n"
	}
	return s
}

// show adds an observation to a message, without what the prompt has already.
func (w *worker) show(m *chat.Message, o *environment.Observation, prompt string, pictures bool) {
	rest, has := *o, func(kind string) bool { return strings.Contains(prompt, "{{"+kind+"}}") }
	if has(environment.KindText) {
		rest.Text = ""
	}
	m.Text = strings.TrimRight(m.Text+"\n\n"+cut(surface.Text(&rest, slices.DeleteFunc(slices.Clone(w.kinds), has))), "\n")
	if !pictures {
		return
	}
	for _, f := range o.Frames {
		m.Images = append(m.Images, chat.Image{MediaType: f.MediaType, Data: f.Data})
	}
}
