package cli

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/berth-eval/berth/plugins/agent"
)

// Message is what the model said at once, or a part of it. A Driver prints it as
// JSON.
type Message struct {
	ID       string      `json:"-"` // the same in all parts of a message; empty: this is all of it
	Text     string      `json:"text"`
	Thinking string      `json:"thinking"`
	Calls    []Call      `json:"calls"`
	Usage    agent.Claim `json:"usage"` // the zero value: not told, or not of this message alone
}

// Call is a call of a tool.
type Call struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// Tokens is what was used. Input includes what was cached, and what was written to
// a cache.
func Tokens(input, cached, output int64) agent.Claim {
	return agent.Claim{Input: &input, Cached: &cached, Output: &output}
}

// Message records what the model said.
func (b *Book) Message(m Message) {
	if m.ID == "" {
		b.messages++
		m.ID = fmt.Sprint("message ", b.messages)
	}
	b.Think(m.ID, m.Thinking)
	b.Say(m.ID, m.Text)
	for _, c := range m.Calls {
		b.Call(m.ID, c.ID, c.Name, c.Arguments)
	}
	b.Use(m.ID, m.Usage)
	b.Used(m.Usage)
}

// Used adds to what the turn has used. Message does so with its Usage.
func (b *Book) Used(c agent.Claim) { b.spentNow = added(b.spentNow, c) }

// UsedSoFar is what the session has used by now, of a CLI that counts so.
func (b *Book) UsedSoFar(now agent.Claim) {
	b.spentNow = added(b.spentNow, since(b.spentAll, now))
	b.spentAll = now
}

// since is what was used since the total was before. A total that went down
// began anew.
func since(before, now agent.Claim) agent.Claim {
	return agent.Claim{
		Input: less(before.Input, now.Input), Cached: less(before.Cached, now.Cached), Output: less(before.Output, now.Output), Cost: less(before.Cost, now.Cost),
	}
}

func less[N int64 | float64](before, now *N) *N {
	if now == nil || before == nil || *before > *now {
		return now
	}
	d := *now - *before
	return &d
}

// added are two claims together; what one does not say is what the other does.
func added(a, b agent.Claim) agent.Claim {
	return agent.Claim{Input: plus(a.Input, b.Input), Cached: plus(a.Cached, b.Cached), Output: plus(a.Output, b.Output), Cost: plus(a.Cost, b.Cost)}
}

func plus[N int64 | float64](a, b *N) *N {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	s := *a + *b
	return &s
}

// Parse reads an event, as far as it is what v expects: one odd field loses
// nothing else. False: the line is no JSON.
func Parse(line []byte, v any) bool {
	var odd *json.UnmarshalTypeError
	err := json.Unmarshal(line, v)
	return err == nil || errors.As(err, &odd)
}

// Driver reads what a driver prints: a short program of ours that runs a CLI
// which has a library, but prints no events. They are JSON objects, one a line:
//
//	{"type": "session", "id": "…"}
//	{"type": "message", …}    a Message
//	{"type": "result", "id": "…", "text": "…", "failed": false}    of a call
//	{"type": "end", …}        an Ending
func Driver(b *Book) Events { return &driver{book: b} }

// driver implements Events.
type driver struct {
	book *Book
	end  *Ending
}

// Line implements Events.
func (d *driver) Line(line []byte) {
	var v struct {
		Type   string `json:"type"`
		ID     string `json:"id"`
		Text   string `json:"text"`
		Failed bool   `json:"failed"`
	}
	if !Parse(line, &v) {
		return
	}
	switch v.Type {
	case "session":
		d.book.Session = v.ID
	case "message":
		var m Message
		Parse(line, &m)
		d.book.Message(m)
	case "result":
		d.book.Result(v.ID, v.Text, v.Failed)
	case "end":
		d.end = &Ending{}
		Parse(line, d.end)
	}
}

// End implements Events.
func (d *driver) End(x Exit) (agent.Yield, error) {
	if d.end == nil {
		return d.book.Judge(x, Ending{Open: "it ended without saying why"})
	}
	return d.book.Judge(x, *d.end)
}
