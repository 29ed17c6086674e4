// Package cell has the types of one resolved point of the matrix: its agent,
// environment, verifiers and models, with their limits and secrets.
//
// It decides nothing and knows nothing of configuration files.
package cell

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/berth-eval/berth/plugins/task"
)

// Cell is one point of the matrix on one dataset: the settings that its
// attempts share.
type Cell struct {
	Choices     map[string]string // axis to value, for the record
	Agent       Agent
	Environment Environment
	Verifiers   map[string]Verifier // by the name that tasks use; one that is missing is the plugin of that name
	User        *User               // nil: no simulated user
	Verify      task.Mode           // empty keeps the task's
	Work        []string            // folders (absolute) that are work, although they lie in one of the system
	Success     *task.Success       // nil keeps the task's
	Limits      Limits
	Secrets     []string // values that must not reach a file; see [Cell.Reveal]
}

// Agent is an agent block.
type Agent struct {
	Label  string `json:"label"`
	Plugin string `json:"plugin"`
	// Oracle says that the agent gets the reference solution.
	Oracle bool            `json:"oracle,omitempty"`
	Config Values          `json:"config"`
	Env    map[string]Text `json:"env,omitempty"`
	// Models are keyed by the name that the agent asks for; "default" is the
	// model of the block, or else of the cell. Empty when there is none.
	Models map[string]*Model `json:"models,omitempty"`
	// InFlight is the largest number of concurrent requests to models in all
	// attempts of the agent together; 0 means no separate limit.
	InFlight int `json:"in_flight,omitempty"`
	// SameSession runs all stages of a task in one session. False leaves it to the
	// task.
	SameSession bool `json:"same_session,omitempty"`
	// Prior is a file on the host with the trajectory that the agent continues
	// from in the first stage of every task, and PriorDigest its SHA-256,
	// "sha256:" and hex. Both are empty if it is left to the task.
	Prior       string `json:"prior_trajectory,omitempty"`
	PriorDigest string `json:"prior_digest,omitempty"`
}

// Environment is an environment block.
type Environment struct {
	Label  string `json:"label"`
	Plugin string `json:"plugin"`
	// Network is what the experiment grants; nil grants the network that the
	// task asks for.
	Network *task.Network `json:"network,omitempty"`
	// Limits replace those of the task where they are not zero.
	Limits task.Limits `json:"limits"`
	Config Values      `json:"config"`
	// Env is added to the environment variables of the task, for every command
	// in the sandbox, and takes precedence.
	Env map[string]Text `json:"env,omitempty"`
	// Surface is the plugin that opens a surface on the sandbox. Empty means
	// that Plugin does it, if the task needs a surface.
	Surface       string `json:"surface,omitempty"`
	SurfaceConfig Values `json:"surface_config"`
}

// WithSurface returns the plugin that has the surface, and its configuration.
func (e *Environment) WithSurface() (plugin string, conf Values) {
	if e.Surface != "" {
		return e.Surface, e.SurfaceConfig
	}
	return e.Plugin, e.Config
}

// Verifier is what the experiment adds to a verifier that a task names.
type Verifier struct {
	Label string `json:"label"`
	// Plugin is the plugin to use; empty means the one named Label.
	Plugin string            `json:"plugin"`
	Config Values            `json:"config"`
	Env    map[string]Text   `json:"env,omitempty"`
	Models map[string]*Model `json:"models,omitempty"`
	Budget                   // of its models, in all its calls of the attempt
}

// User is the user block: the agent that plays the simulated user.
type User struct {
	Agent Agent `json:"agent"` // with the models of the user block
	// Persona is given to the agent in addition to the task's own; empty means
	// none.
	Persona string        `json:"persona,omitempty"`
	Time    time.Duration `json:"time_ns,omitempty"`  // of one message; 0: the usual
	OnError string        `json:"on_error,omitempty"` // a word of task.Interaction.OnUserError; empty: the task's
	Budget                // of its models, in all its sessions of the attempt
}

// Limits bound an attempt. Zero keeps the limit of the task.
type Limits struct {
	AgentTime    time.Duration `json:"agent_time_ns,omitempty" berth:"agent_time" doc:"Deadline of each turn of the agent; 0: the task's."`
	VerifierTime time.Duration `json:"verifier_time_ns,omitempty" berth:"verifier_time" doc:"Deadline of each verification; 0: the task's."`
	// StartTime is of prepare and create together.
	StartTime  time.Duration `json:"start_time_ns,omitempty" berth:"start_time" doc:"Time limit for getting the image and starting a sandbox; 0: the task's."`
	TimeFactor float64       `json:"time_factor,omitempty" berth:"time_factor" doc:"Multiplies the task's own time limits, where none of these is set; 0: as 1."`
	MaxSteps   int64         `json:"max_steps,omitempty" berth:"max_steps" doc:"Steps of the agent in a stage; 0: no limit."`
	Budget                   // of the agent's models, in all its sessions of the attempt
}

