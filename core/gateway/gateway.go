// Package gateway is the proxy between agents and model providers. Each session
// of an agent, a judge or a simulated user gets its own address and tokens, by
// which the gateway identifies it. The gateway adds the provider's key, meters
// the reported usage, and enforces budgets.
//
// Requests and answers keep the provider's own wire format (package dialect and
// the folders of the dialects); unknown fields and events are passed through.
// This package must not contain the name of a provider. Keys must not appear in
// files, errors or logs, and no wire format is translated into another.
package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/semaphore"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway/ledger"
	"github.com/berth-eval/berth/core/gateway/ratelimit"
	"github.com/berth-eval/berth/core/gateway/recording"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/plugins/dialect"
	"github.com/berth-eval/berth/plugins/model"
)

// Options are the options of a gateway.
type Options struct {
	// Dir is a folder for this gateway only, on a local disk, with a path of at
	// most 80 bytes. New creates it and Close removes it. Empty: the gateway has no
	// sessions, and only forwards requests.
	Dir string
	// Dialects are the supported dialects, at least one, and other data about
	// providers.
	Dialects dialect.Set
	// Models are all models that sessions may use.
	Models []*cell.Model
	// Run is the budget of the whole run, and Spent the part of it that was
	// spent before.
	Run   cell.Budget
	Spent ledger.Amount
	// Cells are budgets of parts of the run, in addition to that of the run.
	Cells []Cell
	// Transport carries requests to providers; nil means the default.
	Transport http.RoundTripper
	// Uplink carries requests to Gateway.Forward of another process, which has the
	// keys of the models that Relayed reports, and the budgets of the run and of
	// cells. A Relayed of nil reports all. Uplink nil: all providers are asked from
	// here.
	Uplink  http.RoundTripper
	Relayed func(*cell.Model) bool
	// Replay finds the run that a model is replayed from.
	Replay func(run string) (Recording, error)
	// RateLimit is how requests to providers are limited; the zero value is the
	// default.
	RateLimit ratelimit.Options
	// Silence is how long a client of a stream hears nothing while its request
	// waits, and a sixth of that for one that wants a whole answer; 0: 10 s.
	Silence time.Duration
	// Record is how many bytes of compressed bodies an attempt may keep; 0: 256
	// MiB.
	Record int64
	Log    zerolog.Logger
}

// Cell is a budget for the use of all models in all attempts of some trials.
type Cell struct {
	Name   string        // for people; may be empty
	Trials []string      // ids
	Models []*cell.Model // used by them
	Limit  cell.Budget
	Spent  ledger.Amount // before
}

// Gateway implements models.Gateway. It is safe for concurrent use.
type Gateway struct {
	o      Options
	models map[*cell.Model]*upstream
	ledger *ledger.Ledger
	run    *ledger.Account
	cells  map[string]*ledger.Account // by trial
	trials map[string]*Cell           // by trial
	guests guests
	memory *semaphore.Weighted // bytes for requests
	count  atomic.Int64

	mu       sync.Mutex
	records  map[string]*recording.Room   // by the folder of the attempt
	attempts map[string]*ledger.Account   // by trial, attempt and role
	payers   map[string]*ledger.Attempt   // by trial and attempt
	health   map[string]*health           // by address, keys and name of a model
	keys     map[string]*apiKey           // by address, key and name of a model
	agents   map[string]chan struct{}     // places for requests, by agent and their number
	replays  map[string]Recording         // by the name of the run
	private  map[string]http.RoundTripper // to providers with a private authority, by the file of it
}

// guests are the sessions of requests from other gateways.
type guests struct {
	sync.Mutex

	sessions map[string]*session // by attempt, role and model
}

// upstream is one model of the experiment and how to reach it.
type upstream struct {
	model   cell.Model
	id      string // in all processes
	relayed bool   // its requests are forwarded
	price   *dialect.Price
	others  map[string]*dialect.Price // of allow_models
	keys    []*apiKey                 // at least one, if there is a provider
	turn    atomic.Int64              // sessions so far, which begin with different keys
	dialect dialect.Dialect           // nil: the script answers in any dialect
	base    string
	script  func() dialect.Scripted // starts a session of a scripted model; nil: not scripted
	replay  Recording               // nil: not replayed
	health  *health                 // of its provider; nil: no provider
	carries http.RoundTripper       // its requests to the provider
	probes  sync.Map                // *probe, by the name of the model
}

