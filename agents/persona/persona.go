package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/loop"
	"github.com/berth-eval/berth/plugins/model/chat"
	"github.com/berth-eval/berth/plugins/model/chat/viewtools"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// system is in the first person, so that the model speaks as the user does. It
// must not contain words of an evaluation: they would reach the assistant.
const system = `I have asked an assistant to do something for me on its computer. I read what it answers and what it did, and tell it what to do next. I am not the assistant: I do no work, I call it "you", and I never speak in its name.

I know only what I asked for and what I can see. I do not invent requirements, and I do not know how the work should be done, unless I said so. I write in the language of my request, plainly and briefly, as a person does in a chat. I do not say that the work is complete. If I want to know more before I write, I look at the files that I can see.

I reply with one JSON object:
- mode: "silent" if there is nothing to say, "nudge" if the assistant should just continue, "instruction" if I tell it what is missing.
- tone: "neutral", "firm" or "urgent".
- candidate_feedback: my message to the assistant, at most 1,200 characters.
- public_feedback_points: what I noticed, point by point, as far as the assistant may know it; at most 12 points of at most 400 characters.`

// ending is what the user is told in addition if it may end the conversation.
const ending = `

I end the conversation when I have what I asked for, or when I give up because I will not get it:
- when I have it, candidate_feedback is only %s.
- when I give up, mode is "give_up", and candidate_feedback says why.`

// Why the user ended the conversation.
const (
	endDone   = "done"
	endGaveUp = "gave_up"
	endLimit  = "limit"
)

// schema is what a reply looks like. A word of which there is a choice is mended
// when it is none of them.
const schema = `{
  "type": "object",
  "properties": {
    "mode": {"type": "string", "description": "silent, nudge or instruction"},
    "tone": {"type": "string", "description": "neutral, firm or urgent"},
    "candidate_feedback": {"type": "string"},
    "public_feedback_points": {"type": "array", "items": {"type": "string"}}
  },
  "required": ["mode", "tone", "candidate_feedback", "public_feedback_points"],
  "additionalProperties": false
}`

// Bounds of a reply. What is beyond them is left out.
const (
	maxCandidate = 1200 // characters
	maxPoints    = 12
	maxPoint     = 400 // characters
	maxLooks     = 20  // replies that call tools before a message
)

// feedback is what the user replies with.
type feedback struct {
	Mode      string   `json:"mode"`
	Tone      string   `json:"tone"`
	Candidate string   `json:"candidate_feedback"`
	Points    []string `json:"public_feedback_points"`
}

// checked returns the feedback with words and lengths as they should be.
func (f feedback) checked() feedback {
	if !slices.Contains([]string{"silent", "nudge", "instruction"}, f.Mode) {
		f.Mode = "nudge"
	}
	if !slices.Contains([]string{"neutral", "firm", "urgent"}, f.Tone) {
		f.Tone = "neutral"
	}
	f.Candidate = cut(f.Candidate, maxCandidate)
	points := []string{}
	for _, p := range f.Points[:min(len(f.Points), maxPoints)] {
		points = append(points, cut(p, maxPoint))
	}
	f.Points = points
	return f
}

// cut returns the first n characters of a text.
func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n])
	}
	return s
}

// worker is one session.
type worker struct {
	s    *loop.Session[Config]
	talk []chat.Message
	sent int // messages to the assistant
}

// Close implements loop.Worker.
func (w *worker) Close(context.Context, *loop.Recorder) error { return nil }

// Turn implements loop.Worker. Its yield is the feedback as JSON, or no message and
// the reason why the user ends the conversation.
func (w *worker) Turn(ctx context.Context, m agent.Message, r *loop.Recorder) (agent.Yield, error) {
	if limit := w.s.Config.MaxMessages; limit > 0 && w.sent >= limit {
		return agent.Yield{End: agent.Done, Reason: endLimit}, nil
	}
	w.talk = loop.Say(w.talk, m.Text, nil)
	first, err := w.instructions()
	if err != nil {
		return agent.Yield{}, err
	}
	q := chat.Request{System: first, Tools: viewtools.Tools, Schema: json.RawMessage(schema), Effort: w.s.Config.ReasoningEffort, Temperature: w.s.Config.Temperature}
	for looks := 0; ; looks++ {
		if looks == maxLooks { // from here on it has to write
			q.Tools = nil
		}
		q.Messages = w.talk
		reply, err := r.Ask(ctx, w.s.Model, q)
		switch {
		case errors.Is(err, chat.ErrBadReply), errors.Is(err, chat.ErrTooLong):
			return agent.Yield{End: agent.Crashed, Reason: err.Error()}, nil
		case err != nil:
			return agent.Yield{}, err
		}
		step := r.Of(reply, reply.Text)
		if len(reply.Calls) == 0 {
			return w.said(reply, step, r)
		}
		if looks > maxLooks {
			return agent.Yield{End: agent.Crashed, Reason: "the user's model only calls tools"}, r.Step(step)
		}
		if err = w.look(&step, reply, r); err != nil {
			return agent.Yield{}, err
		}
	}
}

// said ends the turn with a reply.
func (w *worker) said(reply chat.Reply, step trajectory.Step, r *loop.Recorder) (agent.Yield, error) {
	var f feedback
	if err := json.Unmarshal(reply.JSON, &f); err != nil {
		return agent.Yield{End: agent.Crashed, Reason: err.Error()}, r.Step(step)
	}
	w.talk = append(w.talk, chat.Message{Role: chat.Assistant, Text: reply.Text})
	if stop := w.s.Config.StopWord; stop != "" {
		switch {
		case strings.Contains(f.Candidate, stop):
			return agent.Yield{End: agent.Done, Reason: endDone}, r.Step(step)
		case f.Mode == "give_up":
			return agent.Yield{End: agent.Done, Reason: endGaveUp}, r.Step(step)
		}
	}
	w.sent++
	out, err := json.Marshal(f.checked())
	if err != nil {
		return agent.Yield{}, err
	}
	return agent.Yield{End: agent.Done, Message: string(out)}, r.Step(step)
}

// look carries out the calls of a reply.
func (w *worker) look(step *trajectory.Step, reply chat.Reply, r *loop.Recorder) error {
	results := make([]chat.Result, len(reply.Calls))
	for i, c := range reply.Calls {
		results[i] = viewtools.View(w.s.Setup.View).Do(c)
		if err := loop.Call(step, c.ID, c.Name, c.Arguments); err != nil {
			return err
		}
		loop.Observe(step, c.ID, results[i].Text)
	}
	w.talk = append(w.talk, chat.Message{Role: chat.Assistant, Text: reply.Text, Calls: reply.Calls}, chat.Message{Role: chat.User, Results: results})
	return r.Step(*step)
}

// instructions returns the system prompt: that of the experiment, or else our own.
func (w *worker) instructions() (string, error) {
	c := &w.s.Config
	text := c.Prompt
	if text == "" {
		text = system
		if c.StopWord != "" {
			text = strings.Replace(text, " I do not say that the work is complete.", "", 1) + fmt.Sprintf(ending, c.StopWord)
		}
		if c.Policy != "" {
			text += "\n\nHow I behave:\n{{policy}}"
		}
	}
	task := ""
	if strings.Contains(text, "{{task}}") {
		b, err := os.ReadFile(filepath.Join(w.s.Setup.View, "instruction.md"))
		if err != nil {
			return "", fmt.Errorf("the task: %w", err)
		}
		task = strings.TrimSpace(string(b))
	}
	return strings.NewReplacer("{{policy}}", c.Policy, "{{task}}", task).Replace(text), nil
}
