package telemetry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/store"
)

// Bounds of telling a receiver of traces.
const (
	exportTime = 10 * time.Second // for one batch
	maxSpans   = 16384            // that wait for the receiver; more are lost
	closeTime  = 15 * time.Second // for what is left at the end
)

// Traces sends traces to a receiver of OTLP over HTTP: a trace for the time that one
// process works on a run, with spans for its trials, their attempts, phases, steps and
// requests to models.
type Traces struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	root     context.Context //nolint:containedctx // of the span of the run, the parent of others
	run      trace.Span
	trials   map[string]*spanOf // by id
	pending  *spanOf            // ended, unless the next event says that it is tried again

	mu   sync.Mutex
	last error // of the receiver
}

// spanOf is the span of a trial.
type spanOf struct {
	ctx   context.Context //nolint:containedctx // of its span, the parent of others
	span  trace.Span
	id    string
	began time.Time // of the attempt in progress
	end   time.Time
}

// WantsTraces reports whether the environment names a receiver of traces.
func WantsTraces() bool {
	return (os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "") && os.Getenv("OTEL_TRACES_EXPORTER") != "none"
}

// NewTraces sends traces to the receiver of the variables OTEL_EXPORTER_OTLP_*. A Sink
// closes it.
func NewTraces(ctx context.Context, version string) (*Traces, error) {
	if err := CheckTraces(); err != nil {
		return nil, err
	}
	t := &Traces{trials: map[string]*spanOf{}}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.last = err
	}))
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	of := resource.NewSchemaless(attribute.String("service.name", "berth"), attribute.String("service.version", version))
	t.provider = sdk.NewTracerProvider(sdk.WithResource(of), sdk.WithSampler(sdk.AlwaysSample()), sdk.WithBatcher(exporter, sdk.WithExportTimeout(exportTime), sdk.WithMaxQueueSize(maxSpans)))
	t.tracer = t.provider.Tracer("berth")
	return t, nil
}

// CheckTraces returns an error for variables with a protocol that is not supported.
func CheckTraces() error {
	for _, v := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if p := os.Getenv(v); WantsTraces() && p != "" && p != "http/protobuf" {
			return fmt.Errorf("%s is %q, and only http/protobuf is supported: most receivers speak it on port 4318", v, p)
		}
	}
	return nil
}

// begin begins the span of the run.
func (t *Traces) begin(m *store.Manifest) {
	t.root, t.run = t.tracer.Start(context.Background(), "run "+name(m.Header.Experiment), trace.WithAttributes(
		attribute.String("berth.run", m.Header.Run), attribute.String("berth.experiment", name(m.Header.Experiment)), attribute.Int("berth.trials", len(m.Trials)),
	))
}

