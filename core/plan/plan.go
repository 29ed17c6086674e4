package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/config"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/trial"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/plugins/task"
)

// Input is what a plan is made of.
type Input struct {
	Experiment *config.Experiment
	Formats    []task.Format
	// Plugins answer what they need and refuse; nil asks nobody.
	Plugins trial.Plugins
	// Gateway says that requests to models are served.
	Gateway bool
	// Options are the user's choices for loading tasks.
	Options task.Options
}

// Plan is what a run would be.
type Plan struct {
	Experiment *config.Experiment
	Tasks      []Task
	Trials     []Trial
	// Problems that are errors keep the run from starting.
	Problems []Problem
	Missing  []Missing
	// Secrets are those that cannot be read, with their places.
	Secrets config.Diagnostics
	// Checker keeps what plugins answered; the attempts of the run go on with it.
	Checker *feasible.Checker

	needs      []*Needs                     // of the cells; nil where nobody was asked
	identities []map[string]json.RawMessage // of the cells, by dataset
}

// Task is one task of a dataset, valid or not.
type Task struct {
	Dataset string
	Path    string // relative to the dataset
	Name    string
	// Task is nil when it is invalid; Problems then say why.
	Task     *task.Task
	Problems []task.Problem
}

// Trial is one cell × task × repetition.
type Trial struct {
	store.Trial
	// Place is the index of the task in Plan.Tasks.
	Place int
}

// Problem is something about the plan that the user should know.
type Problem struct {
	Severity config.Severity `json:"severity"`
	Summary  string          `json:"summary"`
	Detail   string          `json:"detail,omitempty"`
	Dataset  string          `json:"dataset,omitempty"`
	// Tasks and Cells are where it is; empty means everywhere.
	Tasks []string `json:"tasks,omitempty"`
	Cells []string `json:"cells,omitempty"`
	// Refusal says that it concerns these tasks in these cells only: the rest
	// can be run without them.
	Refusal bool `json:"refusal,omitempty"`
}

// MissingKind says what is missing.
type MissingKind string

// What may be missing.
const (
	MissingVariable MissingKind = "host_variable"
	MissingPlugin   MissingKind = "plugin"
)

// Missing is something that the run needs and this machine has not.
type Missing struct {
	Kind MissingKind `json:"kind"`
	Name string      `json:"name"`
	// For says who needs it: cells, or a task.
	For []string `json:"for,omitempty"`
	Why string   `json:"why,omitempty"`
}

// Blocked says whether something keeps the run from starting.
func (p *Plan) Blocked() bool {
	if len(p.Missing) > 0 || p.Secrets.HasErrors() {
		return true
	}
	for i := range p.Problems {
		if p.Problems[i].Severity == config.Error {
			return true
		}
	}
	return false
}

// runnable says whether any trial can be run.
func (p *Plan) runnable() bool {
	return slices.ContainsFunc(p.Trials, func(t Trial) bool { return t.Invalid == "" && t.Refused == "" })
}

// SkipRefused makes warnings of the refusals that concern some tasks in some
// cells: their trials stay in the plan and are never run.
func (p *Plan) SkipRefused() {
	if !p.runnable() {
		p.Problems = append([]Problem{{Severity: config.Error, Summary: "no trial can be run", Detail: "Every task is refused or invalid."}}, p.Problems...)
	}
	for i := range p.Problems {
		if p.Problems[i].Refusal {
			p.Problems[i].Severity = config.Warning
		}
	}
}

// later refuses what the experiment file has words for, and this core cannot do.
func (m *maker) later() {
	if kind := m.in.Experiment.Executor.Kind; kind != "" && kind != "local" {
		m.problems.add(Problem{
			Severity: config.Error, Summary: fmt.Sprintf("executor %q is not supported yet", kind),
			Detail: "Remove the block to run on this machine.",
		})
	}
	for i := range m.in.Experiment.Cells {
		if e := &m.in.Experiment.Cells[i].Environment; e.Surface != "" {
			m.problems.add(Problem{
				Severity: config.Error, Summary: fmt.Sprintf("the surface of environment %q is not supported yet", e.Label),
				Detail: "Remove surface from its block.",
			})
		}
	}
}

// Make makes the plan. An error means that the question could not be answered:
// a dataset that cannot be read, a plugin that died. What is wrong with the
// experiment or its tasks is in the plan.
func Make(ctx context.Context, in Input) (*Plan, error) {
	p := &Plan{Experiment: in.Experiment, Checker: &feasible.Checker{}, needs: make([]*Needs, len(in.Experiment.Cells))}
	m := &maker{in: in, plan: p, datasets: map[string][]int{}}
	if err := m.tasks(ctx); err != nil {
		return nil, err
	}
	m.later()
	m.identities()
	m.trials()
	m.missing()
	m.secrets()
	if len(p.Trials) > 0 && !p.runnable() {
		m.problems.add(Problem{Severity: config.Error, Summary: "no trial can be run", Detail: "Every task is invalid. The warnings say why; `berth task check DIR` lists all that is wrong."})
	}
	if len(p.Trials) > 0 { // else there is nobody to ask for
		if err := m.checks(ctx); err != nil {
			return nil, err
		}
	}
	m.problems.into(p)
	return p, nil
}

// Needs is what the plugins of a cell said that they need.
func (p *Plan) Needs(cell int) Needs {
	if n := p.needs[cell]; n != nil {
		return *n
	}
	return Needs{}
}

// maker holds what is needed while a plan is made.
type maker struct {
	in       Input
	plan     *Plan
	datasets map[string][]int // places in plan.Tasks by the label of the dataset
	problems problems
}

// ModelOf is the label of a cell's model; of those of its agent, if the cell
// has chosen none.
func ModelOf(c *config.Cell) string {
	if c.Model != nil {
		return c.Model.Label
	}
	labels := map[string]bool{}
	for _, m := range c.Agent.Models {
		labels[m.Label] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(labels)), ", ")
}

// Manifest is the plan as core/store keeps it.
func (p *Plan) Manifest(h store.Header) *store.Manifest {
	m := &store.Manifest{Header: h, Trials: make([]store.Trial, len(p.Trials))}
	for i, c := range p.Experiment.Cells {
		sc := store.Cell{
			Index: i, Key: c.Key, Slug: c.Slug, Choices: c.Choices, Agent: c.Agent.Label,
			Environment: c.Environment.Label, Identity: p.identities[i], Models: endpoints(c),
		}
		sc.Model = ModelOf(c)
		m.Cells = append(m.Cells, sc)
	}
	for i := range p.Trials {
		m.Trials[i] = p.Trials[i].Trial
	}
	return m
}

// endpoints are where the models of a cell are, by who uses them.
func endpoints(c *config.Cell) map[string]store.Endpoint {
	all := map[string]store.Endpoint{}
	add := func(who string, ms map[string]*cell.Model) {
		for role, m := range ms {
			e := store.Endpoint{Address: m.BaseURL, Replay: m.Replay}
			if m.APIKey != nil {
				e.Key = "written in the experiment"
				if m.APIKey.Secret() != nil {
					e.Key = m.APIKey.String()
				}
			}
			all[who+"."+role] = e
		}
	}
	add("agent", c.Agent.Models)
	if c.User != nil {
		add("user", c.User.Agent.Models)
	}
	for label, v := range c.Verifiers {
		add(fmt.Sprintf("verifier %q", label), v.Models)
	}
	if len(all) == 0 {
		return nil
	}
	return all
}
