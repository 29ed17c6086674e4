package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-eval/berth/plugins/agent/loop"
	"github.com/berth-eval/berth/plugins/model/chat"
	"github.com/berth-eval/berth/plugins/output"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// conversation is the conversation so far.
type conversation struct{ messages []chat.Message }

func (c *conversation) empty() bool { return len(c.messages) == 0 }

func (c *conversation) say(text string, images []chat.Image) {
	c.messages = loop.Say(c.messages, text, images)
}

func (c *conversation) answer(text string) {
	c.messages = append(c.messages, chat.Message{Role: chat.Assistant, Text: text})
}

// without returns the conversation without its newest messages, of about that
// many bytes, and without a message that waits for a reply. The first message
// always stays.
func (c *conversation) without(drop int) []chat.Message {
	out := c.messages
	for len(out) > 1 && (drop > 0 || out[len(out)-1].Role == chat.User) {
		drop -= len(out[len(out)-1].Text)
		out = out[:len(out)-1]
	}
	return out
}

// size returns how many bytes of text the conversation has.
func (c *conversation) size() (n int) {
	for i := range c.messages {
		n += len(c.messages[i].Text)
	}
	return n
}

// shortening is a way to make a conversation shorter. Each way needs less space
// than the one before.
type shortening int

const (
	full  shortening = iota // a summary in three steps
	short                   // a few lines, from the end of the conversation
	bare                    // the instruction and the screen
)

// The prompts for making a conversation shorter.
const (
	askSummary = `Your work is about to be handed over to an agent that knows only the task. This one time reply in plain text: tell in detail what was done and found so far, which files and programs matter, what was tried and did not work, and what is left to do. Type nothing.`

	askQuestions = `Before you continue this work, ask your predecessor what you need to know and was not told above: at least five questions, about what exactly was changed, where things are, what is certain and what only assumed. This one time reply in plain text. Type nothing.`

	askAnswers = `Your successor has these questions. This one time reply in plain text: answer each of them from what you have seen, and say where you do not know.

%s`

	askShort = `This is the end of a long session at a terminal:

%s

It was about this task:

%s

Tell in a few sentences what seems to be done and what is left to do.`

	handOver = `These are the answers:

%s

Now continue the work, in the form that was described at the beginning. %s`
)

// maxDrops is how often more of the end is left out when the summary still does
// not fit.
const maxDrops = 4

// shorten replaces the conversation with a shorter one. If one way does not
// work, it tries the next. Only the end of ctx is an error.
func (w *worker) shorten(ctx context.Context, r *loop.Recorder, how shortening) error {
	w.summaries++
	w.asked = false
	sub := &subagents{n: w.summaries, r: r, scratch: w.s.Setup.Scratch, model: w.s.Model}
	next, how, err := w.shorter(ctx, sub, how)
	if err != nil {
		return err
	}
	said := next.messages[len(next.messages)-1].Text
	w.talk = next
	step := trajectory.Step{
		Timestamp: trajectory.Stamp(time.Now()), Source: trajectory.System,
		Message: trajectory.Text([]string{"The conversation was handed over with a summary.", "The conversation was replaced by a short summary.", "The conversation was begun anew."}[how]),
		Extra:   json.RawMessage(`{"context_management":{"type":"compaction","boundary":"replace"}}`),
	}
	if len(sub.refs) > 0 {
		step.Observation = &trajectory.Observation{Results: []trajectory.Result{{Subagents: sub.refs}}}
	}
	return errors.Join(r.Step(step), r.Note(trajectory.User, said))
}

// shorter makes the shorter conversation in the given way.
func (w *worker) shorter(ctx context.Context, sub *subagents, how shortening) (c conversation, _ shortening, err error) {
	if how == full {
		if c, err = w.handOver(ctx, sub); err == nil {
			return c, full, nil
		}
	}
	if how <= short && ctx.Err() == nil {
		const end = 1000 // characters of the screen
		text := w.tty.Screen()
		text = text[max(0, len(text)-end):]
		var said string
		if said, err = sub.ask(ctx, "short", w.request([]chat.Message{{Role: chat.User, Text: fmt.Sprintf(askShort, output.Middle(text, end), w.instruction)}})); err == nil {
			c.say(w.prompt(w.instruction, said, w.tty.Screen()), nil)
			return c, short, nil
		}
	}
	if ctx.Err() != nil {
		return c, how, context.Cause(ctx)
	}
	c.say(w.prompt(w.instruction, "", w.tty.Screen()), nil)
	return c, bare, nil
}

