package cli

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/berth-eval/berth/cmd/berth/internal/control"
	"github.com/berth-eval/berth/cmd/berth/internal/telemetry"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/internal/tui"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/run"
)

// limits are the limits that a run begins with: those of the experiment, what people
// set during the run before, and those of the command line.
func (a *app) limits(j *job) experiment.RunLimits {
	l := j.Experiment.Limits
	if !j.ownLimits {
		for _, said := range control.Resume(j.store.Index().Notes, &l) {
			a.Notef("note: %s\n", terminal.Clean(said))
		}
	}
	if j.flags.inFlight > 0 {
		l.InFlight = new(int(j.flags.inFlight))
	}
	return l
}

// watching is what a run is watched with.
type watching struct {
	*run.Spec

	flags    *runFlags
	progress tui.Watcher
}

// watched carries a run out, with its socket, and with metrics and traces if the user
// asks for them.
func (a *app) watched(ctx context.Context, w *watching, carry func(run.Observer) (run.Report, error)) (report run.Report, err error) {
	var mu sync.Mutex // progress gets one event after another
	say := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		w.progress.Event(run.Event{Kind: run.Notice, Text: text})
	}
	sink, err := w.telemetry(ctx, say)
	if err != nil {
		return report, err
	}
	defer func() { //nolint:contextcheck // also after a cancel
		if sink == nil {
			return
		}
		if lost, failed := sink.Close(); lost > 0 || failed != nil {
			a.log.Warn().Err(failed).Int("lost_events", lost).Msg("not all of the run was told to the receivers of metrics and traces")
		}
	}()
	o := control.Options{Store: w.Store, Control: w.Control, Limits: w.Limits, Say: say}
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
		if sink != nil {
			sink.Event(e)
		}
		mu.Lock()
		defer mu.Unlock()
		w.progress.Event(e)
	})
}

// telemetry begins metrics and traces; nil if the user asks for neither.
func (w *watching) telemetry(ctx context.Context, say func(string)) (*telemetry.Sink, error) {
	var metrics *telemetry.Metrics
	var traces *telemetry.Traces
	if w.flags.metrics == "" && !telemetry.WantsTraces() {
		return nil, nil
	}
	if telemetry.WantsTraces() {
		var err error
		if traces, err = telemetry.NewTraces(ctx, version); err != nil {
			return nil, err
		}
	}
	if w.flags.metrics != "" {
		var err error
		if metrics, err = telemetry.ServeMetrics(ctx, w.flags.metrics); err != nil {
			return nil, fmt.Errorf("--metrics: %w", err)
		}
		say("metrics: " + metrics.URL())
	}
	return telemetry.New(w.Store, metrics, traces), nil //nolint:contextcheck // spans have their own context, which does not end
}
