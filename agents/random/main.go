// Command random serves an agent that does random actions on a surface: the same
// ones for the same task, repetition and seed. A task that it passes is too easy,
// and a surface that it breaks is not robust.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/surface"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// Config is the body of an agent block's config.
type Config struct {
	Seed    int64 `berth:"seed" default:"1" doc:"Each task and repetition has its own actions, which are the same in every run if the surface shows the same. Another seed gives others."`
	Actions int   `berth:"actions" default:"0" doc:"How many actions it does in a turn, if the surface allows as many. 0: as many as the surface allows, or 50 if it has no limit."`
}

// Validate implements config.Validator.
func (c *Config) Validate() []config.Problem { return config.Range("actions", c.Actions, 0, 100_000) }

func main() {
	plugins.Serve(plugins.Agent(plugins.Info{
		Name: "random", Version: "1.0.0",
		Doc: "Does random actions on the task's surface. A task that it passes is too easy.",
	}, Config{}, random{}))
}

type random struct{}

// Check implements agent.Agent.
func (random) Check(_ context.Context, r agent.CheckRequest) (agent.Needs, error) {
	needs := agent.Needs{Surface: true, KeepsSession: true}
	if _, err := agent.ReadConfig[Config](r.Config); err != nil {
		return needs, err
	}
	if r.Role == agent.RoleUser {
		needs.Refusals = append(needs.Refusals, "it acts on a surface, which a simulated user does not have")
	}
	return needs, nil
}

// Open implements agent.Agent.
func (random) Open(_ context.Context, s agent.Setup) (agent.Session, error) {
	c, err := agent.ReadConfig[Config](s.Config)
	if err != nil {
		return nil, err
	}
	on, err := surface.Dial(s.Surface)
	if err != nil {
		return nil, err
	}
	return &session{on: on, most: c.Actions, dice: rand.New(rand.NewPCG(uint64(c.Seed), uint64(s.Seed)))}, nil //nolint:gosec // not for secrets
}

type session struct {
	on   *surface.Client
	most int
	dice *rand.Rand
}

// unbounded is how many actions a turn has on a surface that has no limit.
const unbounded = 50

// Turn implements agent.Session.
func (s *session) Turn(ctx context.Context, _ agent.Message, r agent.Recorder) (agent.Yield, error) {
	none := int64(0)
	offer, err := s.on.Actions(ctx)
	if err != nil {
		return agent.Yield{}, err
	}
	if len(offer.Actions) == 0 {
		return agent.Yield{End: agent.Done, Reason: "the surface has no action"}, nil
	}
	most := cmp.Or(int64(s.most), offer.Steps, unbounded)
	seen, err := s.on.Observe(ctx, nil)
	for n := int64(1); err == nil && n <= most; n++ {
		a := &offer.Actions[s.dice.IntN(len(offer.Actions))]
		given, failed := s.arguments(a.Schema, &seen)
		if failed != nil {
			return agent.Yield{}, fmt.Errorf("schema of %s: %w", a.Name, failed)
		}
		var step environment.Step
		if step, err = s.on.Act(ctx, environment.Call{Name: a.Name, Arguments: given}, nil); err != nil {
			break
		}
		if len(step.Observation.JSON) > 0 {
			seen = step.Observation
		}
		text, id := trajectory.Text(step.Error), fmt.Sprint("action-", n)
		if err = r.Step(trajectory.Step{
			Source: trajectory.Model, Message: trajectory.Text("I do something."), LLMCallCount: &none,
			ToolCalls:   []trajectory.ToolCall{{ID: id, Name: a.Name, Arguments: given}},
			Observation: &trajectory.Observation{Results: []trajectory.Result{{SourceCallID: id, Content: &text}}},
		}); err == nil && (step.Done || step.Truncated) {
			break
		}
	}
	return agent.Yield{End: agent.Done}, err
}

// Close implements agent.Session.
func (s *session) Close(context.Context, string, agent.Recorder) error { return s.on.Close() }

// parameter is what is looked at in the schema of an argument.
type parameter struct {
	Type  any               `json:"type"`
	Enum  []json.RawMessage `json:"enum"`
	Min   *float64          `json:"minimum"`
	Max   *float64          `json:"maximum"`
	AnyOf []parameter       `json:"anyOf"`
	Items *parameter        `json:"items"`
}

// arguments returns random arguments that a schema allows, as far as it is of the
// usual kind.
func (s *session) arguments(schema json.RawMessage, seen *environment.Observation) (json.RawMessage, error) {
	var o struct {
		Properties map[string]parameter `json:"properties"`
		Required   []string             `json:"required"`
	}
	if len(schema) > 0 {
		if err := json.Unmarshal(schema, &o); err != nil {
			return nil, err
		}
	}
	slices.Sort(o.Required)
	all := map[string]any{}
	for _, name := range o.Required {
		p := o.Properties[name]
		all[name] = s.value(&p, seen, 0)
	}
	return json.Marshal(all)
}

// shown finds the names of elements in what is seen: numbers in brackets.
var shown = regexp.MustCompile(`\[([0-9]+)\] `)

// Words for texts. Some are names of keys and addresses, so that actions that take
// these do something.
var words = []string{"", "a", "Hello", "42", "0", "Enter", "Tab", "Escape", "ArrowDown", "about:blank", "<b>x</b>", "'; --"}

const maxDepth = 4

func (s *session) value(p *parameter, seen *environment.Observation, depth int) any {
	switch {
	case len(p.Enum) > 0:
		return p.Enum[s.dice.IntN(len(p.Enum))]
	case len(p.AnyOf) > 0 && depth < maxDepth:
		return s.value(&p.AnyOf[s.dice.IntN(len(p.AnyOf))], seen, depth+1)
	}
	low, high := 0.0, 1000.0
	if p.Min != nil {
		low, high = *p.Min, *p.Min+high
	}
	if p.Max != nil {
		high = *p.Max
	}
	switch p.Type {
	case "integer":
		return int64(low) + s.dice.Int64N(max(1, int64(high)-int64(low)+1))
	case "number":
		return low + s.dice.Float64()*(high-low)
	case "boolean":
		return s.dice.IntN(2) == 0
	case "array":
		if p.Items == nil || depth >= maxDepth {
			return []any{}
		}
		return []any{s.value(p.Items, seen, depth+1)}
	case "object":
		return map[string]any{}
	}
	if found := shown.FindAllStringSubmatch(seen.Text+string(seen.JSON), -1); len(found) > 0 && s.dice.IntN(4) > 0 {
		return found[s.dice.IntN(len(found))][1]
	}
	return words[s.dice.IntN(len(words))]
}
