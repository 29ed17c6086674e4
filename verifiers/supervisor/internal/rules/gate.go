package rules

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Policy is how much the gate accepts of agents that do not say how their turn
// ended.
type Policy string

// The policies.
const (
	Strict   Policy = "strict"    // the turn must have ended well
	Text     Policy = "text"      // words are enough (OpenClaw, nanobot)
	LongText Policy = "long_text" // long words excuse a bad end (EDICT)
)

// Turn is the line of a turn in the record, as far as the gate reads it.
type Turn struct {
	End      string `json:"end"` // "yielded": by itself
	ExitCode int    `json:"exit_code"`
	Message  string `json:"message"`
}

// Step is the last step of the agent, as far as the gate reads it.
type Step struct {
	Message string
	Calls   int    // of tools
	Stop    string // why the model stopped, in its provider's word; empty: not known
}

// Gate reports whether a turn was completed.
type Gate bool

// The results of the gate.
const (
	Complete    Gate = true
	Interrupted Gate = false
)

// GateResult is what the gate did to a judgement.
type GateResult string

// What it did.
const (
	Open     GateResult = "open"     // nothing
	Deferred GateResult = "deferred" // a pass has to wait until the agent has completed its turn
	Shut     GateResult = "failed"   // a pass became a failure
)

// longText is the number of characters that make a text long.
const longText = 200

// Stop reasons, in lower case.
var (
	unfinished = []string{"tooluse", "tool_use", "length", "max_tokens"}
	finished   = []string{"stop", "end_turn", "stop_sequence"}
)

// Completed decides whether a turn was completed, from its line and its last step;
// nil: it has none.
func Completed(t Turn, last *Step, p Policy) Gate {
	if last == nil {
		return Interrupted
	}
	words := strings.TrimSpace(t.Message)
	if words == "" {
		words = strings.TrimSpace(last.Message)
	}
	stop := strings.ToLower(last.Stop)
	ended := t.End == "yielded" && t.ExitCode == 0
	switch {
	case !ended && !relaxed(words, stop, last.Calls, p):
		return Interrupted
	case words == "", slices.Contains(unfinished, stop), last.Calls > 0:
		return Interrupted
	case slices.Contains(finished, stop), saysComplete(words), p == Text:
		return Complete
	default:
		return Interrupted
	}
}

// relaxed reports whether a bad end of the turn is excused.
func relaxed(words, stop string, calls int, p Policy) bool {
	switch p {
	case Text:
		return words != "" && calls == 0 && !slices.Contains(unfinished, stop)
	case LongText:
		return utf8.RuneCountInString(words) >= longText && calls == 0
	default:
		return false
	}
}
