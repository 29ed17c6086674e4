package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/semaphore"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway/ledger"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/dialect"
	"github.com/berth-eval/berth/plugins/model"
)

// Forward answers one request that the gateway of another process sends through
// its Uplink. It reserves the cost in the budgets of the cell and of the run,
// limits the rate of all processes together, and adds the key; the other gateway
// has the budget of the attempt, and records the exchange. may returns why
// requests of an attempt are not accepted from there, or nil. Only the models of
// the trial are served.
func (g *Gateway) Forward(w http.ResponseWriter, r *http.Request, may func(trial string, attempt int) error) {
	var o origin
	if err := json.Unmarshal([]byte(r.Header.Get(originHeader)), &o); err != nil {
		http.Error(w, "the request does not say where it comes from", http.StatusBadRequest)
		return
	}
	r.Header.Del(originHeader)
	refuse := func(why error) {
		refuseForward(w, forwarded{Failure: dialect.Over, Message: why.Error()})
	}
	if err := may(o.Trial, o.Attempt); err != nil {
		refuse(err)
		return
	}
	if o.End {
		g.ledger.End(g.payer(o.spec()), g.shared(o.Trial)...)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	s, e, err := g.guest(&o)
	if err != nil {
		refuse(err)
		return
	}
	r.URL.Path = strings.TrimPrefix(r.URL.Path, forwardPath)
	call, ok := e.up.dialect.Call(r)
	if !ok || call.Kind == dialect.List {
		refuse(fmt.Errorf("%s %q is not forwarded", r.Method, clip(r.URL.Path)))
		return
	}
	life, leave, ok := s.enter()
	if !ok {
		refuse(fmt.Errorf("attempt %d of trial %s has ended", o.Attempt, o.Trial))
		return
	}
	x := &exchange{s: s, e: e, d: e.up.dialect, call: call, r: r, life: life, control: http.NewResponseController(w), forward: &forwarding{once: o.Once}}
	x.w = &forwardWriter{ResponseWriter: w, x: x}
	x.run(leave) //nolint:contextcheck // a request ends with its attempt, too
}

// forwardPath is the beginning of the paths of forwarded requests.
const forwardPath = "/forward"

func (o *origin) spec() *models.Spec {
	return &models.Spec{Trial: o.Trial, Attempt: o.Attempt, Role: o.Role, Verifier: o.Verifier, Agent: o.Agent, InFlight: o.InFlight, Hosted: o.Hosted}
}

// shared returns the budgets that a trial shares with others.
func (g *Gateway) shared(trial string) []*ledger.Account {
	if c := g.cells[trial]; c != nil {
		return []*ledger.Account{c, g.run}
	}
	return []*ledger.Account{g.run}
}

// guest returns the session for the requests of one role of an attempt to one
// model. It has no budget of its own.
func (g *Gateway) guest(o *origin) (*session, *entry, error) {
	c := g.trials[o.Trial]
	if c == nil {
		return nil, nil, fmt.Errorf("the run has no trial %q", clip(o.Trial))
	}
	key := strings.Join([]string{attemptKey(o.Trial, o.Attempt), o.Role, o.Verifier, o.Model, strconv.FormatBool(o.Hosted)}, "/")
	g.guests.Lock()
	defer g.guests.Unlock()
	if s := g.guests.sessions[key]; s != nil {
		return s, s.entries[""], nil
	}
	var m *cell.Model
	for _, used := range c.Models {
		if i := slices.IndexFunc(used.Chain(), func(one *cell.Model) bool { return modelID(one) == o.Model }); i >= 0 {
			m = used.Chain()[i]
		}
	}
	if m == nil || g.models[m] == nil || g.models[m].health == nil {
		return nil, nil, fmt.Errorf("trial %s uses no such model of a provider", o.Trial)
	}
	spec := o.spec()
	s := &session{
		g: g, spec: *spec, payer: g.payer(spec), endpoints: map[string]model.Endpoint{}, entries: map[string]*entry{}, spent: make(chan struct{}),
		memory:   semaphore.NewWeighted(maxTogether), // another gateway limits it
		accounts: append([]*ledger.Account{g.ledger.Open("attempt", cell.Budget{}, ledger.Amount{})}, g.shared(o.Trial)...),
	}
	e, err := s.entry("", m, key) // no client can have a header like this
	if err != nil {
		return nil, nil, err
	}
	s.entries[""] = e
	if g.guests.sessions == nil {
		g.guests.sessions = map[string]*session{}
	}
	g.guests.sessions[key] = s
	s.Allow(context.Background())
	return s, e, nil
}

// Release ends the requests that were forwarded for an attempt, and forgets it.
// Later ones have to be refused by the caller of Forward.
func (g *Gateway) Release(ctx context.Context, trial string, attempt int) {
	key := attemptKey(trial, attempt)
	g.guests.Lock()
	var ended []*session
	for name, s := range g.guests.sessions {
		if strings.HasPrefix(name, key+"/") {
			ended = append(ended, s)
			delete(g.guests.sessions, name)
		}
	}
	g.guests.Unlock()
	for _, s := range ended {
		_ = s.Revoke(ctx) // fails only if ctx ends before the requests do
	}
	g.mu.Lock()
	delete(g.payers, key)
	g.mu.Unlock()
}

// forwarding is what a request from another gateway needs to know.
type forwarding struct {
	once bool
	forwarded
}

// refuseForward answers a forwarded request that is not sent to a provider.
func refuseForward(w http.ResponseWriter, f forwarded) {
	w.Header().Set(forwardedHeader, string(dialect.JSON(f)))
	w.WriteHeader(http.StatusForbidden)
}

// refuseUp is refuse for a request from another gateway, which tells its client.
func (x *exchange) refuseUp(f dialect.Failure) {
	x.forward.Failure = f.Kind
	x.forward.Message = cmp.Or(x.forward.Message, f.Message)
	x.w.WriteHeader(http.StatusForbidden)
}

// unreserved notes for which budget there was no room.
func (f *forwarding) unreserved(g *Gateway, e *ledger.SpentError) {
	if f.First, f.Scope = e.First, record.ScopeCell; e.Account == g.run {
		f.Scope = record.ScopeRun
	}
}

// forwardWriter adds to an answer the result of the request.
type forwardWriter struct {
	http.ResponseWriter

	x *exchange
}

// WriteHeader implements http.ResponseWriter.
func (w *forwardWriter) WriteHeader(status int) {
	f, l := &w.x.forward.forwarded, &w.x.line
	f.Key, f.Limit, f.Tries, f.Cause, f.Waited = l.Key, l.Limit, l.Tries, l.Cause, l.Waited
	w.Header().Set(forwardedHeader, string(dialect.JSON(f)))
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets an http.ResponseController work.
func (w *forwardWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// alone reports whether nothing else serves the request if this model does not.
func (x *exchange) alone() bool {
	return x.e.next == nil && (x.forward == nil || !x.forward.once)
}