// close ends all spans and sends what is left.
func (t *Traces) close() error {
	t.settle()
	for _, s := range t.trials {
		s.span.End()
	}
	t.run.End()
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	err := t.provider.Shutdown(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err = errors.Join(t.last, err); err != nil {
		err = fmt.Errorf("traces: %w", err)
	}
	return err
}

// settle ends the span of a trial after its last attempt.
func (t *Traces) settle() {
	if s := t.pending; s != nil {
		s.span.End(trace.WithTimestamp(s.end))
		delete(t.trials, s.id)
		t.pending = nil
	}
}

// event takes in an event.
func (t *Traces) event(a *attempt) {
	e := &a.event
	if e.Kind == run.Waiting && t.pending != nil && t.pending.id == e.Trial.ID {
		t.pending = nil // it is tried again
		return
	}
	t.settle()
	switch e.Kind {
	case run.Began:
		now := time.Now()
		s := t.trials[e.Trial.ID]
		if s == nil {
			s = &spanOf{id: e.Trial.ID}
			s.ctx, s.span = t.tracer.Start(t.root, "trial "+name(e.Trial.Task), trace.WithTimestamp(now), trace.WithAttributes(
				attribute.String("berth.trial", e.Trial.ID), attribute.String("berth.task", name(e.Trial.Task)), attribute.String("berth.cell", a.cell), attribute.Int("berth.repetition", e.Trial.Repetition),
			))
			t.trials[e.Trial.ID] = s
		}
		s.began = now
	case run.Ended, run.Lost:
		s := t.trials[e.Trial.ID]
		if s == nil {
			return
		}
		s.end = time.Now()
		if e.Result != nil {
			t.attempt(s, a)
			s.span.SetAttributes(attribute.String("berth.outcome", string(e.Result.Outcome)))
		}
		t.pending = s
	default:
	}
}

// attempt tells of an attempt that ended.
func (t *Traces) attempt(of *spanOf, a *attempt) {
	r := a.event.Result
	ctx, span := t.tracer.Start(of.ctx, fmt.Sprintf("attempt %d", a.event.Attempt), trace.WithTimestamp(r.Start), trace.WithAttributes(
		attribute.String("berth.trial", a.event.Trial.ID), attribute.Int("berth.attempt", a.event.Attempt), attribute.String("berth.outcome", string(r.Outcome)),
		attribute.String("berth.agent_end", string(r.AgentEnd)), attribute.String("berth.integrity", string(r.Integrity)), attribute.Int64("berth.steps", r.Steps),
	))
	if r.Score != nil {
		span.SetAttributes(attribute.Float64("berth.score", *r.Score))
	}
	if r.Error != nil {
		span.SetStatus(codes.Error, string(r.Error.Boundary)) // its text stays in the record
	}
	steps, calls := a.steps, a.calls
	for i := range r.Phases {
		p := &r.Phases[i]
		inside, child := t.tracer.Start(ctx, string(p.Name), trace.WithTimestamp(p.Start), trace.WithAttributes(
			attribute.String("berth.stage", name(p.Stage)), attribute.Int("berth.turn", p.Turn), attribute.String("berth.who", string(p.Who)),
		))
		if p.Error != "" {
			child.SetStatus(codes.Error, string(p.Who))
		}
		steps = t.steps(inside, p, steps)
		calls = t.calls(inside, p, calls)
		child.End(trace.WithTimestamp(p.End))
	}
	span.End(trace.WithTimestamp(r.End))
}

// during reports whether something happened in a phase.
func during(p *record.Phase, at time.Time) bool { return !at.Before(p.Start) && !at.After(p.End) }

// steps tells of the steps in a phase, and returns the others. A step is recorded when
// it has happened: it begins where the one before it ended.
func (t *Traces) steps(ctx context.Context, p *record.Phase, all []step) (others []step) {
	begin := p.Start
	for i := range all {
		s := &all[i]
		if !during(p, s.Time) {
			others = append(others, *s)
			continue
		}
		var tools []string
		for _, tool := range s.Step.Tools {
			tools = append(tools, name(tool.Name))
		}
		_, span := t.tracer.Start(ctx, "step", trace.WithTimestamp(begin), trace.WithAttributes(
			attribute.String("berth.role", name(s.Role)), attribute.String("berth.source", name(string(s.Step.Source))), attribute.StringSlice("berth.tools", tools[:min(len(tools), 20)]),
		))
		span.End(trace.WithTimestamp(s.Time))
		begin = s.Time
	}
	return others
}

// calls tells of the requests to models in a phase, and returns the others.
func (t *Traces) calls(ctx context.Context, p *record.Phase, all []gateway.Exchange) (others []gateway.Exchange) {
	for i := range all {
		c := &all[i]
		if !during(p, c.Time) {
			others = append(others, *c)
			continue
		}
		sent := c.Time.Add(max(0, c.Waited))
		_, span := t.tracer.Start(ctx, "chat "+name(c.Model), trace.WithTimestamp(sent), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
			attribute.String("gen_ai.operation.name", "chat"), attribute.String("gen_ai.request.model", name(c.Model)), attribute.String("berth.role", name(c.Role)),
			attribute.Int("http.response.status_code", c.Status), attribute.Int("berth.tries", c.Tries), attribute.Int64("berth.waited_ms", c.Waited.Milliseconds()),
		))
		if c.Usage != nil {
			span.SetAttributes(attribute.Int64("gen_ai.usage.input_tokens", c.Usage.Input), attribute.Int64("gen_ai.usage.output_tokens", c.Usage.Output))
		}
		if c.Status < 200 || c.Status > 299 {
			span.SetStatus(codes.Error, "")
		}
		span.End(trace.WithTimestamp(sent.Add(max(0, c.Took))))
	}
	return others
}
