package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-eval/berth/agents/terminus/internal/protocol"
	"github.com/berth-eval/berth/agents/terminus/internal/screen"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/asciicast"
	"github.com/berth-eval/berth/plugins/agent/loop"
	"github.com/berth-eval/berth/plugins/model/chat"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// castFile is the recording of the terminal, in the scratch folder.
const castFile = "terminal.cast"

// maxBad is how many replies in a row may be unusable before the agent gives
// up. A model that does not use the format by then will not learn it.
const maxBad = 10

// maxPrior is how much of an earlier trajectory goes into the prompt, in bytes.
const maxPrior = 20000

// worker is one session.
type worker struct {
	s    *loop.Session[Config]
	c    *Config
	tty  *screen.TTY
	term terminal

	offers      string // the skills that come with the task
	instruction string // all messages of the user
	talk        conversation
	turns       int64 // replies requested for steps
	summaries   int
	asked       bool // the model was asked to confirm that it is done
}

func newWorker(s *loop.Session[Config]) (*worker, error) {
	w := &worker{s: s, c: &s.Config}
	var cast *asciicast.Cast
	if s.Setup.Scratch != "" {
		var err error
		if cast, err = asciicast.New(filepath.Join(s.Setup.Scratch, castFile), s.Setup.Session, rows, columns, time.Now()); err != nil {
			return nil, err
		}
	}
	w.tty = screen.NewTTY(screen.Options{Rows: rows, Columns: columns, Limit: outputBytes, Cast: cast})
	w.term = terminal{box: s.Shell, tty: w.tty, cast: cast, spec: sandbox.TerminalSpec{
		Rows: rows, Columns: columns, Dir: s.Setup.Workdir, User: s.Setup.User,
	}}
	return w, nil
}

// Close implements loop.Worker.
func (w *worker) Close(context.Context, *loop.Recorder) error { return w.tty.Close() }

// Turn implements loop.Worker.
func (w *worker) Turn(ctx context.Context, m agent.Message, r *loop.Recorder) (y agent.Yield, err error) {
	images, err := loop.Images(w.s.Setup.View, m.Files)
	if err != nil {
		return agent.Yield{}, err
	}
	if err = w.term.attach(ctx); err != nil {
		return agent.Yield{}, err
	}
	defer func() { err = errors.Join(err, w.term.detach()) }()
	if w.talk.empty() {
		err = w.begin(ctx, m.Text, images, r)
	} else {
		w.instruction += "\n\nLater the user said:\n\n" + m.Text
		w.asked = false
		w.talk.say(fmt.Sprintf("The user says:\n\n%s\n\n%s", m.Text, shown(w.tty.Look())), images)
	}
	if err != nil {
		return agent.Yield{}, err
	}
	return w.work(ctx, r)
}

// begin builds the first message of the session.
func (w *worker) begin(ctx context.Context, instruction string, images []chat.Image, r *loop.Recorder) (err error) {
	if w.instruction != "" { // a turn was cut off before its first request
		instruction = w.instruction + "\n\nLater the user said:\n\n" + instruction
	}
	w.instruction = instruction
	if w.s.Setup.Scratch != "" {
		if err = r.Artifact(castFile); err != nil {
			return err
		}
	}
	if w.offers, err = loop.Skills(ctx, w.s.Shell, w.s.Setup.Skills); err != nil {
		return err
	}
	prior, err := loop.Prior(w.s.Setup.Prior, maxPrior)
	if err != nil {
		return err
	}
	if err = w.term.ready(ctx); err != nil {
		return err
	}
	w.talk.say(w.prompt(instruction, prior, w.tty.Look().Text), images)
	return nil
}

// work runs steps until the agent yields.
func (w *worker) work(ctx context.Context, r *loop.Recorder) (agent.Yield, error) {
	for bad := 0; ; {
		if w.c.MaxTurns > 0 && w.turns >= w.c.MaxTurns {
			return agent.Yield{End: agent.MaxSteps, Reason: fmt.Sprintf("max_turns = %d is reached", w.c.MaxTurns)}, nil
		}
		reply, err := w.ask(ctx, r)
		switch {
		case errors.Is(err, chat.ErrTooLong):
			return agent.Yield{End: agent.Crashed, Reason: "the instruction alone does not fit into the model's context: " + err.Error()}, nil
		case err != nil:
			return agent.Yield{}, err
		}
		w.turns++
		w.talk.answer(reply.Text)
		if reply.Stop == chat.Refused {
			return agent.Yield{End: agent.Refused, Message: reply.Text, Reason: "the model refused"}, r.Step(w.step(r, reply, reply.Text))
		}
		parsed, wrong := protocol.Parse(reply.Text)
		if reply.Stop == chat.Length {
			wrong = errors.New(cutOff)
		}
		if wrong != nil {
			if bad++; bad == maxBad {
				return agent.Yield{End: agent.Crashed, Reason: fmt.Sprintf("%d replies in a row could not be used; of the last: %s", bad, wrong)}, r.Step(w.step(r, reply, reply.Text))
			}
			if err = w.reject(r, reply, wrong); err != nil {
				return agent.Yield{}, err
			}
			continue
		}
		bad = 0
		done, err := w.act(ctx, r, reply, &parsed)
		if err != nil {
			return agent.Yield{}, err
		}
		if done {
			return agent.Yield{End: agent.Done, Message: strings.TrimSpace(parsed.Analysis), Reason: "the model said twice that the task is complete"}, nil
		}
	}
}

