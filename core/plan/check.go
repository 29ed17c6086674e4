package plan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/environment"
	surface "github.com/berth-eval/berth/plugins/surface/host"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Needs are the requirements that the plugins of a cell reported.
type Needs struct {
	Agent, User *agent.Needs               // nil: the plugin could not be asked
	Verifiers   map[string]verifier.Traits // by the name that tasks use
}

// checks asks the plugins of every cell about every task.
func (m *maker) checks(ctx context.Context) error {
	if m.in.Plugins == nil {
		return nil
	}
	a := &asker{maker: m}
	for i := range m.plan.Experiment.Cells {
		if err := a.cell(ctx, i); err != nil {
			return err
		}
	}
	m.plan.Declared = a.declared()
	return nil
}

// asker asks plugins about tasks.
type asker struct {
	*maker

	delivered map[int][]Delivered // by the place of a task
}

func (a *asker) cell(ctx context.Context, i int) error {
	c := a.plan.Experiment.Cells[i]
	n := &Needs{Verifiers: map[string]verifier.Traits{}}
	a.plan.needs[i] = n
	first := c.On(&c.Datasets[0])
	role := agent.RoleAgent
	if c.Agent.Oracle {
		role = agent.RoleOracle
	}
	var err error
	if n.Agent, err = a.agent(ctx, c, first.Agent, role); err != nil {
		return err
	}
	if c.User != nil {
		if n.User, err = a.agent(ctx, c, first.User.Agent, agent.RoleUser); err != nil {
			return err
		}
	}
	for d := range c.Datasets {
		tc := c.On(&c.Datasets[d])
		for _, place := range a.datasets[c.Datasets[d].Label] {
			t := &a.plan.Tasks[place]
			if t.Task == nil {
				continue
			}
			if err = a.verifiers(ctx, c, tc, t.Task, n); err != nil {
				return err
			}
			if err = a.task(ctx, i, tc, place); err != nil {
				return err
			}
		}
	}
	return nil
}

// agent asks an agent what it needs; nil: it could not say.
func (a *asker) agent(ctx context.Context, c *experiment.Cell, ag cell.Agent, role agent.Role) (*agent.Needs, error) {
	p, used, err := a.in.Plugins.Agent(ctx, ag.Plugin)
	if err != nil {
		return nil, a.plugin(ctx, "agent", ag.Plugin, c.Key, err)
	}
	n, err := a.plan.Checker.Agent(ctx, p, used, ag, role)
	if err != nil {
		return nil, a.failed(ctx, fmt.Sprintf("agent %q", ag.Plugin), c.Key, err)
	}
	return &n, nil
}

// plugin records that a plugin is not available.
func (a *asker) plugin(ctx context.Context, kind, name, cell string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	missing, m := &a.plan.Missing, Missing{Kind: MissingPlugin, Name: fmt.Sprintf("%s %q", kind, name), For: []string{cell}, Why: err.Error()}
	if i := slices.IndexFunc(*missing, func(o Missing) bool { return o.Name == m.Name }); i < 0 {
		*missing = append(*missing, m)
	} else if of := &(*missing)[i].For; (*of)[len(*of)-1] != cell { // the cells come one after the other
		*of = append(*of, cell)
	}
	return nil
}

// failed records that a plugin could not answer.
func (a *asker) failed(ctx context.Context, who, cell string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p := Problem{Severity: Error, Cells: []string{cell}, Summary: who + " cannot answer", Detail: err.Error()}
	if errors.Is(err, agent.ErrBadConfig) {
		p.Summary = who + " refuses its configuration"
	}
	a.problems.add(p)
	return nil
}

// verifiers asks the verifiers that a task names for their requirements.
func (a *asker) verifiers(ctx context.Context, c *experiment.Cell, tc cell.Cell, t *task.Task, n *Needs) error {
	for i := range t.Stages {
		for _, u := range t.Stages[i].Verifiers {
			name := u.Name
			if v := tc.Verifiers[u.Name]; v.Plugin != "" {
				name = v.Plugin
			}
			if _, known := n.Verifiers[u.Name]; known {
				continue
			}
			p, _, err := a.in.Plugins.Verifier(ctx, name)
			if err != nil {
				if err = a.plugin(ctx, "verifier", name, c.Key, err); err != nil {
					return err
				}
				continue
			}
			n.Verifiers[u.Name] = p.Traits.With(tc.Verifiers[u.Name].Config.JSON())
		}
	}
	return nil
}

// task asks whether a cell can run a task, and how it delivers what the task declares.
func (a *asker) task(ctx context.Context, cell int, tc cell.Cell, place int) error {
	c, t := a.plan.Experiment.Cells[cell], &a.plan.Tasks[place]
	report, err := a.refusals(ctx, cell, tc, t.Task, t.Options)
	if err != nil {
		return err
	}
	if len(report.Refusals) == 0 {
		for _, d := range report.Degraded {
			a.problems.add(Problem{
				Severity: Warning, Summary: d.Summary, Detail: d.Detail, Tasks: []string{t.Name}, Cells: []string{c.Key},
			})
		}
	}
	for _, r := range report.Refusals {
		a.problems.add(Problem{
			Severity: Error, Refusal: true, Summary: r.Summary, Detail: r.Detail, Tasks: []string{t.Name}, Cells: []string{c.Key},
		})
	}
	if len(report.Refusals) > 0 {
		a.refuse(cell, place, report.Refusals[0])
	}
	a.declare(cell, tc, place, len(report.Refusals) > 0)
	return nil
}

