package cli

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// Message is one message of the model, or a part of it. A Driver prints it as
// JSON.
type Message struct {
	ID       string      `json:"-"` // the same in all parts of a message; empty: the message has one part
	Text     string      `json:"text"`
	Thinking string      `json:"thinking"`
	Calls    []Call      `json:"calls"`
	Response string      `json:"-"`     // the provider's id of the response, for a CLI that reports it instead of the usage
	Stop     string      `json:"stop"`  // why the model stopped, in the CLI's or the provider's word; empty: unknown
	Usage    agent.Claim `json:"usage"` // the zero value: unknown, or not of this message alone
}

// Call is a tool call.
type Call struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// Tokens returns a usage in tokens. input includes tokens read from and written
// to a cache.
func Tokens(input, cached, output int64) agent.Claim {
	return agent.Claim{Input: &input, Cached: &cached, Output: &output}
}

// Message records a message of the model.
func (b *Transcript) Message(m Message) {
	if m.ID == "" {
		b.messages++
		m.ID = fmt.Sprint("message ", b.messages)
	}
	b.Think(m.ID, m.Thinking)
	b.Say(m.ID, m.Text)
	for _, c := range m.Calls {
		b.Call(m.ID, c.ID, c.Name, c.Arguments)
	}
	b.respond(m.ID, m.Response)
	if b.open != nil && b.id == m.ID {
		b.Stopped(m.Stop)
	}
	b.Use(m.ID, m.Usage)
	b.Used(m.Usage)
}

// Used adds to the usage of the turn. Message does this with its Usage.
func (b *Transcript) Used(c agent.Claim) { b.spentNow = added(b.spentNow, c) }

// UsedSoFar sets the usage of the whole session so far, for a CLI that reports
// totals. It returns what was used since the last total.
func (b *Transcript) UsedSoFar(now agent.Claim) agent.Claim {
	more := since(b.spentAll, now)
	b.spentNow, b.spentAll = added(b.spentNow, more), now
	return more
}

// since returns the usage since the total was before. A smaller total means
// that the CLI started counting again.
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

// added returns the sum of two claims. A value that only one of them has is
// taken as it is.
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

// Parse reads an event into v. A field of an unexpected type does not affect
// the other fields. False: the line is not JSON.
func Parse(line []byte, v any) bool {
	var odd *json.UnmarshalTypeError
	err := json.Unmarshal(line, v)
	return err == nil || errors.As(err, &odd)
}

// Driver reads the output of a driver: a short program of ours that runs an
// agent which is a library or prints no events. It prints one JSON object per
// line:
//
//	{"type": "session", "id": "…"}
//	{"type": "message", …}    a Message
//	{"type": "result", "id": "…", "text": "…", "failed": false}    of a call
//	{"type": "note", "text": "…"}    what the agent itself tells the model
//	{"type": "end", …}        an Ending
func Driver(b *Transcript) Events { return &driver{book: b} }

// driver implements Events.
type driver struct {
	book *Transcript
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
		if m.Text == "" && m.Thinking == "" && len(m.Calls) == 0 {
			d.book.Next()
			d.book.Empty(m.Usage)
			d.book.Used(m.Usage)
			return
		}
		d.book.Message(m)
	case "note":
		d.book.Note(trajectory.User, v.Text)
	case "result":
		d.book.Result(v.ID, v.Text, v.Failed)
	case "end":
		d.end = &Ending{}
		Parse(line, d.end)
		d.book.Stopped(d.end.Stop)
	}
}

// End implements Events.
func (d *driver) End(x Exit) (agent.Yield, error) {
	if d.end == nil {
		return d.book.Judge(x, Ending{Open: "the driver ended without an end event"})
	}
	return d.book.Judge(x, *d.end)
}
