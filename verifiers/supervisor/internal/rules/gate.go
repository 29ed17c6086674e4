package rules

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/berth-eval/berth/plugins/trajectory"
)

// Policy is how much the gate accepts of agents that do not say how their turn
// ended.
type Policy string

// The policies.
const (
	Auto     Policy = "auto"      // that of the agent
	Strict   Policy = "strict"    // the turn must have ended well
	Text     Policy = "text"      // words are enough
	LongText Policy = "long_text" // long words excuse a bad end
)

// published are the policies of the benchmark's own program, by the agent's plugin.
var published = map[string]Policy{"openclaw": Text, "nanobot": Text, "edict": LongText}

// of returns the policy for an agent.
func (p Policy) of(agent string) Policy {
	if p == Auto {
		return cmp.Or(published[agent], Strict)
	}
	return p
}

// Turn is the line of a turn in the record, as far as the gate reads it.
type Turn struct {
	Agent    string `json:"agent"` // its plugin
	End      string `json:"end"`   // "yielded": by itself
	ExitCode int    `json:"exit_code"`
	Message  string `json:"message"`
	Stop     string `json:"stop"` // why the model stopped in its last answer, as the gateway read it; empty: not known
}

// Step is the last step of the agent, as far as the gate reads it.
type Step struct {
	Message string
	Call    string // name of its last call of a tool; empty: it has none
	Stop    string // why the model stopped, as the agent says; empty: it does not say it
	NoModel bool   // nor any other of the turn was made with a model
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

// Why a model stopped, in the words of providers and agents, in lower case.
var (
	unfinished = []string{"tooluse", "tool_use", "tool_calls", "function_call", "length", "max_tokens", "max_output_tokens"}
	finished   = []string{"stop", "end_turn", "stop_sequence"}
)

// finalCalls are calls with which agents say that they have finished.
var finalCalls = []string{"task_complete", "complete_task", "submit", "finish", "final_answer", "attempt_completion"}

// Completed decides whether a turn was completed, from its line and its last step;
// nil: it has none.
func Completed(t Turn, last *Step, p Policy) Gate {
	if last == nil {
		if t.Stop == "" {
			return Interrupted
		}
		last = &Step{} // the agent records no steps, but it asked its model
	}
	words := cmp.Or(strings.TrimSpace(t.Message), strings.TrimSpace(last.Message))
	stop := strings.ToLower(cmp.Or(last.Stop, t.Stop))
	midway, p := slices.Contains(unfinished, stop), p.of(t.Agent)
	if t.End != "yielded" || t.ExitCode != 0 {
		return Gate(last.Call == "" && (p == Text && words != "" && !midway || p == LongText && utf8.RuneCountInString(words) >= longText))
	}
	switch {
	case last.NoModel, stop == trajectory.FinalCall, slices.Contains(finalCalls, last.Call):
		return Complete
	case midway, last.Call != "":
		return Interrupted
	default:
		return Gate(slices.Contains(finished, stop) || saysComplete(words) || p == Text && words != "")
	}
}
