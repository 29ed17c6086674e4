// Package plan expands an experiment into the trials of a run. It computes
// their ids, and finds invalid tasks, tasks that environments and agents
// refuse, and whatever is missing on this machine.
//
// It creates no sandbox, runs nothing of a task and writes nothing: core/store
// stores a plan, and core/run executes it. It reports every problem, not only
// the first.
package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/trial"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/plugins/dialect"
	"github.com/berth-eval/berth/plugins/task"
)

// Input is everything that a plan is made from.
type Input struct {
	Experiment *experiment.Experiment
	Formats    []task.Format
	// Plugins say what they need and refuse; nil asks no plugin.
	Plugins trial.Plugins
	// Dialects are those in which requests to models will be served; none if it
	// is the zero value.
	Dialects dialect.Set
	// Executors are the kinds of executors that the caller has besides "local".
	Executors []string
	// Settings asks plugins about what tasks set for them; nil asks none.
	Settings feasible.ValidateSettings
	// Options are the user's choices for loading tasks.
	Options task.Options
}

// Plan is a run before it starts.
type Plan struct {
	Experiment *experiment.Experiment
	Tasks      []Task
	Trials     []Trial
	// Problems of severity error prevent the run from starting.
	Problems []Problem
	Missing  []Missing
	// Declared says what the tasks declare, and how the cells deliver it.
	Declared []Declared
	// Checker caches the answers of plugins; the attempts of the run use it
	// too.
	Checker *feasible.Checker

	needs      []*Needs                     // of the cells; nil where no plugin was asked
	identities []map[string]json.RawMessage // of the cells, by dataset
}

// Task is one task of a dataset, valid or not.
type Task struct {
	Dataset string
	Path    string // relative to the dataset
	Name    string
	// Options are those with which the task was loaded.
	Options task.Options
	// Task is nil when the task is invalid; Problems then say why.
	Task     *task.Task
	Problems []task.Problem
}

// Trial is one cell × task × repetition.
type Trial struct {
	store.Trial
	// Place is the index of the task in Plan.Tasks.
	Place int
}

// Severity is how bad a problem is.
type Severity string

// The severities.
const (
	Error   Severity = "error"   // the run cannot start
	Warning Severity = "warning" // it can, but perhaps not as meant
)

// Problem is a fact about the plan that the user should know.
type Problem struct {
	Severity Severity `json:"severity"`
	Summary  string   `json:"summary"`
	Detail   string   `json:"detail,omitempty"`
	Dataset  string   `json:"dataset,omitempty"`
	// Tasks and Cells say where the problem is; empty means everywhere.
	Tasks []string `json:"tasks,omitempty"`
	Cells []string `json:"cells,omitempty"`
	// Refusal says that the problem concerns only these tasks in these cells:
	// the others can run without them.
	Refusal bool `json:"refusal,omitempty"`
}

// MissingKind is the kind of something missing.
type MissingKind string

// The kinds of missing things.
const (
	MissingPlugin MissingKind = "plugin"
)

// Missing is something that the run needs and this machine does not have.
type Missing struct {
	Kind MissingKind `json:"kind"`
	Name string      `json:"name"`
	// For lists the cells that need it.
	For []string `json:"for,omitempty"`
	Why string   `json:"why,omitempty"`
}

// Blocked reports whether something prevents the run from starting.
func (p *Plan) Blocked() bool {
	if len(p.Missing) > 0 {
		return true
	}
	for i := range p.Problems {
		if p.Problems[i].Severity == Error {
			return true
		}
	}
	return false
}

// runnable reports whether any trial can run.
func (p *Plan) runnable() bool {
	return slices.ContainsFunc(p.Trials, func(t Trial) bool { return t.Invalid == "" && t.Refused == "" })
}

// SkipRefused turns refusals that concern some tasks in some cells into
// warnings: their trials stay in the plan and never run.
func (p *Plan) SkipRefused() {
	if !p.runnable() {
		p.Problems = append([]Problem{{Severity: Error, Summary: "no trial can be run", Detail: "Every task is refused or invalid."}}, p.Problems...)
	}
	for i := range p.Problems {
		if p.Problems[i].Refusal {
			p.Problems[i].Severity = Warning
		}
	}
}