// ask gets the next reply and shortens the conversation if needed. ErrTooLong
// means that it cannot be shortened further.
func (w *worker) ask(ctx context.Context, r *loop.Recorder) (chat.Reply, error) {
	for how := full; ; how++ {
		reply, err := r.Ask(ctx, w.s.Model, w.request(w.talk.messages))
		if !errors.Is(err, chat.ErrTooLong) || how > bare {
			return reply, err
		}
		if err = w.shorten(ctx, r, how); err != nil {
			return chat.Reply{}, err
		}
	}
}

func (w *worker) request(messages []chat.Message) chat.Request {
	return chat.Request{Messages: messages, Effort: w.c.ReasoningEffort, MaxTokens: w.c.MaxTokens, Temperature: w.c.Temperature}
}

// reject tells the model what was wrong with its reply.
func (w *worker) reject(r *loop.Recorder, reply chat.Reply, wrong error) error {
	w.asked = false
	text := fmt.Sprintf(unreadable, wrong, shown(w.tty.Look()))
	step := w.step(r, reply, reply.Text)
	loop.Observe(&step, "", text)
	w.talk.say(text, nil)
	return r.Step(step)
}

// act types the model's keystrokes and shows it the output. done means that the
// model has said twice that the task is complete.
func (w *worker) act(ctx context.Context, r *loop.Recorder, reply chat.Reply, p *protocol.Reply) (done bool, err error) {
	step := w.step(r, reply, fmt.Sprintf("Analysis: %s\nPlan: %s", p.Analysis, p.Plan))
	id := func(what any) string { return fmt.Sprintf("call_%d_%v", w.turns, what) }
	var notes []string
	w.term.cast.Mark(fmt.Sprintf("reply %d", w.turns))
	for i, c := range p.Commands {
		if err = loop.Call(&step, id(i+1), "type", map[string]any{"keystrokes": c.Keystrokes, "duration": c.Duration.Seconds()}); err != nil {
			return false, err
		}
		note, lost := w.term.do(ctx, c)
		if lost != nil {
			return false, errors.Join(lost, r.Step(step)) // record the step that was started
		}
		if note != "" {
			notes = append(notes, note)
		}
	}
	if p.Complete {
		if err = loop.Call(&step, id("task_complete"), "task_complete", struct{}{}); err != nil {
			return false, err
		}
	}
	done = p.Complete && w.asked
	w.asked = p.Complete
	text := w.observation(p, notes)
	call := ""
	if len(step.ToolCalls) == 1 {
		call = step.ToolCalls[0].ID
	}
	loop.Observe(&step, call, text)
	if done {
		loop.Final(&step)
	} else {
		w.talk.say(text, nil)
	}
	return done, errors.Join(r.Step(step), w.term.cast.Flush())
}

// observation returns what the model sees after its commands.
func (w *worker) observation(p *protocol.Reply, notes []string) string {
	view := w.tty.Look()
	var b strings.Builder
	for _, warning := range p.Warnings {
		b.WriteString("Warning: " + warning + ".\n")
	}
	for _, note := range notes {
		b.WriteString("Note: " + note + ".\n")
	}
	if p.Complete {
		fmt.Fprintf(&b, confirm, view.Text)
	} else {
		b.WriteString(shown(view))
	}
	return b.String()
}

// shown returns a view as text for the model.
func shown(v screen.View) string {
	switch {
	case v.Unchanged:
		return "Nothing new has come. The terminal shows:\n" + v.Text
	case v.Whole:
		return "The terminal shows:\n" + v.Text
	default:
		return "New in the terminal:\n" + v.Text
	}
}

// step returns a new step for a reply.
func (w *worker) step(r *loop.Recorder, reply chat.Reply, message string) trajectory.Step {
	s := r.Of(reply, message)
	s.ReasoningEffort = trajectory.Effort(w.c.ReasoningEffort)
	return s
}
