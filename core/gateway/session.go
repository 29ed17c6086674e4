package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway/ledger"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/dialect"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/verifier"
)

// session implements models.Session: the models of one session of a plugin.
type session struct {
	g         *Gateway
	spec      models.Spec
	accounts  []*ledger.Account // that it uses: the attempt's, the cell's if there is one, the run's
	payer     *ledger.Attempt
	entries   map[string]*entry // by token
	endpoints map[string]model.Endpoint
	server    *http.Server
	closers   []func() error
	serving   sync.WaitGroup
	wait      waits
	secrets   secrets
	memory    *semaphore.Weighted // bytes for requests
	uplink    atomic.Bool         // a request was forwarded
	places    chan struct{}       // for requests in progress; nil: another gateway limits them

	mu       sync.Mutex
	life     context.Context //nolint:containedctx // of the current turn: a request has to end with it
	end      context.CancelCauseFunc
	inside   int           // requests in progress
	idle     chan struct{} // closed when the last of them has ended; nil while nothing waits
	health   *health       // of the provider that state.Down is about
	state    models.State  // without Served; Refusal says why spent is closed
	answered bool          // a request got a whole answer
	asked    bool          // a request came
	unserved bool          // a request did not get a whole answer
	findings []verifier.Finding
	spent    chan struct{}
	watched  map[*watchdog]struct{} // requests to providers in progress
}

// entry is one model of a session.
type entry struct {
	name   string // by which the plugin asks for it
	up     *upstream
	play   dialect.Scripted // nil: the model is not scripted
	player dialect.Replayed // of a replayed model, after its first request
	alike  sync.Once        // for the finding that recorded requests differ in values that change from run to run
	costly sync.Once        // for the finding that the provider states another cost
	token  string
	first  int    // index of the key that is preferred
	next   *entry // the fallback; nil: none

	mu     sync.Mutex
	known  known           // the last request with reported usage
	most   int64           // tokens of the largest exchange, including its answer
	failed map[uint64]bool // digests of failed requests: whether they were counted
	usage  record.Usage
	priced bool // all of it has a known price
}

// errRevoked is the reason why a request ends with its turn.
var errRevoked = errors.New("the turn is over")

func (g *Gateway) open(ctx context.Context, spec models.Spec) (_ *session, err error) {
	s := &session{
		g: g, spec: spec, accounts: g.accounts(&spec), payer: g.payer(&spec), entries: map[string]*entry{}, endpoints: map[string]model.Endpoint{},
		spent: make(chan struct{}), places: make(chan struct{}, maxAtOnce), memory: semaphore.NewWeighted(maxRequests),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close(ctx))
		}
	}()
	if spec.Dir != "" {
		if err = os.MkdirAll(filepath.Join(spec.Dir, record.ModelDir), 0o755); err != nil {
			return s, err
		}
	}
	for name, m := range spec.Models {
		if err = s.add(name, m); err != nil {
			return s, fmt.Errorf("%s: %w", name, err)
		}
	}
	s.server = &http.Server{
		Handler: s, ReadHeaderTimeout: 30 * time.Second, MaxHeaderBytes: 256 << 10,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), // clients that go away are not worth logging
	}
	host, url, err := s.listenHost(ctx)
	if err != nil {
		return s, err
	}
	inside := ""
	if spec.Inside != nil {
		if inside, err = s.listenInside(ctx); err != nil {
			return s, err
		}
	}
	for name, e := range s.endpoints {
		e.Host, e.HostURL, e.Inside = host, url, inside
		s.endpoints[name] = e
	}
	return s, nil
}

