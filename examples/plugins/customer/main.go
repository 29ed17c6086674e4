// Command customer is an agent that plays a simulated user: its model writes the
// next message to the agent under test.
package main

import (
	"context"
	"strings"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/loop"
	"github.com/berth-eval/berth/plugins/model/chat"
)

const system = `You are the person who gave an assistant a task. You are told what it answered, and you see the files that it made for you.
Write your next message to it, in a few sentences: what is missing or wrong. Write as yourself, and nothing besides the message.
If you are content, reply with the single word DONE.`

type customer struct {
	s    *loop.Session[struct{}]
	talk []chat.Message
}

func (c *customer) Turn(ctx context.Context, m agent.Message, r *loop.Recorder) (agent.Yield, error) {
	talk := append(c.talk, chat.Message{Role: chat.User, Text: m.Text})
	reply, err := r.Ask(ctx, c.s.Model, chat.Request{System: system, Messages: talk})
	if err != nil {
		return agent.Yield{}, err
	}
	c.talk = append(talk, chat.Message{Role: chat.Assistant, Text: reply.Text})
	said := strings.TrimSpace(reply.Text)
	if said == "DONE" {
		said = "" // an empty message ends the conversation
	}
	return agent.Yield{End: agent.Done, Message: said}, r.Step(r.Of(reply, reply.Text))
}

func (c *customer) Close(context.Context, *loop.Recorder) error { return nil }

func main() {
	info := plugins.Info{Name: "customer", Version: "1.0.0", Doc: "Plays a simulated user: a model writes the next message to the agent."}
	plugins.Serve(plugins.Agent(info, struct{}{}, loop.Agent[struct{}]{
		NoShell: true,
		New: func(_ context.Context, s *loop.Session[struct{}]) (loop.Worker, error) {
			return &customer{s: s}, nil
		},
	}))
}
