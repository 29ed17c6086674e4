package scripted

import (
	"encoding/json"

	"github.com/berth-eval/berth/plugins/dialect"
)

// Voice is a dialect in which a scripted model can reply like the provider.
type Voice interface {
	dialect.Dialect

	// Whole encodes a reply as one body.
	Whole(s Speech) []byte
	// Stream encodes a reply as events, in order, each with its blank line.
	Stream(s Speech) [][]byte
	// Counted answers a request to count tokens.
	Counted(tokens int64) []byte
}

// Speech is a reply of a scripted model.
type Speech struct {
	ID       string // unique in the session, without spaces
	Model    string
	Thinking string
	Text     string
	Tools    []ToolCall
	Stop     Stop
	Usage    dialect.Usage
	Chunk    int // characters in a piece of a stream; 0: all at once
}

// ToolCall is a tool call of the model.
type ToolCall struct {
	Name      string
	Arguments json.RawMessage // an object, or a string for a tool that takes text
	Custom    bool            // the tool takes text, if the dialect has such tools
}

// Stop is the reason why a reply ends.
type Stop string

// The stops. The zero value is Done, or Tools when there are tool calls.
const (
	StopDone    Stop = "done"
	StopLength  Stop = "length"
	StopRefused Stop = "refused"
)

// Pieces cuts s into pieces of n characters; n of 0 or less makes one piece. An
// empty s has none.
func Pieces(s string, n int) []string {
	if s == "" {
		return nil
	}
	if n <= 0 {
		return []string{s}
	}
	var out []string
	start, count := 0, 0
	for i := range s {
		if count == n {
			out = append(out, s[start:i])
			start, count = i, 0
		}
		count++
	}
	return append(out, s[start:])
}

// ArgumentText returns the arguments of a tool call as text.
func (t ToolCall) ArgumentText() string {
	var s string
	if json.Unmarshal(t.Arguments, &s) == nil {
		return s
	}
	if len(t.Arguments) == 0 {
		return "{}"
	}
	return string(t.Arguments)
}