// executor refuses an executor that the caller does not have.
func (m *maker) executor() {
	kind := m.in.Experiment.Executor.Kind
	if known := append([]string{"local"}, m.in.Executors...); kind != "" && !slices.Contains(known, kind) {
		m.problems.add(Problem{
			Severity: Error, Summary: fmt.Sprintf("executor %q is not known", kind),
			Detail: fmt.Sprintf("Choose one of %s, or remove the block to run on this machine.", strings.Join(known, ", ")),
		})
	}
}

// Make makes the plan. An error means that the plan could not be made, because
// a dataset cannot be read or a plugin died. Problems of the experiment or its
// tasks are in the plan.
func Make(ctx context.Context, in Input) (*Plan, error) {
	p := &Plan{Experiment: in.Experiment, Checker: &feasible.Checker{}, needs: make([]*Needs, len(in.Experiment.Cells))}
	m := &maker{in: in, plan: p, datasets: map[string][]int{}}
	if err := m.tasks(ctx); err != nil {
		return nil, err
	}
	m.executor()
	m.identities()
	m.trials()
	if len(p.Trials) > 0 && !p.runnable() {
		m.problems.add(Problem{Severity: Error, Summary: "no trial can be run", Detail: "Every task is invalid. The warnings say why; `berth task check DIR` lists all that is wrong."})
	}
	if len(p.Trials) > 0 { // otherwise nothing needs checking
		if err := m.checks(ctx); err != nil {
			return nil, err
		}
	}
	m.problems.into(p)
	return p, nil
}

// Needs returns the requirements that the plugins of a cell reported.
func (p *Plan) Needs(cell int) Needs {
	if n := p.needs[cell]; n != nil {
		return *n
	}
	return Needs{}
}

// maker is the state of making a plan.
type maker struct {
	in       Input
	plan     *Plan
	datasets map[string][]int // places in plan.Tasks by the label of the dataset
	problems problems
}

// ModelOf returns the label of a cell's model, or the labels of its agent's
// models if the cell has none.
func ModelOf(c *experiment.Cell) string {
	if c.Model != nil {
		return c.Model.Label
	}
	labels := map[string]bool{}
	for _, m := range c.Agent.Models {
		labels[m.Label] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(labels)), ", ")
}

// Manifest returns the plan in the form that core/store keeps.
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

// endpoints returns the endpoints of the models of a cell, by who uses them.
func endpoints(c *experiment.Cell) map[string]store.Endpoint {
	all := map[string]store.Endpoint{}
	add := func(who string, ms map[string]*cell.Model) {
		for role, m := range ms {
			for i, m := range m.Chain() {
				e, name := store.Endpoint{Address: m.BaseURL, Replay: m.Replay}, who+"."+role
				var keys []string
				for _, key := range m.Keys() {
					shown := "written in the experiment"
					if key.Secret() != nil {
						shown = key.String()
					}
					keys = append(keys, shown)
				}
				e.Key = strings.Join(keys, ", ")
				if i > 0 {
					name += ".fallback." + m.Label
				}
				all[name] = e
			}
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

// problems collects problems, and merges equal problems of several tasks or
// cells.
type problems struct {
	list []Problem
	seen map[problemKey]int
}

type problemKey struct {
	severity                 Severity
	summary, detail, dataset string
}

func (ps *problems) add(p Problem) {
	key := problemKey{p.Severity, p.Summary, p.Detail, p.Dataset}
	i, ok := ps.seen[key]
	if !ok {
		if ps.seen == nil {
			ps.seen = map[problemKey]int{}
		}
		ps.seen[key] = len(ps.list)
		ps.list = append(ps.list, p)
		return
	}
	old := &ps.list[i]
	old.Tasks = union(old.Tasks, p.Tasks)
	old.Cells = union(old.Cells, p.Cells)
}

func union[T comparable](a, b []T) []T {
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}

// into adds the problems to the plan, errors before warnings.
func (ps *problems) into(p *Plan) {
	slices.SortStableFunc(ps.list, func(a, b Problem) int {
		return rank(a.Severity) - rank(b.Severity)
	})
	p.Problems = append(p.Problems, ps.list...)
}

func rank(s Severity) int {
	if s == Error {
		return 0
	}
	return 1
}
