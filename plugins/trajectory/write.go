package trajectory

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// ErrNoSteps means that there is nothing to write: a trajectory needs at least
// one step.
var ErrNoSteps = errors.New("trajectory has no steps")

// New makes a trajectory from recorded steps, also from those of an agent that
// was killed. It numbers the steps, adds up the totals, and removes what the
// format does not allow, so that one invalid step never loses the others. The
// violations say what was removed. The given steps are not changed. Fails with
// ErrNoSteps.
func New(agent Agent, session string, steps []Step) (*Trajectory, []Violation, error) {
	if len(steps) == 0 {
		return nil, nil, ErrNoSteps
	}
	t := &Trajectory{SessionID: session, Agent: agent, Steps: slices.Clone(steps)}
	v := &validator{}
	for i := range t.Steps {
		t.Steps[i].StepID = int64(i + 1)
		v.mend(fmt.Sprintf("steps[%d]", i), &t.Steps[i])
	}
	t.SchemaVersion = t.version()
	t.FinalMetrics = total(t.Steps)
	return t, v.found, nil
}

// mend removes from a step what the format does not allow.
func (v *validator) mend(path string, s *Step) {
	if !slices.Contains([]Source{System, User, Model}, s.Source) {
		v.bad(path+".source", "was %q, taken as system", s.Source)
		s.Source = System
	}
	if s.Timestamp != "" && !validTimestamp(s.Timestamp) {
		v.bad(path+".timestamp", "was %q, left out", s.Timestamp)
		s.Timestamp = ""
	}
	if s.Source != Model && (s.ModelName != "" || s.ReasoningEffort != "" || s.ReasoningContent != "" || s.ToolCalls != nil || s.Metrics != nil) {
		v.bad(path, "is of %s, its fields of the agent are left out", s.Source)
		s.ModelName, s.ReasoningEffort, s.ReasoningContent, s.ToolCalls, s.Metrics = "", "", "", nil, nil
	}
	if s.LLMCallCount != nil && (*s.LLMCallCount < 0 || (*s.LLMCallCount == 0 && (s.Metrics != nil || s.ReasoningContent != ""))) {
		v.bad(path+".llm_call_count", "was %d, left out", *s.LLMCallCount)
		s.LLMCallCount = nil
	}
	v.mendObject(path+".extra", &s.Extra)
	v.mendCalls(path, s)
	v.mendObservation(path, s)
}

func (v *validator) mendCalls(path string, s *Step) {
	s.ToolCalls = slices.Clone(s.ToolCalls)
	for i := range s.ToolCalls {
		p := fmt.Sprintf("%s.tool_calls[%d]", path, i)
		v.mendObject(p+".arguments", &s.ToolCalls[i].Arguments)
		v.mendObject(p+".extra", &s.ToolCalls[i].Extra)
	}
}

func (v *validator) mendObservation(path string, s *Step) {
	if s.Observation == nil {
		return
	}
	o := Observation{Results: slices.Clone(s.Observation.Results)}
	for i := range o.Results {
		r := &o.Results[i]
		p := fmt.Sprintf("%s.observation.results[%d]", path, i)
		known := slices.ContainsFunc(s.ToolCalls, func(c ToolCall) bool { return c.ID == r.SourceCallID })
		if r.SourceCallID != "" && !known {
			v.bad(p+".source_call_id", "was %q, which is not a call of the step; left out", r.SourceCallID)
			r.SourceCallID = ""
		}
		r.Subagents = slices.DeleteFunc(slices.Clone(r.Subagents), func(s SubagentRef) bool {
			return s.TrajectoryID == "" && s.TrajectoryPath == ""
		})
		v.mendObject(p+".extra", &r.Extra)
	}
	s.Observation = &o
}

func (v *validator) mendObject(path string, raw *json.RawMessage) {
	if len(*raw) == 0 {
		return
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(*raw, &m); err != nil || m == nil {
		v.bad(path, "is not a JSON object, left out")
		*raw = nil
	}
}

// total adds up the steps that were not copied. The cost is unknown if any step
// with a model's usage has an unknown cost.
func total(steps []Step) *FinalMetrics {
	n := int64(len(steps))
	f := &FinalMetrics{Steps: &n}
	priced := true
	for i := range steps {
		m := steps[i].Metrics
		if m == nil || steps[i].CopiedContext {
			continue
		}
		add(&f.PromptTokens, m.PromptTokens)
		add(&f.CompletionTokens, m.CompletionTokens)
		add(&f.CachedTokens, m.CachedTokens)
		add(&f.CostUSD, m.CostUSD)
		priced = priced && m.CostUSD != nil
	}
	if !priced {
		f.CostUSD = nil
	}
	return f
}

func add[N int64 | float64](sum **N, n *N) {
	if n == nil {
		return
	}
	if *sum == nil {
		*sum = new(N)
	}
	**sum += *n
}

var numberLists = regexp.MustCompile(`\[\n\s+(?:-?[0-9][0-9.eE+-]*,?\s+)+\]`)

// Encode writes a trajectory with the schema version that its content needs, an
// indent of two spaces, and lists of numbers on one line. If the trajectory
// breaks rules, it returns an error that names them.
func Encode(t *Trajectory) ([]byte, error) {
	c := *t
	c.SchemaVersion = c.version()
	raw, err := json.MarshalIndent(&c, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write trajectory: %w", err)
	}
	if vs := Validate(raw); len(vs) > 0 {
		return nil, fmt.Errorf("write trajectory: %s (%d rules broken)", vs[0], len(vs))
	}
	raw = numberLists.ReplaceAllFunc(raw, func(b []byte) []byte {
		return []byte("[" + strings.ReplaceAll(strings.Join(strings.Fields(string(b[1:len(b)-1])), " "), ", ", ",") + "]")
	})
	return append(raw, '\n'), nil
}

// version returns the oldest version that supports everything in t.
func (t *Trajectory) version() string {
	for i := range t.Steps {
		s := &t.Steps[i]
		if hasAudio(s.Message) {
			return VersionAudio
		}
		if s.Observation == nil {
			continue
		}
		for _, r := range s.Observation.Results {
			if r.Content != nil && hasAudio(*r.Content) {
				return VersionAudio
			}
		}
	}
	for i := range t.Subagents {
		if t.Subagents[i].version() == VersionAudio {
			return VersionAudio
		}
	}
	return Version
}

func hasAudio(c Content) bool {
	return slices.ContainsFunc(c.Parts, func(p Part) bool { return p.Type == PartAudio })
}
