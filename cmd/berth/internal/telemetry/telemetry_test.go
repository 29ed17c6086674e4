package telemetry_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/berth-eval/berth/cmd/berth/internal/telemetry"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/internal/testlevel"
)

// canary is in every text that an agent, a model or a tool can write.
const canary = "canary-secret-of-the-agent"

// receiver is a receiver of OTLP.
type receiver struct {
	*httptest.Server

	mu    sync.Mutex
	spans []*otlp.Span
	raw   strings.Builder
}

func receive(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		b, err := io.ReadAll(q.Body)
		var all collector.ExportTraceServiceRequest
		if err != nil || q.URL.Path != "/v1/traces" || proto.Unmarshal(b, &all) != nil {
			t.Errorf("%s %s: %v", q.Method, q.URL, err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, rs := range all.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				r.spans = append(r.spans, ss.Spans...)
			}
		}
		r.raw.Write(b)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(r.Close)
	return r
}

// newRun makes a run of two trials.
func newRun(t *testing.T) (*store.Run, []plan.Trial) {
	t.Helper()
	m := &store.Manifest{Header: store.Header{Experiment: "exp"}, Cells: []store.Cell{{Key: "agent=a", Slug: "a"}}}
	var trials []plan.Trial
	for i := range 2 {
		id := fmt.Sprintf("%064d", i)
		tr := store.Trial{ID: id, Dir: store.TrialDir("task", "a", i+1, id[56:]), Task: "task", TaskDigest: "d", Repetition: i + 1}
		m.Trials, trials = append(m.Trials, tr), append(trials, plan.Trial{Trial: tr})
	}
	s, err := store.Create(t.TempDir(), m, nil)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s, trials
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// attempt makes an attempt whose turn lasted a second, with two steps and two
// requests to a model, and publishes it.
func attempt(t *testing.T, s *store.Run, of *plan.Trial, o record.Outcome) (int, *record.Result) {
	t.Helper()
	a, err := s.Begin(of.ID)
	must(t, err)
	at := time.Now().Add(-2 * time.Second).UTC()
	later := func(ms int) string { return at.Add(time.Duration(ms) * time.Millisecond).Format(time.RFC3339Nano) }
	lines := map[string][]string{
		record.StepsFile: {
			`{"time":"` + later(400) + `","turn":1,"role":"agent","step":{"source":"agent","message":"` + canary + `","tool_calls":[{"function_name":"bash","arguments":{"x":"` + canary + `"}}]}}`,
			`{"time":"` + later(900) + `","turn":1,"role":"agent","step":{"source":"agent"}}`, `"torn`,
		},
		record.ExchangesFile: {
			`{"time":"` + later(100) + `","role":"agent","model":"m","status":200,"tries":1,"usage":{"input":100,"output":20},"first_byte_ns":50000000,"took_ns":200000000,"waited_ns":1000000,"request":"` + canary + `"}`,
			`{"time":"` + later(500) + `","role":"agent","model":"m","status":429,"upstream":"` + canary + `","took_ns":1000000}`,
		},
	}
	must(t, errors.Join(a.WriteFile("log", []byte(canary)), os.Mkdir(filepath.Join(a.Dir(), record.ModelDir), 0o755)))
	for file, all := range lines {
		must(t, a.WriteFile(file, []byte(strings.Join(all, "\n")+"\n")))
	}
	cost := 0.5
	r := record.Result{
		Version: 1, Trial: of.ID, Attempt: a.Number(), Task: "task", Outcome: o, AgentEnd: record.Yielded, Start: at, End: at.Add(time.Second), Steps: 2,
		Phases: []record.Phase{
			{Name: record.PhaseCreate, Who: record.ByEnvironment, Start: at, End: at.Add(50 * time.Millisecond)},
			{Name: record.PhaseTurn, Who: record.ByAgent, Turn: 1, Start: at.Add(50 * time.Millisecond), End: at.Add(time.Second), Error: canary},
		},
		Usage: []record.Usage{{Role: "agent", Model: "m", Requests: 2, InputTokens: 100, CachedTokens: 10, OutputTokens: 20, CostUSD: &cost}},
		Error: &record.Error{Boundary: record.ByAgent, Message: canary}, Reasons: []string{canary}, Labels: map[string]string{"x": canary},
	}
	must(t, a.Publish(r))
	return a.Number(), &r
}

// scrape reads the metrics, as Prometheus does.
func scrape(t *testing.T, url string) (map[string]*dto.MetricFamily, string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	res, err := http.DefaultClient.Do(q)
	must(t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	must(t, err)
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(strings.NewReader(string(b)))
	must(t, err)
	return families, string(b)
}

// value returns the value of a metric with some labels, written as a=1,b=2.
func value(t *testing.T, families map[string]*dto.MetricFamily, name, labels string) float64 {
	t.Helper()
	for _, m := range families[name].GetMetric() {
		var have []string
		for _, l := range m.GetLabel() {
			have = append(have, l.GetName()+"="+l.GetValue())
		}
		slices.Sort(have)
		if strings.Join(have, ",") != labels {
			continue
		}
		switch {
		case m.Counter != nil:
			return m.Counter.GetValue()
		case m.Histogram != nil:
			return float64(m.Histogram.GetSampleCount())
		default:
			return m.Gauge.GetValue()
		}
	}
	t.Errorf("there is no %s{%s}", name, labels)
	return -1
}

// A run of two trials, one of which is tried twice, as a scrape and a receiver of
// OTLP see it.
func TestARunIsTold(t *testing.T) {
	s, trials := newRun(t)
	r := receive(t)
	m, err := telemetry.ServeMetrics(t.Context(), "127.0.0.1:0")
	must(t, err)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.URL)
	traces, err := telemetry.NewTraces(t.Context(), "1.2.3")
	must(t, err)
	k := telemetry.New(s, m, traces)
	began := func(i, n int) {
		k.Event(run.Event{Kind: run.Began, Trial: &trials[i], Attempt: n, To: 2, Running: 1, Left: 1 - i})
		k.Event(run.Event{Kind: run.Live, Trial: &trials[i], Attempt: n, Live: record.Event{Type: record.EventPhaseStart, Phase: record.PhaseTurn}, Left: 1 - i})
	}
	began(0, 1)
	before, _ := scrape(t, m.URL())
	if got := value(t, before, "berth_attempts_in_flight", "phase=turn"); got != 1 {
		t.Errorf("%v attempts are in their turn", got)
	}
	n, result := attempt(t, s, &trials[0], record.EnvironmentError)
	k.Event(run.Event{Kind: run.Ended, Trial: &trials[0], Attempt: n, Result: result, Left: 2})
	k.Event(run.Event{Kind: run.Waiting, Trial: &trials[0], Attempt: n + 1, Left: 2})
	began(0, 2)
	n, result = attempt(t, s, &trials[0], record.Passed)
	k.Event(run.Event{Kind: run.Ended, Trial: &trials[0], Attempt: n, Result: result, Left: 1})
	began(1, 1)
	n, result = attempt(t, s, &trials[1], record.Failed)
	k.Event(run.Event{Kind: run.Ended, Trial: &trials[1], Attempt: n, Result: result})
	var families map[string]*dto.MetricFamily
	var text string
	testlevel.Eventually(t, "the last attempt is counted", func() bool {
		families, text = scrape(t, m.URL())
		return strings.Contains(text, `berth_attempts_total{cell="a",outcome="failed"} 1`)
	})
	for _, want := range []struct {
		name, labels string
		value        float64
	}{
		{"berth_trials", "outcome=passed", 1},
		{"berth_trials", "outcome=failed", 1},
		{"berth_trials", "outcome=not_run", 0},
		{"berth_trials_left", "", 0},
		{"berth_attempts_in_flight", "phase=turn", 0},
		{"berth_attempts_total", "cell=a,outcome=environment_error", 1},
		{"berth_attempt_retries_total", "cell=a", 1},
		{"berth_model_tokens_total", "cell=a,kind=input,model=m,role=agent", 300},
		{"berth_model_tokens_total", "cell=a,kind=cached,model=m,role=agent", 30},
		{"berth_model_cost_usd_total", "cell=a,model=m,role=agent", 1.5},
		{"berth_model_requests_total", "model=m,status=200", 3},
		{"berth_model_requests_total", "model=m,status=429", 3},
		{"berth_model_retries_total", "model=m", 3},
		{"berth_model_request_duration_seconds", "model=m", 3},
		{"berth_run_info", "experiment=exp,run=" + s.Manifest.Header.Run, 1},
	} {
		if got := value(t, families, want.name, want.labels); got != want.value {
			t.Errorf("%s{%s} is %v, want %v", want.name, want.labels, got, want.value)
		}
	}
	if dropped, err := k.Close(); dropped != 0 || err != nil {
		t.Errorf("the end: %d dropped, %v", dropped, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if strings.Contains(text, canary) || strings.Contains(r.raw.String(), canary) {
		t.Error("a text of the agent was passed on")
	}
	checkTree(t, r.spans)
}

// checkTree checks that each span lies in the right one, and in its time.
func checkTree(t *testing.T, spans []*otlp.Span) {
	t.Helper()
	byID, kinds := map[string]*otlp.Span{}, map[string]int{}
	for _, s := range spans {
		byID[string(s.SpanId)] = s
	}
	within := map[string]string{"trial": "run", "attempt": "trial", "create": "attempt", "turn": "attempt", "step": "turn", "chat": "turn"}
	kind := func(s *otlp.Span) string { k, _, _ := strings.Cut(s.GetName(), " "); return k }
	for _, s := range spans {
		k := kind(s)
		kinds[k]++
		parent := byID[string(s.ParentSpanId)]
		if want := within[k]; kind(parent) != want {
			t.Errorf("%s lies in %q, want %s", s.Name, parent.GetName(), want)
		}
		if s.EndTimeUnixNano < s.StartTimeUnixNano {
			t.Errorf("%s ends before it begins", s.Name)
		}
		if (k == "step" || k == "chat") && (s.StartTimeUnixNano < parent.StartTimeUnixNano || s.EndTimeUnixNano > parent.EndTimeUnixNano) {
			t.Errorf("%s is outside of the time of %s", s.Name, parent.Name)
		}
		if string(s.TraceId) != string(spans[0].TraceId) {
			t.Errorf("%s is in another trace", s.Name)
		}
	}
	want := map[string]int{"run": 1, "trial": 2, "attempt": 3, "create": 3, "turn": 3, "step": 6, "chat": 6}
	for k, n := range want {
		if kinds[k] != n {
			t.Errorf("%d spans of %s, want %d", kinds[k], k, n)
		}
	}
}

// A receiver that is not there, or does not answer, does not hold a run up.
func TestADeadReceiverHoldsNothingUp(t *testing.T) {
	s, trials := newRun(t)
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", dead.URL)
	traces, err := telemetry.NewTraces(t.Context(), "1.2.3")
	must(t, err)
	k := telemetry.New(s, nil, traces)
	n, result := attempt(t, s, &trials[0], record.Passed)
	begin := time.Now()
	for range 20_000 {
		k.Event(run.Event{Kind: run.Began, Trial: &trials[0], Attempt: n})
	}
	if took := time.Since(begin); took > 5*time.Second { // the promise: no event waits for the receiver, which has 10 s
		t.Errorf("20,000 events took %s", took)
	}
	k.Event(run.Event{Kind: run.Ended, Trial: &trials[0], Attempt: n, Result: result})
	if _, err = k.Close(); err == nil || time.Since(begin) > time.Minute { // the promise: 15 s for what is left, not for ever
		t.Errorf("the end says %v after %s", err, time.Since(begin))
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{"9464": "127.0.0.1:9464", ":9464": "127.0.0.1:9464", "0.0.0.0:1": "0.0.0.0:1", "[::]:1": "[::]:1", "localhost:0": "localhost:0"} {
		if got, err := telemetry.Address(addr); got != want || err != nil {
			t.Errorf("%s: %s, %v", addr, got, err)
		}
	}
	for _, addr := range []string{"", "x", "1:2:3", "127.0.0.1", "127.0.0.1:x", "99999", ":99999", "-1"} {
		if got, err := telemetry.Address(addr); err == nil {
			t.Errorf("%q is accepted as %s", addr, got)
		}
	}
}

func TestTheProtocolOfTheEnvironment(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	if err := telemetry.CheckTraces(); err != nil || telemetry.WantsTraces() {
		t.Errorf("without a receiver: %v", err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318")
	if err := telemetry.CheckTraces(); err == nil || !strings.Contains(err.Error(), "http/protobuf") || !telemetry.WantsTraces() {
		t.Errorf("grpc: %v", err)
	}
	t.Setenv("OTEL_TRACES_EXPORTER", "none")
	if err := telemetry.CheckTraces(); err != nil || telemetry.WantsTraces() {
		t.Errorf("no exporter: %v", err)
	}
}
