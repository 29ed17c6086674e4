package cli

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"github.com/berth-eval/berth/cmd/berth/internal/control"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/internal/tui"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/run"
)

// limits are the limits that a run begins with: those of the experiment, what people
// set while the run went on before, and those of the command line.
func (a *app) limits(j *job) experiment.RunLimits {
	l := j.Experiment.Limits
	if !j.ownLimits {
		for _, said := range control.Resume(j.store.Index().Notes, &l) {
			a.Notef("note: %s\n", terminal.Clean(said))
		}
	}
	if j.flags.inFlight > 0 {
		l.InFlight = &j.flags.inFlight
	}
	return l
}

// watched opens the socket of a run, and carries the run out.
func (a *app) watched(ctx context.Context, spec *run.Spec, progress tui.Watcher, carry func(run.Observer) (run.Report, error)) (report run.Report, err error) {
	var mu sync.Mutex // progress gets one event after another
	say := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		progress.Event(run.Event{Kind: run.Notice, Text: text})
	}
	o := control.Options{Store: spec.Store, Control: spec.Control, Limits: spec.Limits, Say: say}
	if o.Limits.InFlight == nil {
		o.Limits.InFlight = new(runtime.GOMAXPROCS(0))
	}
	server, err := control.Serve(ctx, o)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, server.Close()) }() //nolint:contextcheck // also after a cancel
	return carry(func(e run.Event) {
		server.Event(e)
		mu.Lock()
		defer mu.Unlock()
		progress.Event(e)
	})
}
