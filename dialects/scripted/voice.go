package scripted

import (
	"encoding/json"

	"github.com/berth-eval/berth/core/gateway/dialect"
)

// Voice is a dialect in which a scripted model can reply as the provider would.
type Voice interface {
	dialect.Dialect

	// Talk is what a scripted model goes by.
	Talk(body *dialect.Object) (Talk, error)
	// Whole is a reply in one piece.
	Whole(s Speech) []byte
	// Stream is a reply as events, in order, each with its blank line.
	Stream(s Speech) [][]byte
	// Counted answers a question for a number of tokens.
	Counted(tokens int64) []byte
}

// Talk is a request as a scripted model sees it.
type Talk struct {
	Turn   int      // how many replies of the model are in it
	Last   string   // text after the last of them: of the user, or of tools
	System string   // instructions
	Tools  []string // names of the tools that are offered
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
	Chunk    int // characters of a piece of a stream; 0: all at once
}

// ToolCall is a wish of the model to use a tool.
type ToolCall struct {
	Name      string
	Arguments json.RawMessage // an object; or a string, for a tool that takes text
	Custom    bool            // the tool takes text where the dialect has such tools
}

// Stop is why a reply ends.
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

// ArgumentText is what a tool call says, as text.
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