// refusals returns all reasons why a cell cannot run a task, and what its environment
// provides less of.
func (a *asker) refusals(ctx context.Context, cell int, tc cell.Cell, t *task.Task, o task.Options) (report environment.Report, err error) {
	c, n := a.plan.Experiment.Cells[cell], a.plan.needs[cell]
	known := feasible.Known{Agent: n.Agent, User: n.User, Verifiers: n.Verifiers, Gateway: len(a.in.Dialects.Dialects) > 0}
	env, used, err := a.environment(ctx, c, tc.Environment.Plugin)
	if err != nil {
		return report, err
	}
	refused, err := a.settings(ctx, c, tc, t)
	if err != nil {
		return report, err
	}
	var needs surface.Needs
	var why []feasible.Problem
	if len(refused) == 0 { // otherwise the surface would refuse the same again
		if needs, why, err = a.surface(ctx, c, tc, t); err != nil {
			return report, err
		}
	}
	known.Environment = env
	refused = slices.Concat(refused, feasible.HostVars(t, o, tc, known, &a.in.Dialects), feasible.Unsupported(t, tc, known), why)
	if n.Agent != nil && env != nil {
		report, err = a.sandboxes(ctx, c, tc, t, sandboxes{env, used, *n, needs})
		if err != nil && len(refused) == 0 {
			return report, err
		}
	}
	report.Refusals = append(refused, report.Refusals...)
	return report, nil
}

// refuse marks the trials of a task in a cell as refused.
func (a *asker) refuse(cell, place int, why feasible.Problem) {
	for i := range a.plan.Trials {
		if t := &a.plan.Trials[i]; t.Cell == cell && t.Place == place {
			t.Refused = why.String()
		}
	}
}

// surface asks the plugin with the surface what it needs for a task.
func (a *asker) surface(ctx context.Context, c *experiment.Cell, tc cell.Cell, t *task.Task) (surface.Needs, []feasible.Problem, error) {
	if !t.HasSurface() {
		return nil, nil, nil
	}
	name, _ := tc.Environment.WithSurface()
	env, used, err := a.environment(ctx, c, name)
	if env == nil || err != nil {
		return nil, nil, err
	}
	needs, why, err := a.plan.Checker.Surface(ctx, env, used, t, tc.Environment)
	if err != nil {
		return nil, nil, a.failed(ctx, fmt.Sprintf("surface %q", name), c.Key, err)
	}
	return needs, why, nil
}

// environment returns an environment; nil: it is not available.
func (a *asker) environment(ctx context.Context, c *experiment.Cell, name string) (environment.Environment, record.PluginUsed, error) {
	p, used, err := a.in.Plugins.Environment(ctx, name)
	if err != nil {
		return nil, used, a.plugin(ctx, "environment", name, c.Key, err)
	}
	return p, used, nil
}

// sandboxes is whom to ask about the sandboxes of a task, and for what.
type sandboxes struct {
	env   environment.Environment
	used  record.PluginUsed
	needs Needs

	surface surface.Needs
}

// sandboxes asks whether the environment can create the sandboxes of a task.
func (a *asker) sandboxes(ctx context.Context, c *experiment.Cell, tc cell.Cell, t *task.Task, of sandboxes) (environment.Report, error) {
	spec, _, err := feasible.Spec(t, tc, *of.needs.Agent)
	if err != nil {
		return environment.Report{}, fmt.Errorf("task %s, cell %s: %w", t.Name, c.Key, err) // Unsupported lets none through
	}
	specs := []environment.Spec{spec}
	more, err := feasible.VerifierSpecs(t, tc, of.needs.Verifiers)
	if err != nil {
		return environment.Report{}, fmt.Errorf("task %s, cell %s: %w", t.Name, c.Key, err)
	}
	all := environment.Report{Refusals: of.surface.Furnish(&specs[0])}
	for _, spec := range append(specs, more...) {
		r, err := a.plan.Checker.Environment(ctx, of.env, of.used, spec)
		if err != nil {
			return r, a.failed(ctx, fmt.Sprintf("environment %q", tc.Environment.Plugin), c.Key, err)
		}
		all.Refusals, all.Degraded = union(all.Refusals, r.Refusals), union(all.Degraded, r.Degraded)
	}
	return all, nil
}

// Declared are tasks that declare the same features, which the cells deliver in the
// same ways.
type Declared struct {
	Features []task.Feature `json:"features"`
	Tasks    []string       `json:"tasks"`
	// Cells say how the cells that can run the tasks deliver the features. Each of them
	// is in one.
	Cells []Delivered `json:"cells"`
}

