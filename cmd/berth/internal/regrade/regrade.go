// Package regrade finds the attempts of a run that can be verified again, with the
// tasks and verifiers of the present experiment.
//
// It must not verify anything.
package regrade

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/trial"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Plan says which attempts of a run are verified again.
type Plan struct {
	// Plan has the trials to verify, as they are in the run, with the tasks and
	// cells of the present plan.
	Plan *plan.Plan
	// Origins are the attempts to verify, by the ids of their trials.
	Origins map[string]*trial.Origin
	// Refused says which trials cannot be verified again, and why.
	Refused []Refused
	// Unmeasured counts trials without an attempt that has anything to verify.
	Unmeasured int
}

// Refused is a trial that cannot be verified again.
type Refused struct {
	Trial *store.Trial
	Why   string
}

// New prepares to verify the accepted attempts of a run again, with the
// tasks and verifiers of a plan that was made now. The tasks may differ from those
// of the run. selected are ids of trials; nil: all.
func New(ctx context.Context, p *plan.Plan, r *store.Run, host *plugin.Host, selected map[string]bool) (*Plan, error) {
	out := &Plan{Origins: map[string]*trial.Origin{}}
	g := &regrader{now: map[placeOf]*plan.Trial{}, plan: p, plugins: trial.PluginsOf(host), traits: map[string]verifier.Traits{}}
	for i := range p.Trials {
		t := &p.Trials[i]
		g.now[placeOf{t.Dataset, t.Task, p.Experiment.Cells[t.Cell].Key, t.Repetition}] = t
	}
	derived := *p
	derived.Trials = nil
	for _, t := range r.Index().Trials {
		if selected != nil && !selected[t.ID] {
			continue
		}
		last := t.Accepted()
		if last == nil || !last.Result.Measured() {
			out.Unmeasured++
			continue
		}
		if last.Result.Origin > 0 { // the work is that of its origin
			origin := t.Work(last)
			if origin == last {
				return nil, fmt.Errorf("trial %s: attempt %d names an origin, %d, that is not there", t.ID, last.Number, last.Result.Origin)
			}
			last = origin
		}
		o := &trial.Origin{Number: last.Number, Dir: filepath.Join(r.Dir, store.TrialsDir, filepath.FromSlash(t.Dir), store.AttemptDir(last.Number))}
		now, err := g.trial(ctx, t, o, r.Manifest.Cells[t.Cell].Key)
		if err != nil {
			out.Refused = append(out.Refused, Refused{t.Trial, err.Error()})
			continue
		}
		derived.Trials = append(derived.Trials, now)
		out.Origins[t.ID] = o
	}
	out.Plan = &derived
	return out, nil
}

// placeOf identifies a trial across versions of its task.
type placeOf struct {
	dataset, task, cell string
	repetition          int
}

type regrader struct {
	plan    *plan.Plan
	now     map[placeOf]*plan.Trial
	plugins trial.Plugins
	traits  map[string]verifier.Traits // by plugin
}

// trial returns a trial of the run with its place in the present plan. Fails if
// the work of its attempt cannot be verified.
func (g *regrader) trial(ctx context.Context, t *store.TrialState, o *trial.Origin, cell string) (plan.Trial, error) {
	now := g.now[placeOf{t.Dataset, t.Task, cell, t.Repetition}]
	if now == nil {
		return plan.Trial{}, fmt.Errorf("the experiment has no task %q in dataset %q and cell %q any more", t.Task, t.Dataset, cell)
	}
	task := g.plan.Tasks[now.Place].Task
	if task == nil || now.Invalid != "" {
		return plan.Trial{}, fmt.Errorf("its task is invalid now: %s", now.Invalid)
	}
	var err error
	if o.Result, err = store.ReadResult(o.Dir); err != nil {
		return plan.Trial{}, err
	}
	c := g.plan.Experiment.Cells[now.Cell]
	in := c.Cell
	for i := range c.Datasets {
		if c.Datasets[i].Label == t.Dataset {
			in = c.On(&c.Datasets[i])
		}
	}
	traits := map[string]verifier.Traits{}
	for i := range task.Stages {
		for _, u := range task.Stages[i].Verifiers {
			v := in.Verifiers[u.Name]
			if traits[u.Name], err = g.of(ctx, cmp.Or(v.Plugin, u.Name)); err != nil {
				return plan.Trial{}, err
			}
			traits[u.Name] = traits[u.Name].With(v.Config.JSON())
		}
	}
	as := plan.Trial{Trial: *t.Trial, Place: now.Place}
	as.Cell, as.Refused = now.Cell, ""
	return as, o.Regradable(task, in, traits)
}

// of returns the traits of a verifier plugin.
func (g *regrader) of(ctx context.Context, name string) (verifier.Traits, error) {
	if known, ok := g.traits[name]; ok {
		return known, nil
	}
	v, _, err := g.plugins.Verifier(ctx, name)
	if err == nil {
		g.traits[name] = v.Traits
	}
	return v.Traits, err
}