func (s *session) add(name string, m *cell.Model) error {
	b := make([]byte, 24)
	if _, err := rand.Read(b); err != nil {
		return err
	}
	token := "berth-" + hex.EncodeToString(b)
	var e, last *entry
	for _, one := range m.Chain() {
		next, err := s.entry(name, one, token)
		if err != nil {
			return err
		}
		if last == nil {
			e = next
		} else {
			last.next, next.usage.FallbackFor = next, e.up.model.Name
		}
		last = next
	}
	u := e.up
	speaks := model.Dialect(u.model.Provider)
	if u.dialect == nil {
		speaks = s.g.o.Dialects.Usual().Name()
		if len(s.spec.Dialects) > 0 {
			speaks = s.spec.Dialects[0]
		}
	} else if len(s.spec.Dialects) > 0 && !slices.Contains(s.spec.Dialects, speaks) {
		return fmt.Errorf("model %q speaks %s, and the plugin speaks %v", m.Label, speaks, s.spec.Dialects)
	}
	s.entries[token] = e
	s.secrets.add(token)
	s.endpoints[name] = model.Endpoint{Token: token, Dialect: speaks, Name: u.model.Name, Parameters: u.model.Parameters}
	return nil
}

// entry makes the entry of one model of the session, or of one of its
// fallbacks.
func (s *session) entry(name string, m *cell.Model, token string) (*entry, error) {
	u := s.g.models[m]
	if u == nil {
		return nil, fmt.Errorf("the gateway has no model %q", m.Label)
	}
	if s.accounts[0].Limit().CostUSD != nil {
		if err := u.bounds(); err != nil {
			return nil, err
		}
	}
	e := &entry{
		name: name, up: u, token: token, failed: map[uint64]bool{}, priced: true,
		usage: record.Usage{Role: s.spec.Role, Verifier: s.spec.Verifier, Model: u.model.Name},
	}
	if u.script != nil {
		e.play = u.script()
	}
	if n := int64(len(u.keys)); n > 0 {
		e.first = int((u.turn.Add(1) - 1) % n)
	}
	for _, key := range u.keys {
		s.secrets.add(key.value)
	}
	return e, nil
}

// listenHost opens the private socket, and a loopback port for clients that
// cannot use sockets.
func (s *session) listenHost(ctx context.Context) (socket, url string, err error) {
	path := s.g.socket()
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return "", "", err
	}
	s.serve(l)
	if err = os.Chmod(path, 0o600); err != nil {
		return "", "", err
	}
	if l, err = lc.Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return "", "", err
	}
	s.serve(l)
	return "unix:" + path, "http://" + l.Addr().String(), nil
}

// listenInside opens the loopback port in the sandbox.
func (s *session) listenInside(ctx context.Context) (string, error) {
	p := host.NewListener()
	s.serve(p)
	port, err := s.spec.Inside(ctx, 0, p.Serve)
	if err != nil {
		return "", err
	}
	s.closers = append(s.closers, port.Close)
	return fmt.Sprintf("http://127.0.0.1:%d", port.Number), nil
}

func (s *session) serve(l net.Listener) {
	s.serving.Go(func() { _ = s.server.Serve(l) }) // ends with Close, with an error that says so
}

// Endpoints implements models.Session.
func (s *session) Endpoints() map[string]model.Endpoint { return s.endpoints }

// Allow implements models.Session.
func (s *session) Allow(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life == nil {
		s.life, s.end = context.WithCancelCause(context.WithoutCancel(ctx))
		s.state.GaveUp = nil // in an earlier turn
	}
}

// Revoke implements models.Session. It ends the requests in progress and waits
// until they are settled.
func (s *session) Revoke(ctx context.Context) error {
	defer s.ended()
	defer s.g.ledger.End(s.payer, s.accounts...)
	defer s.endUp(ctx)
	s.mu.Lock()
	if s.life != nil {
		s.end(errRevoked)
		s.life, s.end = nil, nil
	}
	if s.inside == 0 {
		s.mu.Unlock()
		return nil
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	idle := s.idle
	s.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("revoke models: a request does not end: %w", context.Cause(ctx))
	}
}

// enter lets a request in if there is a turn. The caller must call leave.
func (s *session) enter() (ctx context.Context, leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life == nil {
		return nil, nil, false
	}
	s.inside++
	return s.life, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.inside--; s.inside == 0 && s.idle != nil {
			close(s.idle)
			s.idle = nil
		}
	}, true
}

