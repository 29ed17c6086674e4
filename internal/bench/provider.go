package main

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/dialects/scripted"
	"github.com/berth-eval/berth/plugins/dialect"
)

// modelName is the name of the provider's model.
const modelName = "scripted"

// provider is a scripted model with its own address, for CLIs that are started
// by hand and for the gateway. It records when the first request of each
// conversation arrived.
type provider struct {
	*httptest.Server

	script *scripted.Session

	mu      sync.Mutex
	arrived []time.Time // one for each first request
	hold    func(ctx context.Context)
}

// newProvider makes a provider that answers from a script in YAML.
func newProvider(text string) (*provider, error) {
	s, err := scripted.Parse([]byte(text), false)
	if err != nil {
		return nil, err
	}
	p := &provider{script: s.Session(), hold: func(context.Context) {}}
	p.Server = httptest.NewServer(p)
	return p, nil
}

// during sets a function that runs while a first request waits for its answer.
func (p *provider) during(hold func(ctx context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = hold
}

// take returns the arrivals since the previous call.
func (p *provider) take() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.arrived
	p.arrived = nil
	return out
}

// first records an arrival.
func (p *provider) first(at time.Time) (hold func(ctx context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arrived = append(p.arrived, at)
	return p.hold
}

// ServeHTTP implements http.Handler. It answers requests that are not for the
// model like the gateway.
func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	d, call, ok := dialects.All.Of(r)
	switch {
	case r.Header.Get("Upgrade") != "":
		w.WriteHeader(http.StatusUpgradeRequired)
		return
	case !ok:
		w.WriteHeader(http.StatusOK)
		return
	case call.Kind == dialect.List:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(d.Listed([]string{modelName})) // the client may be gone
		return
	}
	resp, err := p.reply(r, at, d, call)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	defer resp.Body.Close()
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body) // the client may be gone
}

func (p *provider) reply(r *http.Request, at time.Time, d dialect.Dialect, call dialect.Call) (*http.Response, error) {
	in, err := unpacked(r)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	body, err := dialect.ParseObject(raw)
	if err != nil {
		return nil, err
	}
	facts, err := d.Facts(call, body)
	if err != nil {
		return nil, err
	}
	voice, ok := d.(scripted.Voice)
	if !ok {
		return nil, fmt.Errorf("a scripted model does not speak %s", d.Name())
	}
	talk, err := voice.Talk(body)
	if err != nil {
		return nil, err
	}
	if call.Kind == dialect.Generate && talk.Turn == 0 {
		p.first(at)(r.Context())
	}
	return p.script.Send(r.Context(), dialect.Request{Dialect: d, Call: call, Facts: facts, Body: body})
}

// unpacked returns the decompressed body of a request.
func unpacked(r *http.Request) (io.Reader, error) {
	switch enc := r.Header.Get("Content-Encoding"); enc {
	case "", "identity":
		return r.Body, nil
	case "gzip":
		return gzip.NewReader(r.Body)
	case "zstd":
		return zstd.NewReader(r.Body)
	default:
		return nil, fmt.Errorf("content encoding %q is not known", enc)
	}
}