// New makes a gateway. Fails when a key or a script is missing, when a budget
// in USD could not be enforced because a price is not known, or when a model
// needs an unsupported feature.
func New(o Options) (*Gateway, error) {
	if o.Transport == nil {
		o.Transport = transport()
	}
	g := &Gateway{
		o: o, models: map[*cell.Model]*upstream{}, ledger: ledger.New(), cells: map[string]*ledger.Account{}, trials: map[string]*Cell{}, attempts: map[string]*ledger.Account{},
		payers: map[string]*ledger.Attempt{},
		health: map[string]*health{}, keys: map[string]*apiKey{}, agents: map[string]chan struct{}{}, replays: map[string]Recording{}, private: map[string]http.RoundTripper{}, memory: semaphore.NewWeighted(maxTogether), records: map[string]*recording.Room{},
	}
	g.run = g.ledger.Open("run", o.Run, o.Spent)
	for _, m := range o.Models {
		if err := g.add(m, *m); err != nil {
			return nil, err
		}
	}
	for _, replayed := range []bool{false, true} { // the first pass wins: a fallback of models of both kinds is not replayed
		for _, used := range o.Models {
			if (used.Replay != "") != replayed {
				continue
			}
			for _, m := range used.Chain() {
				as := *m
				if replayed { // it is replayed with the model, and needs no key
					as.Replay = used.Replay
				}
				if err := g.add(m, as); err != nil {
					return nil, err
				}
			}
		}
	}
	if err := g.openCells(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil && o.Dir != "" {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	return g, nil
}

// add makes the upstream of a model, with the settings of as.
func (g *Gateway) add(m *cell.Model, as cell.Model) error {
	if g.models[m] != nil {
		return nil
	}
	u, err := g.upstream(&as)
	if err != nil {
		return fmt.Errorf("model %q: %w", m.Label, err)
	}
	if g.o.Run.CostUSD != nil {
		if err = u.bounds(); err != nil {
			return err
		}
	}
	g.models[m] = u
	return nil
}

// openCells opens the budgets of cells.
func (g *Gateway) openCells() error {
	for i := range g.o.Cells {
		c := &g.o.Cells[i]
		for _, id := range c.Trials {
			g.trials[id] = c
		}
		if c.Limit.None() {
			continue
		}
		for _, used := range c.Models {
			for _, m := range used.Chain() {
				u := g.models[m]
				if c.Limit.CostUSD == nil || u == nil {
					continue
				}
				if err := u.bounds(); err != nil {
					return fmt.Errorf("cell %s: %w", c.Name, err)
				}
			}
		}
		a := g.ledger.Open(strings.TrimSpace("cell "+c.Name), c.Limit, c.Spent)
		for _, id := range c.Trials {
			g.cells[id] = a
		}
	}
	return nil
}

// errNoPrice says why a budget in USD cannot be enforced.
var errNoPrice = fmt.Errorf("its price is not known, so a budget in USD cannot be held: add a price block, or bound tokens")

// bounds returns the reason why a budget in USD cannot be enforced with this
// model.
func (u *upstream) bounds() error {
	for _, name := range append([]string{u.model.Name}, u.model.AllowModels...) {
		switch {
		case u.priceOf(name).Bounds():
		case name == u.model.Name:
			return fmt.Errorf("model %q: %w", u.model.Label, errNoPrice)
		default:
			return fmt.Errorf("model %q: allow_models: of %q the price is not known, so a budget in USD cannot be held: leave it out, or bound tokens", u.model.Label, name)
		}
	}
	return nil
}

// priceOf returns the price of the model that a request names. The price of the
// model block applies only to the block's own model. Nil: not known.
func (u *upstream) priceOf(name string) *dialect.Price {
	if name == u.model.Name || u.script != nil {
		return u.price
	}
	return u.others[name]
}

// transport does not limit the time of an answer, which is the task of the
// watchdog. It uses HTTPS_PROXY and similar variables of this process.
func transport() *http.Transport {
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second,
		TLSHandshakeTimeout: 20 * time.Second,
		DisableCompression:  true, ForceAttemptHTTP2: true,
		WriteBufferSize: 64 << 10, // sends a conversation in few writes
	}
}

// carrier sets what carries the requests to a provider.
func (g *Gateway) carrier(u *upstream) error {
	path := u.model.CAFile
	if path == "" {
		u.carries = g.o.Transport
		return nil
	}
	if g.private[path] == nil {
		pem, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(pem) {
			return fmt.Errorf("%s has no certificate", path)
		}
		t := transport()
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
		g.private[path] = t
	}
	u.carries = g.private[path]
	return nil
}

func (g *Gateway) upstream(m *cell.Model) (*upstream, error) {
	u := &upstream{model: *m, id: modelID(m), price: PriceOf(&g.o.Dialects, m), others: map[string]*dialect.Price{}}
	for _, name := range m.AllowModels {
		other := *m
		other.Name, other.Price = name, nil
		u.others[name] = PriceOf(&g.o.Dialects, &other)
	}
	scripted := m.Provider == string(model.DialectScript)
	if u.model.Name == "" && scripted {
		u.model.Name = "script"
	}
	if u.dialect = g.o.Dialects.Named(model.Dialect(m.Provider)); u.dialect == nil && !scripted {
		return nil, fmt.Errorf("unknown provider %q: choose from %s", m.Provider, strings.Join(g.o.Dialects.Providers(), ", "))
	}
	if u.otherRate() {
		u.price, u.others = nil, nil // the table has the usual price
	}
	switch {
	case m.Replay != "":
		r, err := g.recorded(m.Replay)
		u.replay = r
		return u, err
	case scripted && m.Script == "":
		return nil, fmt.Errorf("it has no script: write script = \"file.yaml\"")
	case scripted:
		if g.o.Dialects.Script == nil {
			return nil, fmt.Errorf("this gateway has no scripted models")
		}
		s, err := g.o.Dialects.Script(m.Script)
		u.script = s
		return u, err
	}
	u.base = strings.TrimSuffix(m.BaseURL, "/")
	if u.base == "" {
		u.base = u.dialect.Base()
	}
	if g.relayed(m) {
		g.forwards(u)
		return u, nil
	}
	if err := g.keysOf(u); err != nil {
		return nil, err
	}
	if err := g.carrier(u); err != nil {
		return nil, fmt.Errorf("ca_file: %w", err)
	}
	u.health = g.healthOf(u)
	if u.keys[0].value == "" && m.BaseURL == "" {
		return nil, fmt.Errorf("it has no api_key: write api_key = secret(\"NAME\") with the variable that holds it")
	}
	return u, nil
}

// Session implements models.Gateway.
func (g *Gateway) Session(ctx context.Context, spec models.Spec) (models.Session, error) {
	s, err := g.open(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("models of the %s: %w", spec.Role, err)
	}
	return s, nil
}

// accounts returns the budgets that a session uses, its own first.
func (g *Gateway) accounts(spec *models.Spec) []*ledger.Account {
	return append([]*ledger.Account{g.account(spec)}, g.shared(spec.Trial)...)
}

// placesOf returns the places for requests of the agent of a session, which all
// of its attempts share; nil: their number is not limited.
func (g *Gateway) placesOf(spec *models.Spec) chan struct{} {
	if spec.InFlight == 0 {
		return nil
	}
	id := strconv.Itoa(spec.InFlight) + " " + spec.Agent // it may depend on the cell
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.agents[id] == nil {
		g.agents[id] = make(chan struct{}, spec.InFlight)
	}
	return g.agents[id]
}

// account returns the budget of one role in one attempt, which all of its
// sessions share. Each verifier has its own.
func (g *Gateway) account(spec *models.Spec) *ledger.Account {
	key := attemptKey(spec.Trial, spec.Attempt) + "/" + spec.Role + "/" + spec.Verifier
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.attempts[key]
	if a == nil {
		name := "attempt"
		if spec.Role != "agent" {
			name += "'s " + spec.Role
		}
		if spec.Verifier != "" {
			name += fmt.Sprintf(" %q", spec.Verifier)
		}
		a = g.ledger.Open(name, spec.Budget, ledger.Amount{})
		g.attempts[key] = a
	}
	return a
}

// attemptKey identifies an attempt in the run.
func attemptKey(trial string, attempt int) string { return trial + "/" + strconv.Itoa(attempt) }

// payer returns the attempt of a session for the ledger.
func (g *Gateway) payer(spec *models.Spec) *ledger.Attempt {
	key := attemptKey(spec.Trial, spec.Attempt)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.payers[key] == nil {
		g.payers[key] = &ledger.Attempt{}
	}
	return g.payers[key]
}

// Limit replaces the budget of the run. Fails if it is in USD, and a price is not
// known.
func (g *Gateway) Limit(l cell.Budget) error {
	for _, u := range g.models {
		if err := u.bounds(); l.CostUSD != nil && err != nil {
			return err
		}
	}
	g.run.SetLimit(l)
	return nil
}

// Settled returns what the run has spent, including what was spent before.
func (g *Gateway) Settled() ledger.Amount { return g.run.Settled() }

// socket returns the path of the next session's socket.
func (g *Gateway) socket() string {
	return filepath.Join(g.o.Dir, strconv.FormatInt(g.count.Add(1), 36))
}

// Close removes the gateway's folder. Sessions must be closed before.
func (g *Gateway) Close() error {
	for _, t := range append(slices.Collect(maps.Values(g.private)), g.o.Transport) {
		if t, ok := t.(interface{ CloseIdleConnections() }); ok {
			t.CloseIdleConnections()
		}
	}
	return os.RemoveAll(g.o.Dir)
}
