package run

import (
	"context"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/rs/zerolog"

	"github.com/berth-eval/berth/core/config"
	"github.com/berth-eval/berth/core/gateway/dialect"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/plugins/task"
)

// Spec is a run to execute on this machine. Plan, Store, Host and Sandboxd are
// required.
type Spec struct {
	Plan *plan.Plan
	// Store is the open folder of the run. The caller closes it, after it has
	// read what came of the run from Store.Index.
	Store *store.Run
	// Host starts the plugins. The caller stops it.
	Host *plugin.Host
	// Formats read a task again whose files look changed since it was planned.
	Formats []task.Format
	// Dialects are those that the gateway of a run with models speaks.
	Dialects dialect.Set
	// Berth is the version of this program, for the record.
	Berth string
	// Sandboxd is the program that is PID 1 in every sandbox. A copy is installed
	// where sandboxes can see it.
	Sandboxd string
	// Limits are those of the run, in place of the experiment's.
	Limits config.RunLimits
	// Again are outcomes whose trials are run once more, beside those that have
	// no final outcome. Measured ones are refused.
	Again []record.Outcome
	// AcceptDrift goes on, and notes it, when a plugin, an image or a bundle is
	// not the one that earlier attempts of this run used. Else such an attempt
	// fails.
	AcceptDrift bool
	// FindRun finds the folder of a run that a model replays; nil: its name is
	// the folder.
	FindRun func(name string) (string, error)
	// LookupEnv reads host variables; nil: there are none.
	LookupEnv func(string) (string, bool)
	Log       zerolog.Logger
}

// Observer is told what happens in a run, one event after another. It must not
// block for long.
type Observer func(Event)

// Execute runs every trial of a plan that is not settled yet. It removes first
// what a killed process of the same run left on this machine, makes the gateway
// if the plan uses models, carries out the attempts, and removes what they
// left. It returns when all attempts that it began have ended. When ctx ends,
// nothing more begins and the attempts under way are cancelled.
//
// A trial that fails is in the run's record and is no error. An error means
// that the run could not be started; what stopped it before all was done is in
// the Report.
//
// While it runs, this process uses half of its processors and collects garbage
// half as often as usual, unless $GOMAXPROCS or $GOGC say otherwise: sandboxes
// need the processors, and the core waits most of the time.
func Execute(ctx context.Context, s Spec, watch Observer) (report Report, err error) {
	if s.LookupEnv == nil {
		s.LookupEnv = func(string) (string, bool) { return "", false }
	}
	defer yieldProcessors(s.LookupEnv)()
	label := s.Store.Manifest.Header.Run
	// Nobody else can be at work on this run: its store is locked.
	if left, gcErr := CollectGarbage(ctx, s.Host, label, false); gcErr != nil || len(left.Problems) > 0 {
		s.Log.Warn().Err(gcErr).Strs("problems", left.Problems).Msg("something of an earlier process of this run may be left")
	}
	place, err := node.Claim(label, s.Store.Dir, environmentsOf(s.Plan.Experiment))
	if err != nil {
		return report, err
	}
	defer func() { s.leftover(place.Release()) }()
	models, err := s.gateway(place.Dir)
	if err != nil {
		return report, err
	}
	if models != nil {
		defer func() { s.leftover(models.Close()) }()
	}
	executor, err := s.executor(place, models)
	if err != nil {
		return report, err
	}
	report, err = Schedule(ctx, Options{
		Plan: s.Plan, Store: s.Store, Executor: executor, Retry: s.Plan.Experiment.Retry, Limits: s.Limits, Again: s.Again, Watch: watch,
	})
	// A plugin that died in Create may have made what no attempt knows of.
	left := &Garbage{}
	left.sweep(context.WithoutCancel(ctx), s.Host, place)
	if len(left.Problems) > 0 {
		s.Log.Warn().Strs("problems", left.Problems).Msg("sandboxes of this run may be left: berth gc tries again")
		s.leftover(place.Leave())
	}
	return report, err
}

// leftover says what could not be removed after a run. It changes nothing of
// what the run came to.
func (s *Spec) leftover(err error) {
	if err != nil {
		s.Log.Warn().Err(err).Msg("something of this run is left on this machine: berth gc tries again")
	}
}

// environmentsOf are the plugins that may make sandboxes in a run.
func environmentsOf(e *config.Experiment) []string {
	var names []string
	for _, c := range e.Cells {
		if !slices.Contains(names, c.Environment.Plugin) {
			names = append(names, c.Environment.Plugin)
		}
	}
	return names
}

// yieldProcessors has this process use half of the processors: each more that
// it wakes up for a moment costs time that sandboxes need. undo ends it.
func yieldProcessors(env func(string) (string, bool)) (undo func()) {
	undos := []func(){}
	if n, set := env("GOMAXPROCS"); !set || n == "" {
		runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/2))
		undos = append(undos, runtime.SetDefaultGOMAXPROCS)
	}
	if n, set := env("GOGC"); !set || n == "" {
		before := debug.SetGCPercent(200)
		undos = append(undos, func() { debug.SetGCPercent(before) })
	}
	return func() {
		for _, undo := range undos {
			undo()
		}
	}
}