// handOver makes a summary, lets a successor ask questions about it, and has
// them answered from the full conversation.
func (w *worker) handOver(ctx context.Context, sub *subagents) (c conversation, err error) {
	drop := 0
	var past []chat.Message
	var summary string
	for try := 0; ; try++ {
		past = append([]chat.Message(nil), w.talk.without(drop)...)
		if past[len(past)-1].Role == chat.User {
			past[len(past)-1].Text += "\n\n" + askSummary
		} else {
			past = append(past, chat.Message{Role: chat.User, Text: askSummary})
		}
		summary, err = sub.ask(ctx, "summary", w.request(past))
		if err == nil {
			break
		}
		if !errors.Is(err, chat.ErrTooLong) || try == maxDrops || len(past) == 1 {
			return c, err
		}
		drop = max(2*drop, w.talk.size()/8, 1)
	}
	c.say(w.prompt(w.instruction, summary, w.tty.Screen())+"\n"+askQuestions, nil)
	questions, err := sub.ask(ctx, "questions", w.request(c.messages))
	if err != nil {
		return c, err
	}
	past = append(past, chat.Message{Role: chat.Assistant, Text: summary}, chat.Message{Role: chat.User, Text: fmt.Sprintf(askAnswers, questions)})
	answers, err := sub.ask(ctx, "answers", w.request(past))
	if err != nil {
		return c, err
	}
	c.answer(questions)
	c.say(fmt.Sprintf(handOver, answers, "The terminal shows:\n"+w.tty.Screen()), nil)
	return c, nil
}

// subagents asks a model outside the conversation and records each answer as a
// separate trajectory.
type subagents struct {
	n       int
	r       *loop.Recorder
	model   chat.Model
	scratch string
	refs    []trajectory.SubagentRef
}

// errEmpty means that the model gave an empty answer.
var errEmpty = errors.New("the answer is empty")

func (s *subagents) ask(ctx context.Context, what string, q chat.Request) (string, error) {
	reply, err := s.model.Ask(ctx, q)
	if err != nil {
		return "", err
	}
	if err = s.record(what, q.Messages[len(q.Messages)-1].Text, reply); err != nil {
		return "", err
	}
	if reply.Text == "" || reply.Stop == chat.Refused {
		return "", errEmpty
	}
	return reply.Text, nil
}

// record writes the trajectory of one answer. The core keeps the scratch
// folder as agent/, beside the main trajectory.
func (s *subagents) record(what, question string, reply chat.Reply) error {
	if s.scratch == "" {
		return nil
	}
	asked := trajectory.Step{StepID: 1, Timestamp: trajectory.Stamp(time.Now()), Source: trajectory.User, Message: trajectory.Text(question)}
	said := s.r.Of(reply, reply.Text)
	said.StepID = 2
	b, err := json.MarshalIndent(trajectory.Trajectory{
		SchemaVersion: trajectory.Version, Agent: trajectory.Agent{Name: name + "-summarization-" + what, Version: version},
		Steps: []trajectory.Step{asked, said}, Notes: "What was said before is in the main trajectory.",
	}, "", "  ")
	if err != nil {
		return err
	}
	file := fmt.Sprintf("trajectory.summarization-%d-%s.json", s.n, what)
	if err = os.WriteFile(filepath.Join(s.scratch, file), b, 0o644); err != nil {
		return fmt.Errorf("record a summary: %w", err)
	}
	s.refs = append(s.refs, trajectory.SubagentRef{TrajectoryPath: "agent/" + file})
	return s.r.Artifact(file)
}