// Delivered is how some cells deliver the features of some tasks.
type Delivered struct {
	Cells    []string                           `json:"cells"` // keys
	Delivery map[task.Feature]feasible.Delivery `json:"delivery"`
}

// declare notes how a cell that can run a task delivers what it declares, and of
// others only that the task declares it.
func (a *asker) declare(cell int, tc cell.Cell, place int, refused bool) {
	t := a.plan.Tasks[place].Task
	features := featuresOf(t)
	if len(features) == 0 {
		return
	}
	if a.delivered == nil {
		a.delivered = map[int][]Delivered{}
	}
	key, list := a.plan.Experiment.Cells[cell].Key, a.delivered[place]
	if a.delivered[place] = list; refused {
		return
	}
	delivery := map[task.Feature]feasible.Delivery{}
	for _, f := range features {
		delivery[f] = feasible.Deliver(t, f, tc, a.plan.needs[cell].Agent)
	}
	at := slices.IndexFunc(list, func(d Delivered) bool { return maps.Equal(d.Delivery, delivery) })
	if at < 0 {
		a.delivered[place] = append(list, Delivered{Cells: []string{key}, Delivery: delivery})
	} else {
		list[at].Cells = append(list[at].Cells, key)
	}
}

func featuresOf(t *task.Task) (fs []task.Feature) {
	for _, n := range t.Needs() {
		if !slices.Contains(fs, n.Feature) {
			fs = append(fs, n.Feature)
		}
	}
	return fs
}

// declared groups the tasks of the plan.
func (a *asker) declared() (all []Declared) {
	for place := range a.plan.Tasks {
		list, ok := a.delivered[place]
		if !ok {
			continue
		}
		t := &a.plan.Tasks[place]
		d := Declared{Features: featuresOf(t.Task), Tasks: []string{t.Name}, Cells: append([]Delivered{}, list...)}
		at := slices.IndexFunc(all, func(o Declared) bool {
			return slices.Equal(o.Features, d.Features) && slices.EqualFunc(o.Cells, d.Cells, func(x, y Delivered) bool {
				return slices.Equal(x.Cells, y.Cells) && maps.Equal(x.Delivery, y.Delivery)
			})
		})
		if at < 0 {
			all = append(all, d)
		} else {
			all[at].Tasks = append(all[at].Tasks, t.Name)
		}
	}
	return all
}

// Settings returns what is wrong with what a task sets for the plugins of a cell, with
// file and line where the format knows them. What is for a plugin that is not there is
// not judged. An error means that a plugin does not answer.
func Settings(ctx context.Context, f task.Format, t *task.Task, c cell.Cell, validate feasible.ValidateSettings) (ps []task.Problem, err error) {
	surface, conf := c.Environment.WithSurface()
	for _, s := range t.Settings() {
		kind, name, of := plugins.KindEnvironment, surface, plugins.Settings{JSON: s.JSON, Config: conf.JSON(), Capture: s.Capture}
		if s.Verifier != "" {
			v := c.Verifiers[s.Verifier]
			kind, name, of.Config = plugins.KindVerifier, s.Verifier, v.Config.JSON()
			if v.Plugin != "" {
				name = v.Plugin
			}
		}
		if name == "" {
			continue
		}
		wrong, err := validate(ctx, kind, name, of)
		if errors.Is(err, plugin.ErrUnknown) {
			continue // reported elsewhere
		}
		if err != nil {
			return nil, err
		}
		for _, w := range wrong {
			key := s.Key
			switch {
			case strings.HasPrefix(string(w.Path), "["):
				key += string(w.Path)
			case w.Path != "":
				key += "." + string(w.Path)
			}
			p := task.Located(f, t, task.Problem{Severity: task.Error, Key: key, Summary: w.Summary, Detail: w.Detail})
			p.Summary = fmt.Sprintf("%s %q: %s: %s", kind, name, p.Key, w.Summary)
			if !slices.Contains(ps, p) { // what all stages share is written once
				ps = append(ps, p)
			}
		}
	}
	return ps, nil
}

// settings returns what is wrong with what a task sets for the plugins of a cell.
func (a *asker) settings(ctx context.Context, c *experiment.Cell, tc cell.Cell, t *task.Task) (wrong []feasible.Problem, err error) {
	at := slices.IndexFunc(a.in.Formats, func(f task.Format) bool { return f.Name() == t.Format })
	if a.in.Settings == nil || at < 0 {
		return nil, nil
	}
	ps, err := Settings(ctx, a.in.Formats[at], t, tc, func(ctx context.Context, kind plugins.Kind, name string, s plugins.Settings) ([]config.Problem, error) {
		return a.plan.Checker.Settings(ctx, kind, name, s, a.in.Settings)
	})
	if err != nil {
		return nil, a.failed(ctx, fmt.Sprintf("a plugin that task %s has settings for", t.Name), c.Key, err)
	}
	for _, p := range ps {
		detail := p.Detail
		p.Detail = ""
		wrong = append(wrong, feasible.Problem{Summary: p.String(), Detail: detail})
	}
	return wrong, nil
}
