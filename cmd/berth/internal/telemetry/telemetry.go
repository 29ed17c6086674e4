// Package telemetry tells monitoring systems about a run while it runs: metrics
// for Prometheus, and traces for OpenTelemetry. It is fed with the events of the run,
// and reads what ended attempts recorded.
//
// It must not change a run, wait for a monitoring system, or pass on texts: what
// agents, models and tools said stays in the record. Names of cells, tasks, models
// and tools, numbers and times are passed on.
package telemetry

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/trajectory"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// Bounds of what is read of an attempt, and of what waits to be told.
const (
	maxLine  = 16 << 20  // bytes of one line
	maxBytes = 512 << 20 // bytes of a file
	maxItems = 5000      // steps, and requests, of an attempt
	maxQueue = 4096      // events
	maxName  = 200       // bytes of a name
)

// attempt is an attempt that ended, with what it recorded.
type attempt struct {
	event run.Event
	cell  string
	steps []step
	calls []gateway.Exchange
}

// step is the part of a line of record.StepsFile that is told.
type step struct {
	Time time.Time `json:"time"`
	Turn int       `json:"turn"`
	Role string    `json:"role"`
	Step struct {
		Source trajectory.Source `json:"source"`
		Tools  []struct {
			Name string `json:"function_name"`
		} `json:"tool_calls"`
	} `json:"step"`
}

// Sink takes in the events of a run. It is safe for concurrent use.
type Sink struct {
	store   *store.Run
	metrics *Metrics // nil: none
	traces  *Traces  // nil: none
	events  chan run.Event
	telling sync.WaitGroup
	dropped atomic.Int64 // events that came faster than they could be told
}

// New makes a sink for a run, whose metrics and traces may be nil. The caller closes
// it.
func New(s *store.Run, m *Metrics, t *Traces) *Sink {
	k := &Sink{store: s, metrics: m, traces: t, events: make(chan run.Event, maxQueue)}
	if m != nil {
		m.begin(s.Manifest, s.Index())
	}
	if t != nil {
		t.begin(s.Manifest)
	}
	k.telling.Go(func() {
		for e := range k.events {
			k.tell(e)
		}
	})
	return k
}

// Event takes in an event. It does not block: if events come faster than they can be
// told, steps and requests to models are left out, and then whole events.
func (k *Sink) Event(e run.Event) {
	if k.metrics != nil {
		k.metrics.event(e)
	}
	switch e.Kind {
	case run.Began, run.Ended, run.Lost, run.Waiting:
	default:
		return
	}
	select {
	case k.events <- e:
	default:
		k.dropped.Add(1)
	}
}

// Close tells what is left, within some seconds, and returns how many events were
// left out, and what the receiver of traces said last.
func (k *Sink) Close() (dropped int, err error) {
	close(k.events)
	k.telling.Wait()
	if k.traces != nil {
		err = k.traces.close()
	}
	if k.metrics != nil {
		k.metrics.close()
	}
	return int(k.dropped.Load()), err
}

// tell tells of one event.
func (k *Sink) tell(e run.Event) {
	a := &attempt{event: e}
	if e.Trial != nil {
		a.cell = k.store.Manifest.Cells[e.Trial.Cell].Slug
	}
	if e.Kind == run.Ended && e.Result != nil && e.Result.Regraded == nil {
		dir := filepath.Join(k.store.Dir, store.TrialsDir, filepath.FromSlash(e.Trial.Dir), store.AttemptDir(e.Attempt))
		a.calls = read[gateway.Exchange](dir, record.ExchangesFile)
		if k.traces != nil {
			a.steps = read[step](dir, record.StepsFile)
		}
	}
	if k.metrics != nil {
		k.metrics.ended(a)
	}
	if k.traces != nil {
		k.traces.event(a)
	}
}

// read reads the lines of a file of an attempt. What cannot be read is left out: it
// is in no measurement, and the record keeps it.
func read[T any](dir, name string) (all []T) {
	_, _ = untrusted.Lines(dir, name, maxLine, maxBytes, func(line []byte) { //nolint:errcheck // as above
		var one T
		if len(all) < maxItems && json.Unmarshal(line, &one) == nil {
			all = append(all, one)
		}
	})
	return all
}

// name bounds a name that may come from an agent, and makes it valid.
func name(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) > maxName {
		s = strings.ToValidUTF8(s[:maxName], "")
	}
	return s
}
