package config

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/berth-eval/berth/core/cell"
	pluginconfig "github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/task"
)

// identity types hold what makes a cell what it is: everything that can change
// a result, and nothing else. No label, path, address, price, key or time of
// the run is in it. Their JSON is part of trial ids: a field is only ever added
// with omitempty, so that old ids stay.
type identity struct {
	Agent       agentIdentity               `json:"agent"`
	Environment environmentIdentity         `json:"environment"`
	Verifiers   map[string]verifierIdentity `json:"verifiers,omitempty"`
	User        *userIdentity               `json:"user,omitempty"`
	Datasets    []datasetIdentity           `json:"datasets,omitempty"`
	PerTrial    cell.Limits                 `json:"per_trial"`
}

type agentIdentity struct {
	Plugin string                   `json:"plugin"`
	Oracle bool                     `json:"oracle,omitempty"`
	Config *settings                `json:"config,omitempty"`
	Env    map[string]cell.Text     `json:"env,omitempty"`
	Models map[string]modelIdentity `json:"models,omitempty"`
}

type modelIdentity struct {
	Provider    string          `json:"provider"`
	Name        string          `json:"name,omitempty"`
	Script      string          `json:"script,omitempty"` // digest
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	AllowModels []string        `json:"allow_models,omitempty"`
	AllowHosted []string        `json:"allow_hosted,omitempty"`
}

type environmentIdentity struct {
	Plugin        string               `json:"plugin"`
	Network       *task.Network        `json:"network,omitempty"`
	Limits        task.Limits          `json:"limits"`
	Config        *settings            `json:"config,omitempty"`
	Env           map[string]cell.Text `json:"env,omitempty"`
	Surface       string               `json:"surface,omitempty"`
	SurfaceConfig *settings            `json:"surface_config,omitempty"`
}

type verifierIdentity struct {
	Plugin string                   `json:"plugin"`
	Config *settings                `json:"config,omitempty"`
	Env    map[string]cell.Text     `json:"env,omitempty"`
	Models map[string]modelIdentity `json:"models,omitempty"`
}

type userIdentity struct {
	Agent       agentIdentity        `json:"agent"`
	Environment *environmentIdentity `json:"environment,omitempty"`
	Persona     string               `json:"persona,omitempty"`
	Time        time.Duration        `json:"time_ns,omitempty"`
	CostUSD     *float64             `json:"cost_usd,omitempty"`
	Tokens      *int64               `json:"tokens,omitempty"`
	Requests    *int64               `json:"requests,omitempty"`
}

type datasetIdentity struct {
	Label   string    `json:"label,omitempty"` // to tell cells apart; not in trial ids
	Verify  task.Mode `json:"verify,omitempty"`
	Success *Success  `json:"success,omitempty"`
	Lenient bool      `json:"lenient,omitempty"`
}

// Identity is the canonical JSON of the cell for the tasks of a dataset, for
// trial ids: keys sorted, no spaces, secrets as their labels. Two cells of an
// experiment differ in it, unless only their datasets differ.
func (c *Cell) Identity(d *Dataset) json.RawMessage {
	set := *d
	set.Label = ""
	return c.identity(set)
}

func (c *Cell) identity(datasets ...Dataset) json.RawMessage {
	id := identity{Agent: identityOfAgent(c.Agent), Environment: *identityOfEnvironment(&c.Environment), PerTrial: c.PerTrial}
	for label, v := range c.Verifiers {
		if id.Verifiers == nil {
			id.Verifiers = map[string]verifierIdentity{}
		}
		id.Verifiers[label] = verifierIdentity{v.Plugin, present(v.Config), v.Env, identityOfModels(v.Models)}
	}
	if u := c.User; u != nil {
		id.User = &userIdentity{
			Agent: identityOfAgent(u.Agent), Environment: identityOfEnvironment(u.Environment), Persona: u.Persona,
			Time: u.Time, CostUSD: u.CostUSD, Tokens: u.Tokens, Requests: u.Requests,
		}
	}
	for _, d := range datasets {
		id.Datasets = append(id.Datasets, datasetIdentity{d.Label, d.Verify, d.Success, d.Lenient})
	}
	return canonical(id)
}

func identityOfAgent(a cell.Agent) agentIdentity {
	return agentIdentity{a.Plugin, a.Oracle, present(a.Config), a.Env, identityOfModels(a.Models)}
}

func identityOfEnvironment(e *cell.Environment) *environmentIdentity {
	if e == nil {
		return nil
	}
	return &environmentIdentity{e.Plugin, e.Network, e.Limits, present(e.Config), e.Env, e.Surface, present(e.SurfaceConfig)}
}

func identityOfModels(ms map[string]*cell.Model) map[string]modelIdentity {
	out := map[string]modelIdentity{}
	for _, role := range slices.Sorted(maps.Keys(ms)) {
		m := ms[role]
		out[role] = modelIdentity{m.Provider, m.Name, m.ScriptDigest, m.Parameters, m.AllowModels, m.AllowHosted}
	}
	return out
}

// settings are the configuration of a plugin; Secrets says which of its strings
// are labels of secrets, so that no plain text is taken for one.
type settings struct {
	Values  json.RawMessage     `json:"values"`
	Secrets []pluginconfig.Path `json:"secrets,omitempty"`
}

func present(v cell.Values) *settings {
	if v.JSON() == nil || string(v.JSON()) == "{}" {
		return nil
	}
	return &settings{v.JSON(), slices.Sorted(maps.Keys(v.Secrets()))}
}

// canonical is v as JSON with sorted keys, no spaces, and numbers as written.
func canonical(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil // these types always marshal; an empty identity would show in every test
	}
	var tree any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&tree) != nil {
		return nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(tree) != nil {
		return nil
	}
	return bytes.TrimSpace(b.Bytes())
}