// Spent implements models.Session.
func (s *session) Spent() <-chan struct{} { return s.spent }

// State implements models.Session.
func (s *session) State() models.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.state
	out.Served = s.asked && !s.unserved
	return out
}

// refuse records that a budget had no room for a request. The first refusal is
// kept.
func (s *session) refuse(by *ledger.SpentError, why error) {
	r := &models.Refusal{First: by.First, Err: why}
	switch by.Account {
	case s.accounts[0]:
		s.find("budget", why.Error())
	case s.g.run:
		r.Scope = record.ScopeRun
	default:
		r.Scope = record.ScopeCell
	}
	s.endTurn(r)
}

// endTurn ends the turn. The first reason is kept.
func (s *session) endTurn(r *models.Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Refusal == nil {
		s.state.Refusal = r
		close(s.spent)
	}
}

func (s *session) setDown(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Down, s.state.GaveUp, s.state.Refused = err, nil, nil
	s.unserved = s.unserved || err != nil
	s.answered = s.answered || err == nil
}

// count counts a finished exchange. One without a status and without an error
// was a request for the list of models.
func (s *session) count(e *Exchange) {
	if e.Status == 0 && e.Error == "" && e.Broken == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = true
	s.state.Last = &record.Exchange{Time: e.Time, Model: e.Model, FallbackFor: e.FallbackFor, Key: e.Key, Status: e.Status, Error: e.Error, Upstream: e.Upstream, Broken: e.Broken, Stop: e.Stop}
	s.unserved = s.unserved || e.Status < 200 || e.Status > 299 || e.Error != "" || e.Broken != "" || e.Upstream != ""
}

// Waited implements models.Session.
func (s *session) Waited() time.Duration { return s.wait.sum() }

// Findings implements models.Session.
func (s *session) Findings() []verifier.Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.findings)
}

// maxFindings keeps a client from filling the record with the same finding.
const maxFindings = 50

// find adds a finding, a note.
func (s *session) find(code, text string) {
	f := verifier.Finding{Code: code, Severity: verifier.Note, Text: text}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.findings) < maxFindings && !slices.Contains(s.findings, f) {
		s.findings = append(s.findings, f)
	}
}

// Usage implements models.Session, with one line per model that was used, and
// one for its use as a fallback.
func (s *session) Usage() []record.Usage {
	byModel := map[string]*record.Usage{}
	var order []string
	for _, e := range s.sorted() {
		e.mu.Lock()
		u, priced := e.usage, e.priced
		e.mu.Unlock()
		if u.Requests == 0 && u.InputTokens == 0 {
			continue
		}
		if !priced {
			u.CostUSD = nil
		}
		id := u.Model + "\n" + u.FallbackFor
		sum := byModel[id]
		if sum == nil {
			byModel[id] = &u
			order = append(order, id)
			continue
		}
		sum.Add(&u)
	}
	var out []record.Usage
	for i, name := range order {
		if i == 0 {
			byModel[name].WaitedMS = s.wait.sum().Milliseconds()
		}
		out = append(out, *byModel[name])
	}
	return out
}

// sorted returns the entries by name, each followed by its fallbacks.
func (s *session) sorted() (all []*entry) {
	for _, e := range slices.SortedFunc(maps.Values(s.entries), func(a, b *entry) int { return strings.Compare(a.name, b.name) }) {
		for ; e != nil; e = e.next {
			all = append(all, e)
		}
	}
	return all
}

// Close implements models.Session. The tokens are invalid afterwards.
func (s *session) Close(ctx context.Context) error {
	err := s.Revoke(ctx)
	if s.server != nil {
		err = errors.Join(err, s.server.Close())
	}
	for _, c := range s.closers {
		err = errors.Join(err, c())
	}
	s.serving.Wait()
	return err
}

// Serve also lets a session of a Gateway answer at l, until the session is
// closed.
func Serve(of models.Session, l net.Listener) error {
	s, ok := of.(*session)
	if !ok {
		return fmt.Errorf("serve models: %T is not a session of a gateway", of)
	}
	s.serve(l)
	return nil
}
