package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/store"
)

// Metrics serves the metrics of a run over HTTP, for everybody who can connect.
type Metrics struct {
	server   *http.Server
	address  string
	serving  sync.WaitGroup
	registry *prometheus.Registry

	trials   *prometheus.GaugeVec // by outcome
	left     prometheus.Gauge
	flight   *prometheus.GaugeVec   // by phase
	attempts *prometheus.CounterVec // by cell, outcome
	retries  *prometheus.CounterVec // by cell
	tokens   *prometheus.CounterVec // by cell, role, model, kind
	cost     *prometheus.CounterVec // by cell, role, model
	requests *prometheus.CounterVec // by model, status
	again    *prometheus.CounterVec // by model
	took     *prometheus.HistogramVec
	first    *prometheus.HistogramVec

	mu       sync.Mutex
	outcomes map[string]record.Outcome   // by trial
	phases   map[string]record.PhaseName // by trial
}

// Address returns where metrics are served for --metrics ADDR: a port, or HOST:PORT.
// Without a host it is the loopback interface: anybody who can connect reads them.
func Address(addr string) (string, error) {
	if _, err := strconv.ParseUint(addr, 10, 16); err == nil {
		addr = ":" + addr
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("%q is not PORT or HOST:PORT: %w", addr, err)
	}
	if _, err = strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("%q is not a port: choose a number up to 65535", port)
	}
	return net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port), nil
}

// ServeMetrics serves metrics at HOST:PORT. A Sink closes it.
func ServeMetrics(ctx context.Context, addr string) (*Metrics, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	m := &Metrics{address: l.Addr().String(), registry: prometheus.NewRegistry(), outcomes: map[string]record.Outcome{}, phases: map[string]record.PhaseName{}}
	m.make()
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 8, Timeout: 10 * time.Second}))
	m.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 20 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
	m.serving.Go(func() { _ = m.server.Serve(l) }) //nolint:errcheck // it ends with close, with an error that says so
	return m, nil
}

// URL is where the metrics are.
func (m *Metrics) URL() string { return "http://" + m.address + "/metrics" }

// close ends the server.
func (m *Metrics) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := m.server.Shutdown(ctx); err != nil {
		_ = m.server.Close() //nolint:errcheck // a client that reads slowly is cut off
	}
	m.serving.Wait()
}

// make makes the metrics.
func (m *Metrics) make() {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "berth", Name: name, Help: help}, labels)
		m.registry.MustRegister(v)
		return v
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "berth", Name: name, Help: help}, labels)
		m.registry.MustRegister(v)
		return v
	}
	seconds := func(name, help string, labels ...string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "berth", Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.05, 2, 14)}, labels)
		m.registry.MustRegister(v)
		return v
	}
	m.registry.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	m.trials = gauge("trials", "Planned trials of the run, by their outcome so far.", "outcome")
	m.left = gauge("trials_left", "Trials that have not begun in this process, or wait for another attempt.").WithLabelValues()
	m.flight = gauge("attempts_in_flight", "Attempts in progress, by phase.", "phase")
	m.attempts = counter("attempts_total", "Attempts that ended in this process.", "cell", "outcome")
	m.retries = counter("attempt_retries_total", "Attempts after which the trial waits for another one.", "cell")
	m.tokens = counter("model_tokens_total", "Tokens of attempts that ended in this process. Kind input includes cached.", "cell", "role", "model", "kind")
	m.cost = counter("model_cost_usd_total", "Cost of attempts that ended in this process, where the price is known.", "cell", "role", "model")
	m.requests = counter("model_requests_total", "Requests to models of attempts that ended in this process, by HTTP status; 0: no answer.", "model", "status")
	m.again = counter("model_retries_total", "Requests to models that were sent again.", "model")
	m.took = seconds("model_request_duration_seconds", "Time from a request to a model to the end of its answer.", "model")
	m.first = seconds("model_first_byte_seconds", "Time from a request to a model to the first byte of its answer.", "model")
}

// begin sets what is known before the first event.
func (m *Metrics) begin(of *store.Manifest, x *store.Index) {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "berth", Name: "run_info", Help: "1; the labels name the run.",
		ConstLabels: prometheus.Labels{"run": of.Header.Run, "experiment": name(of.Header.Experiment)},
	})
	info.Set(1)
	m.registry.MustRegister(info)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range x.Trials {
		m.outcomes[t.ID] = t.Outcome()
		m.trials.WithLabelValues(string(t.Outcome())).Inc()
	}
}

// event takes in an event, also those that nothing else is told of.
func (m *Metrics) event(e run.Event) {
	m.left.Set(float64(e.Left))
	if e.Trial == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	id := e.Trial.ID
	switch e.Kind {
	case run.Began:
		m.phase(id, record.PhasePrepare)
	case run.Live:
		if _, going := m.phases[id]; going && e.Live.Type == record.EventPhaseStart {
			m.phase(id, e.Live.Phase)
		}
	case run.Ended, run.Lost:
		m.phase(id, "")
	default:
	}
	if e.Kind != run.Ended || e.Result == nil {
		return
	}
	if before := m.outcomes[id]; before != e.Result.Outcome && (e.Result.Outcome.Final() || !before.Final()) {
		m.trials.WithLabelValues(string(before)).Dec()
		m.trials.WithLabelValues(string(e.Result.Outcome)).Inc()
		m.outcomes[id] = e.Result.Outcome
	}
}

// phase moves a trial to a phase; empty: its attempt has ended. The caller holds the
// lock.
func (m *Metrics) phase(id string, to record.PhaseName) {
	if from := m.phases[id]; from != "" {
		m.flight.WithLabelValues(string(from)).Dec()
	}
	if to == "" {
		delete(m.phases, id)
		return
	}
	m.phases[id] = to
	m.flight.WithLabelValues(string(to)).Inc()
}

// ended counts an attempt that ended.
func (m *Metrics) ended(a *attempt) {
	switch a.event.Kind {
	case run.Waiting:
		m.retries.WithLabelValues(a.cell).Inc()
		return
	case run.Ended:
	default:
		return
	}
	r := a.event.Result
	m.attempts.WithLabelValues(a.cell, string(r.Outcome)).Inc()
	for _, u := range r.Spent() {
		model := name(u.Model)
		m.tokens.WithLabelValues(a.cell, u.Role, model, "input").Add(float64(max(0, u.InputTokens)))
		m.tokens.WithLabelValues(a.cell, u.Role, model, "cached").Add(float64(max(0, u.CachedTokens)))
		m.tokens.WithLabelValues(a.cell, u.Role, model, "output").Add(float64(max(0, u.OutputTokens)))
		if u.CostUSD != nil && *u.CostUSD > 0 {
			m.cost.WithLabelValues(a.cell, u.Role, model).Add(*u.CostUSD)
		}
	}
	for i := range a.calls {
		c := &a.calls[i]
		model := name(c.Model)
		m.requests.WithLabelValues(model, strconv.Itoa(c.Status)).Inc()
		if n := max(0, c.Tries); n > 0 || c.Retry {
			m.again.WithLabelValues(model).Add(float64(max(1, n)))
		}
		if c.Status >= 200 && c.Status < 300 {
			m.took.WithLabelValues(model).Observe(c.Took.Seconds())
			m.first.WithLabelValues(model).Observe(c.FirstByte.Seconds())
		}
	}
}
