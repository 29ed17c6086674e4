package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/config"
	"github.com/berth-eval/berth/plugins/task"
)

// reader turns what may be secret into plain values.
type reader struct {
	reveal  bool
	secrets map[string]bool
	err     error // the first
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) text(t cell.Text) string {
	if !r.reveal || t.Secret() == nil {
		return t.String()
	}
	s, err := t.Reveal()
	if err != nil {
		r.fail(err)
	}
	r.secrets[s] = true
	return s
}

func (r *reader) env(m map[string]cell.Text) map[string]string {
	out := make(map[string]string, len(m))
	for k, t := range m {
		out[k] = r.text(t)
	}
	return out
}

func (r *reader) values(v cell.Values) json.RawMessage {
	if !r.reveal {
		return v.JSON()
	}
	b, err := v.Reveal()
	if err != nil {
		r.fail(err)
	}
	return b
}

func (r *reader) agent(a config.Agent) cell.Agent {
	return cell.Agent{Plugin: a.Plugin, Oracle: a.Oracle, Config: r.values(a.Config), Env: r.env(a.Env), Models: r.models(a.Models)}
}

// models notes the keys, which the gateway alone has: whatever else says them is
// kept out of the record.
func (r *reader) models(ms map[string]*cell.Model) map[string]*cell.Model {
	for _, m := range ms {
		if m.APIKey != nil {
			r.text(*m.APIKey)
		}
	}
	return ms
}

// Public is a cell on a dataset as core/trial takes it, with the names of
// secrets in place of the secrets: good for questions, not for running.
func Public(c *config.Cell, d *config.Dataset) cell.Cell {
	out, _ := convert(c, d, false) //nolint:errcheck // only revealing fails
	return out
}

// Revealed is a cell on a dataset as core/trial runs it. Fails when a secret
// is missing.
func Revealed(c *config.Cell, d *config.Dataset) (cell.Cell, error) {
	out, err := convert(c, d, true)
	if err != nil {
		return out, fmt.Errorf("cell %s: %w", c.Key, err)
	}
	return out, nil
}

func convert(c *config.Cell, d *config.Dataset, reveal bool) (cell.Cell, error) {
	r := &reader{reveal: reveal, secrets: map[string]bool{}}
	out := cell.Cell{
		Choices: map[string]string{},
		Agent:   r.agent(c.Agent),
		Environment: cell.Environment{
			Plugin: c.Environment.Plugin, Config: r.values(c.Environment.Config), Env: r.env(c.Environment.Env),
			Network: c.Environment.Network, Limits: c.Environment.Limits,
		},
		Verifiers: map[string]cell.Verifier{},
		Verify:    d.Verify,
		Limits:    limits(&c.PerTrial),
	}
	if out.Verify == "" {
		out.Verify = c.Verify
	}
	for _, ch := range c.Choices {
		out.Choices[ch.Axis] = ch.Text
	}
	for name, v := range c.Verifiers {
		out.Verifiers[name] = cell.Verifier{Plugin: v.Plugin, Config: r.values(v.Config), Env: r.env(v.Env), Models: r.models(v.Models)}
	}
	if d.Success != nil {
		least := d.Success.AtLeast
		out.Success = &task.Success{Score: d.Success.Key, AtLeast: &least}
	}
	if u := c.User; u != nil {
		out.User = &cell.User{
			Agent: r.agent(u.Agent), Persona: u.Persona, Time: value(u.Time), Budget: cell.Budget{CostUSD: u.CostUSD, Tokens: u.Tokens, Requests: u.Requests},
		}
	}
	for s := range maps.Keys(r.secrets) {
		out.Secrets = append(out.Secrets, s)
	}
	return out, r.err
}

func limits(p *config.PerTrial) cell.Limits {
	return cell.Limits{
		AgentTime: value(p.AgentTime), AgentTimeFactor: value(p.AgentTimeFactor),
		VerifierTime: value(p.VerifierTime), VerifierTimeFactor: value(p.VerifierTimeFactor),
		StartTime: value(p.StartTime), StartTimeFactor: value(p.StartTimeFactor), MaxSteps: value(p.MaxSteps),
		Budget: cell.Budget{CostUSD: p.CostUSD, Tokens: p.Tokens, Requests: p.Requests},
	}
}

// value is what p points to, or zero: what trial takes as "keep the task's".
func value[T time.Duration | float64 | int64](p *T) T {
	if p == nil {
		return 0
	}
	return *p
}
