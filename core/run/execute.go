package run

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/core/trial"
	"github.com/berth-eval/berth/plugins/dialect"
	"github.com/berth-eval/berth/plugins/task"
)

// Spec is a run to execute on this machine. Plan, Store, Host and Sandboxd are
// required.
type Spec struct {
	Plan *plan.Plan
	// Store is the open folder of the run. The caller closes it, after reading
	// the results of the run from Store.Index.
	Store *store.Run
	// Host starts the plugins. The caller stops it.
	Host *plugin.Host
	// Formats reload a task whose files look changed since the plan was made.
	Formats []task.Format
	// Dialects are the dialects that the gateway of a run with models speaks.
	Dialects dialect.Set
	// Berth is the version of this program, for the record.
	Berth string
	// Sandboxd is the program that is PID 1 in every sandbox. A copy is
	// installed where sandboxes can read it.
	Sandboxd string
	// Limits are the limits of the run; they replace those of the experiment.
	Limits experiment.RunLimits
	// Again lists outcomes whose trials run once more, in addition to the
	// trials without a final outcome. Measured outcomes are refused.
	Again []record.Outcome
	// Selected are the ids of the trials that may run, nil: all. Those of them
	// that have a final outcome without a measurement run once more.
	Selected map[string]bool
	// Origins are attempts that are verified again, by the ids of their trials:
	// only these trials run. Nil: whole attempts are made.
	Origins map[string]*trial.Origin
	// AcceptDrift continues, and records it, when a plugin, an image or a
	// bundle differs from the one that earlier attempts of this run used.
	// Otherwise such an attempt fails.
	AcceptDrift bool
	// FindRun finds the folder of a run that a model replays; nil means that
	// the name is the path of the folder.
	FindRun func(name string) (string, error)
	// LookupEnv reads host variables; nil means that there are none.
	LookupEnv func(string) (string, bool)
	// Worker is this process if another one schedules the run; nil: this process
	// does. See Work.
	Worker *Worker
	// Memory is that of the job that this process is in; nil: it is not known.
	Memory trial.JobMemory
	// Uplink leads to the gateway of the process that schedules the run, and
	// Relayed reports which models are asked through it. Nil: none.
	Uplink  http.RoundTripper
	Relayed func(*cell.Model) bool
	// Control changes the run while it runs; nil: nothing does.
	Control *Control
	Log     zerolog.Logger

	// Executor makes the attempts. Execute sets it, and the fields below.
	Executor Executor
	Retry    experiment.Retry
	// Demand returns what the attempts of a trial take up of Limits; nil: nothing
	// but places of the whole run.
	Demand func(*plan.Trial) Demand
	// FreeMiB is the memory for all attempts if Limits do not say it; 0: no limit.
	FreeMiB int64
	// Adopted returns the attempt of a trial that continues since before this
	// process, by its number; 0: there is none. Nil: no attempt outlives the process
	// that began it.
	Adopted func(*plan.Trial) int
	Watch   Observer // nil: nobody watches
}

// Observer receives the events of a run, one after another. It must not block
// for long.
type Observer func(Event)

// Execute runs every trial of a plan that is not settled yet. First it removes
// what a killed process of the same run left on this machine. Then it creates
// the gateway if the plan uses models, runs the attempts, and removes what they
// left. It returns when all attempts that it began have ended. When ctx ends,
// no more attempts begin and the running ones are cancelled.
//
// A failed trial is in the run's record and is not an error. An error means
// that the run could not start; the Report says why a run stopped early.
func Execute(ctx context.Context, s Spec, watch Observer) (report Report, err error) {
	err = s.prepared(ctx, func(h *here) (err error) {
		s.Executor, s.Retry, s.Demand, s.FreeMiB, s.Watch = h, s.Plan.Experiment.Retry, Demands(s.Plan), s.freeMiB(), watch
		report, err = Schedule(ctx, s)
		return err
	})
	return report, err
}

