package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway/ledger"
	"github.com/berth-eval/berth/core/gateway/ratelimit"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/dialect"
	"github.com/berth-eval/berth/plugins/model"
)

// The headers between a gateway and the one that it forwards requests to. Both
// are JSON: an origin with the request, a forwarded with the answer.
const (
	originHeader    = "Berth-Origin"
	forwardedHeader = "Berth-Forwarded"
)

// origin says for whom a request is forwarded.
type origin struct {
	Trial    string `json:"trial"`
	Attempt  int    `json:"attempt"`
	Role     string `json:"role"`
	Verifier string `json:"verifier,omitempty"`
	Agent    string `json:"agent,omitempty"`
	InFlight int    `json:"in_flight,omitempty"` // of the agent
	Hosted   bool   `json:"hosted,omitempty"`
	Model    string `json:"model,omitempty"` // its id
	Once     bool   `json:"once,omitempty"`  // it has a fallback: while its provider is down, it is not asked again
	End      bool   `json:"end,omitempty"`   // there is no request: the attempt sends none for now
}

// forwarded is the result of a request. Without a failure, the answer is that
// of the provider.
type forwarded struct {
	Failure  dialect.FailureKind `json:"failure,omitempty"`
	Message  string              `json:"message,omitempty"`
	Hopeless bool                `json:"hopeless,omitempty"` // the provider would fail again
	Scope    record.Scope        `json:"scope,omitempty"`    // of the budget that has no room
	First    bool                `json:"first,omitempty"`    // nothing of the budget was used
	Cause    Cause               `json:"cause,omitempty"`
	Wait     time.Duration       `json:"wait_ns,omitempty"` // the provider asks for it, and it is too long
	Why      string              `json:"why,omitempty"`
	Key      int                 `json:"key,omitempty"`
	Limit    int                 `json:"limit,omitempty"`
	Tries    int                 `json:"tries,omitempty"`
	Waited   time.Duration       `json:"waited_ns,omitempty"` // for room in a budget, or for the provider
}

// remoteError is a failure that the other gateway reports. It has tried what can
// be tried.
type remoteError struct{ forwarded }

// Error implements error.
func (e *remoteError) Error() string { return e.Message }

// uplinkError says that the other gateway did not answer. It does not wrap the
// cause, which would look like one of the provider.
type uplinkError struct{ why string }

// Error implements error.
func (e *uplinkError) Error() string { return "the connection to the machine with the keys: " + e.why }

// modelID identifies a model in all processes that have read the same experiment.
func modelID(m *cell.Model) string {
	one := *m
	one.Fallback = nil // has its own id
	b, err := json.Marshal(&one)
	if err != nil { // it has no member that could fail
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// relayed reports whether requests to a model are forwarded.
func (g *Gateway) relayed(m *cell.Model) bool {
	return g.o.Uplink != nil && (g.o.Relayed == nil || g.o.Relayed(m))
}

// forwards prepares a model whose requests are forwarded: the other gateway has
// its keys, and limits its requests.
func (g *Gateway) forwards(u *upstream) {
	o, log := g.o.RateLimit, g.o.Log
	o.Max = 1 << 20
	o.Tell = func(s ratelimit.State) { log.Warn().Msg(told(u.model.Name, s)) }
	u.relayed, u.keys, u.health = true, []*apiKey{{limiter: ratelimit.New(o)}}, &health{}
}

func (s *session) origin() origin {
	p := &s.spec
	return origin{Trial: p.Trial, Attempt: p.Attempt, Role: p.Role, Verifier: p.Verifier, Agent: p.Agent, InFlight: p.InFlight, Hosted: p.Hosted}
}

// endUp tells the other gateway that the attempt sends no more requests for now.
// If that fails, it finds out when the attempt has ended.
func (s *session) endUp(ctx context.Context) {
	if !s.uplink.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	o := s.origin()
	o.End = true
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, uplinkBase, http.NoBody)
	if err != nil {
		return
	}
	req.Header.Set(originHeader, string(dialect.JSON(o)))
	if resp, err := s.g.o.Uplink.RoundTrip(req); err == nil {
		_ = resp.Body.Close()
	}
}

// uplinkBase takes the place of a provider's address. The uplink knows where it
// leads.
const uplinkBase = "https://gateway/forward"

// Bounds of a forwarded request. The other gateway watches the provider and is the
// first to give up; that it is gone itself is found out within pingTime.
const (
	pingTime = 45 * time.Second
	longest  = 24 * time.Hour
)

// askUp forwards the request, and returns when an answer has begun.
func (x *exchange) askUp(ctx context.Context, req *http.Request) (*http.Response, error) {
	x.s.uplink.Store(true)
	o := x.s.origin()
	o.Model, o.Once = x.e.up.id, x.e.next != nil
	req.Header.Set(originHeader, string(dialect.JSON(o)))
	_, idle := silenceLimits(&x.e.up.model)
	return x.watched(ctx, longest, idle+pingTime, func(ctx context.Context) (*http.Response, error) {
		defer x.signing()()
		resp, err := x.s.g.o.Uplink.RoundTrip(req.WithContext(ctx))
		switch {
		case err != nil && context.Cause(ctx) == nil:
			return nil, &uplinkError{clip(err.Error())}
		case err != nil:
			return nil, err
		}
		if err = x.became(resp); err != nil {
			_ = resp.Body.Close()
		}
		return resp, err
	})
}

// became reads the result of a forwarded request.
func (x *exchange) became(resp *http.Response) error {
	text := resp.Header.Get(forwardedHeader)
	resp.Header.Del(forwardedHeader)
	var f forwarded
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		return fmt.Errorf("unexpected answer with status %d", resp.StatusCode)
	}
	x.line.Key, x.line.Limit, x.remote = f.Key, f.Limit, f
	x.line.Tries += f.Tries
	x.line.Waited += f.Waited
	x.s.wait.addSince(time.Now().Add(-f.Waited))
	if f.Wait > 0 {
		return &longError{f.Wait, f.Why}
	}
	if f.Failure != 0 {
		return &remoteError{f}
	}
	return nil
}

// refusedUp answers a request that the other gateway did not send to the provider
// although that would serve. It returns false for other errors.
func (x *exchange) refusedUp(err error) bool {
	r, ok := errors.AsType[*remoteError](err)
	switch {
	case !ok || r.Failure == dialect.Unreachable || r.Failure == dialect.Overloaded:
		return false
	case r.Failure == dialect.Spent:
		x.s.endTurn(&models.Refusal{Scope: r.Scope, First: r.First, Err: r})
	default:
		x.s.setDown(r)
	}
	x.refuse(dialect.Failure{Kind: r.Failure, Message: r.Message})
	return true
}

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
