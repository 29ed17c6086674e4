package main

import (
	"encoding/json"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/trajectory"
	"github.com/berth-eval/berth/plugins/verifier"
	"github.com/berth-eval/berth/verifiers/supervisor/internal/rules"
)

// turnLine is a line of attempt/turns.jsonl.
type turnLine struct {
	Kind   string `json:"kind"`
	Stage  string `json:"stage"`
	Number int    `json:"turn"`
	Over   string `json:"over"`
	rules.Turn
}

// turns returns the lines about the ends of turns of a stage, and why the loop of
// turns ended, if it has.
func turns(r *verifier.Request) (ends []turnLine, why string, err error) {
	err = r.Lines("attempt/turns.jsonl", func(line []byte) {
		var t turnLine
		if json.Unmarshal(line, &t) != nil || t.Stage != r.Stage {
			return
		}
		switch t.Kind {
		case "yield":
			ends = append(ends, t)
		case "over":
			why = t.Over
		}
	})
	return ends, why, err
}

// rounds returns the judgements of the verifier supervisor in all rounds of a
// stage. Request.Earlier has only one verdict of each verifier after the last
// turn.
func rounds(r *verifier.Request) (own []verifier.Verdict, err error) {
	err = r.Lines("attempt/verdicts.jsonl", func(line []byte) {
		var v verifier.Verdict
		if json.Unmarshal(line, &v) == nil && v.Stage == r.Stage {
			own = append(own, ownVerdicts([]verifier.Verdict{v})...)
		}
	})
	return own, err
}

// stepLine is a line of attempt/steps.jsonl.
type stepLine struct {
	Stage string          `json:"stage"`
	Turn  int             `json:"turn"`
	Role  agent.Role      `json:"role"`
	Step  trajectory.Step `json:"step"`
}

func stepOf(line []byte) (s stepLine, ok bool) {
	ok = json.Unmarshal(line, &s) == nil
	return s, ok
}

// ofAgent reports whether the step was made by the agent whose work is judged.
func (s *stepLine) ofAgent() bool { return s.Role == agent.RoleAgent || s.Role == agent.RoleOracle }

// lastStep returns the agent's last step of a turn; nil: it has none.
func lastStep(r *verifier.Request, turn int) (last *rules.Step, err error) {
	asked := false
	err = r.Lines("attempt/steps.jsonl", func(line []byte) {
		s, ok := stepOf(line)
		if !ok || s.Stage != r.Stage || s.Turn != turn || !s.ofAgent() || s.Step.Source != trajectory.Model {
			return
		}
		n := s.Step.LLMCallCount
		asked = asked || n == nil || *n > 0
		last = &rules.Step{Message: s.Step.Message.String(), Stop: stop(s.Step.Extra), NoModel: !asked}
		if n := len(s.Step.ToolCalls); n > 0 {
			last.Call = s.Step.ToolCalls[n-1].Name
		}
	})
	return last, err
}

// stop returns why the model stopped, if the step says so.
func stop(extra json.RawMessage) string {
	var e struct {
		Stop   string `json:"stop_reason"`
		Finish string `json:"finish_reason"`
	}
	if json.Unmarshal(extra, &e) == nil && e.Stop == "" {
		return e.Finish
	}
	return e.Stop
}