// prepared prepares this machine for attempts, calls work, and removes what the
// attempts left.
func (s Spec) prepared(ctx context.Context, work func(*here) error) error {
	if s.LookupEnv == nil {
		s.LookupEnv = func(string) (string, bool) { return "", false }
	}
	label, garbage, scratch := s.Store.Manifest.Header.Run, s.Store.Manifest.Header.Run, ""
	if s.Worker != nil { // others work on the same run, perhaps on this machine
		label, garbage, scratch = s.Worker.label(label), "", s.Worker.Scratch
	}
	// If there is no Worker, the store is locked, so no other process is working on
	// this run.
	if left, gcErr := CollectGarbage(ctx, s.Host, garbage, false); gcErr != nil || len(left.Problems) > 0 {
		s.Log.Warn().Err(gcErr).Strs("problems", left.Problems).Msg("something of an earlier process of this run may be left")
	}
	if scratch != "" {
		if _, err := node.SweepScratch(scratch, false); err != nil {
			s.leftover(err)
		}
	}
	place, err := node.Claim(label, s.Store.Dir, Environments(s.Plan.Experiment), scratch)
	if err != nil {
		return err
	}
	defer func() { s.leftover(place.Release()) }()
	// Folders of attempts in the same folder have names of letters and digits,
	// without an underscore.
	models, err := s.Gateway(filepath.Join(place.Dir, "_g"))
	if err != nil {
		return err
	}
	if models != nil {
		defer func() { s.leftover(models.Close()) }()
	}
	executor, err := s.executor(place, models)
	if err != nil {
		return err
	}
	if executor.output, err = s.keepOutput(executor); err != nil {
		return err
	}
	defer func() {
		if lost := executor.output.close(); lost != nil {
			s.Log.Warn().Err(lost).Msg("some output of plugins was not kept")
		}
	}()
	err = work(executor)
	// A plugin that died in Create may have made sandboxes that no attempt
	// knows.
	left := &Garbage{}
	left.sweep(context.WithoutCancel(ctx), s.Host, place)
	if len(left.Problems) > 0 {
		s.Log.Warn().Strs("problems", left.Problems).Msg("sandboxes of this run may be left: berth gc tries again")
		s.leftover(place.Leave())
	}
	return err
}

// leftover logs what could not be removed after a run. It does not change the
// result of the run.
func (s *Spec) leftover(err error) {
	if err != nil {
		s.Log.Warn().Err(err).Msg("cleanup incomplete: run berth gc")
	}
}

// Environments returns the plugins that may make sandboxes in a run.
func Environments(e *experiment.Experiment) []string {
	var names []string
	for _, c := range e.Cells {
		if !slices.Contains(names, c.Environment.Plugin) {
			names = append(names, c.Environment.Plugin)
		}
	}
	return names
}

// Garbage is what killed processes left on this machine.
type Garbage struct {
	DryRun    bool     // nothing was removed; Sandboxes and Folders list what would be
	Sandboxes []string // "environment id"
	Folders   []string
	Problems  []string // what could not be removed, and why
}

// CollectGarbage removes what dead processes left: of one run, or of all runs
// when label is empty. It does not touch the sandboxes of a run that another
// process has resumed. dry does the same checks in the same order, and removes
// nothing.
func CollectGarbage(ctx context.Context, h *plugin.Host, label string, dry bool) (*Garbage, error) {
	res := &Garbage{DryRun: dry, Sandboxes: []string{}, Folders: []string{}}
	stale, err := node.Stale()
	for _, p := range stale {
		if ctx.Err() != nil || label != "" && p.Label != label {
			err = errors.Join(err, p.Leave())
			continue
		}
		resumed := label == "" && alive(p.Label)
		if p.Label != "" && !resumed && !res.sweep(ctx, h, p) {
			err = errors.Join(err, p.Leave()) // its list of sandboxes is needed next time
			continue
		}
		res.Folders = append(res.Folders, p.Folders()...)
		if dry {
			err = errors.Join(err, p.Leave())
			continue
		}
		err = errors.Join(err, p.Release())
	}
	return res, err
}

// alive reports whether a living process works on the run of a label.
func alive(label string) bool {
	owners, err := node.Living()
	if err != nil {
		return true
	}
	for _, o := range owners {
		if o.Label == label {
			return true
		}
	}
	return false
}

// sweep removes the sandboxes that were made for a place's owner, or only lists
// them in a dry run, and reports whether certainly none are left.
func (res *Garbage) sweep(ctx context.Context, h *plugin.Host, p *node.Place) bool {
	problems := len(res.Problems)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for _, name := range p.Environments {
		env, _, err := h.Environment(ctx, name)
		var ids []string
		if err == nil {
			ids, err = env.List(ctx, p.Label)
		}
		if err != nil {
			res.Problems = append(res.Problems, fmt.Sprintf("environment %s: %v", name, err))
			continue
		}
		for _, id := range ids {
			if res.DryRun {
				if !slices.Contains(res.Sandboxes, name+" "+id) { // two processes of one run share a label
					res.Sandboxes = append(res.Sandboxes, name+" "+id)
				}
				continue
			}
			if _, err = env.Destroy(ctx, id); err != nil {
				res.Problems = append(res.Problems, fmt.Sprintf("environment %s: sandbox %s: %v", name, id, err))
				continue
			}
			res.Sandboxes = append(res.Sandboxes, name+" "+id)
		}
	}
	return len(res.Problems) == problems
}
