package trajectory

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
	v := &mender{}
	for i := range t.Steps {
		t.Steps[i].StepID = int64(i + 1)
		v.step(fmt.Sprintf("steps[%d]", i), &t.Steps[i])
	}
	t.SchemaVersion = t.version()
	t.FinalMetrics = total(t.Steps)
	return t, v.found, nil
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

// Encode writes a trajectory with the schema version that its content needs. If the
// trajectory breaks rules, it returns an error that names them.
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