// longest is a time that no part of an attempt needs. Sums of several such times are
// durations, too.
const longest = 366 * 24 * time.Hour

// Scaled returns a time that a task asks for as a cell changes it: instead, or asks
// times factor, if that is not zero. 0: the task asks for none. At most 366 days.
func Scaled(asks, instead time.Duration, factor float64) time.Duration {
	if factor > 0 {
		asks = time.Duration(min(float64(asks)*factor, float64(longest)))
	}
	return min(cmp.Or(instead, asks), longest)
}

// Budget bounds the use of models. Nil means no bound.
type Budget struct {
	CostUSD  *float64 `json:"cost_usd,omitempty" berth:"cost_usd" doc:"What models may cost, in USD."`
	Tokens   *int64   `json:"tokens,omitempty" berth:"tokens" doc:"Input and output tokens of models."`
	Requests *int64   `json:"requests,omitempty" berth:"requests" doc:"Requests to models."`
}

// None reports whether there is no bound.
func (b Budget) None() bool { return b.CostUSD == nil && b.Tokens == nil && b.Requests == nil }

// Reveal returns the cell with its secrets. Run it, but never print it. Fails
// when a secret is missing.
func (c Cell) Reveal() (Cell, error) {
	var failed error // the first
	secrets := map[string]bool{}
	c = c.replaced(func(t Text) Text {
		s, err := t.Reveal()
		failed = cmp.Or(failed, err)
		if t.Secret() != nil {
			secrets[s] = true
		}
		return Plain(s)
	}, func(v Values) Values {
		raw, err := v.Reveal()
		failed = cmp.Or(failed, err)
		for _, hole := range v.holes {
			if s, err := hole.Read(); err == nil {
				secrets[s] = true
			}
		}
		return PlainValues(raw)
	})
	c.Secrets = slices.AppendSeq(c.Secrets, maps.Keys(secrets))
	return c, failed
}

// Uses returns the secrets of the cell.
func (c Cell) Uses() (used []*Secret) {
	c.replaced(func(t Text) Text {
		if t.secret != nil {
			used = append(used, t.secret)
		}
		return t
	}, func(v Values) Values {
		used = slices.AppendSeq(used, maps.Values(v.holes))
		return v
	})
	return used
}

// replaced returns a copy of the cell with texts and values replaced wherever a
// secret is possible. The API keys of models are passed to text but not
// replaced: only the gateway uses them, and it identifies each model by its
// pointer.
func (c Cell) replaced(text func(Text) Text, values func(Values) Values) Cell {
	env := func(m map[string]Text) map[string]Text {
		out := make(map[string]Text, len(m))
		for k, t := range m {
			out[k] = text(t)
		}
		return out
	}
	keys := func(ms map[string]*Model) {
		for _, m := range ms {
			for _, key := range m.ChainKeys() {
				text(key)
			}
		}
	}
	agent := func(a Agent) Agent {
		a.Config, a.Env = values(a.Config), env(a.Env)
		keys(a.Models)
		return a
	}
	c.Agent = agent(c.Agent)
	e := &c.Environment
	e.Config, e.SurfaceConfig, e.Env = values(e.Config), values(e.SurfaceConfig), env(e.Env)
	verifiers := make(map[string]Verifier, len(c.Verifiers))
	for name, v := range c.Verifiers {
		v.Config, v.Env = values(v.Config), env(v.Env)
		keys(v.Models)
		verifiers[name] = v
	}
	c.Verifiers = verifiers
	if c.User != nil {
		u := *c.User
		u.Agent = agent(u.Agent)
		c.User = &u
	}
	return c
}

// Strings returns the texts with labels in place of secrets.
func Strings(texts map[string]Text) map[string]string {
	out := make(map[string]string, len(texts))
	for k, t := range texts {
		out[k] = t.String()
	}
	return out
}

// PlainValues makes a configuration without secrets.
func PlainValues(raw json.RawMessage) Values { return Values{public: raw} }

// JSON is v as JSON with sorted keys of maps, no spaces, and "<", ">" and "&" as they
// are; nil if v has no JSON. Raw parts stay as they are, so they must be canonical.
func JSON(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return nil
	}
	return bytes.TrimSpace(b.Bytes())
}

// Canonical is v in the one form of JSON in which identities are stored, compared and
// hashed: that of [JSON], also in its raw parts, with numbers as they were written.
// Any other way to write the same gets this form.
func Canonical(v any) json.RawMessage {
	var tree any
	d := json.NewDecoder(bytes.NewReader(JSON(v)))
	d.UseNumber()
	if d.Decode(&tree) != nil {
		return nil
	}
	return JSON(tree)
}
