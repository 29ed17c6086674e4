package main

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/trajectory"
	"github.com/berth-eval/berth/plugins/verifier"
)

// maxAnswer is how many bytes an answer may have.
const maxAnswer = 1 << 20

// The actions with which an agent tells the user something: an answer, or why the
// task cannot be done, which may be the answer.
const (
	say        = "send_msg_to_user"
	infeasible = "report_infeasible"
)

func says(action string) bool { return action == say || action == infeasible }

// said is the part of a record's line that answers are taken from. A line of
// surface.jsonl has an action and its arguments, one of turns.jsonl a message at
// the end of a turn, and one of steps.jsonl a step.
type said struct {
	Kind      string          `json:"kind"`
	Stage     string          `json:"stage"`
	Role      agent.Role      `json:"role"`
	Action    string          `json:"action"`
	Name      string          `json:"name"`
	Error     json.RawMessage `json:"error"`
	Arguments json.RawMessage `json:"arguments"`
	Message   string          `json:"message"`
	Step      trajectory.Step `json:"step"`
}

// answers returns what may be the agent's answer, the likeliest first: its last
// message to the user, as the core recorded it, then as the agent reports it; then
// its last words.
func answers(r *verifier.Request) ([]string, error) {
	var sent, called, last, words string
	for _, record := range []struct {
		file string
		line func(*said)
	}{
		{"attempt/surface.jsonl", func(s *said) {
			if (says(s.Action) || says(s.Name)) && (len(s.Error) == 0 || string(s.Error) == `""` || string(s.Error) == "null") {
				replace(&sent, argument(s.Arguments))
			}
		}},
		{"attempt/steps.jsonl", func(s *said) {
			if s.Step.Source != trajectory.Model || s.Role != agent.RoleAgent && s.Role != agent.RoleOracle {
				return
			}
			replace(&words, s.Step.Message.String())
			for _, c := range s.Step.ToolCalls {
				if says(c.Name) {
					replace(&called, argument(c.Arguments))
				}
			}
		}},
		{"attempt/turns.jsonl", func(s *said) {
			if s.Kind == "yield" {
				replace(&last, s.Message)
			}
		}},
	} {
		if err := lines(r, record.file, record.line); err != nil {
			return nil, err
		}
	}
	var all []string
	for _, a := range []string{sent, called, last, words} {
		if a != "" {
			all = append(all, a)
		}
	}
	return all, nil
}

// replace sets an answer if there is a newer one.
func replace(to *string, by string) {
	if strings.TrimSpace(by) != "" && len(by) <= maxAnswer {
		*to = by
	}
}

// argument returns the text that a call sends.
func argument(raw json.RawMessage) string {
	var a struct {
		Text   string `json:"text"`
		Reason string `json:"reason"`
	}
	if json.Unmarshal(raw, &a) != nil {
		return ""
	}
	return cmp.Or(a.Text, a.Reason)
}

// lines calls each with the lines of a record that belong to the stage. A record
// that is not there has none.
func lines(r *verifier.Request, name string, each func(*said)) error {
	return r.AnyLines(name, func(line []byte) {
		var s said
		if json.Unmarshal(line, &s) == nil && (s.Stage == "" || r.Stage == "" || s.Stage == r.Stage) {
			each(&s)
		}
	})
}
