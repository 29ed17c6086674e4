// Package gateway is the proxy between agents and model providers. Each session
// of an agent, a judge or a simulated user gets an address and tokens of its
// own; the gateway knows by them who asks, puts the provider's key in, meters
// what the provider says was used, and keeps budgets.
//
// What travels is the provider's own wire format (package dialect and the folders
// of the dialects), passed through with every field and event that nobody here
// knows. No name of a provider belongs in this package, no key in a file, an
// error or a log, and no wire format is translated into another.
package gateway

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway/dialect"
	"github.com/berth-eval/berth/core/gateway/ledger"
	"github.com/berth-eval/berth/core/gateway/price"
	"github.com/berth-eval/berth/core/gateway/ratelimit"
	"github.com/berth-eval/berth/core/gateway/recording"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/plugins/model"
)

// Options are what a gateway is made of.
type Options struct {
	// Dir is a folder of this gateway alone, on node-local disk, with a path of
	// at most 80 bytes. It is made, and removed by Close.
	Dir string
	// Dialects are those that it speaks, at least one, and what else it knows of
	// providers.
	Dialects dialect.Set
	// Models are all that sessions may ask for.
	Models []*cell.Model
	// Run is the budget of the whole run, and Spent what of it was spent before.
	Run   ledger.Limit
	Spent ledger.Amount
	// Cells are budgets of parts of the run, beside its own.
	Cells []Cell
	// Transport carries requests to providers; nil is the usual one.
	Transport http.RoundTripper
	// Replay finds a run that a model is to be replayed from.
	Replay func(run string) (Recording, error)
	// RateLimit is how requests to providers are limited; the zero value is usual.
	RateLimit ratelimit.Options
	// Silence is how long a client of a stream hears nothing while its request
	// waits, and a sixth of that for one that wants a whole answer; 0: 10 s.
	Silence time.Duration
	// Record is how many bytes of bodies an attempt may keep, packed; 0: 256 MiB.
	Record int64
	Log    zerolog.Logger
}

// Cell is the budget of what all models are used for in all attempts of some
// trials.
type Cell struct {
	Name   string        // for people; may be empty
	Trials []string      // ids
	Models []*cell.Model // that they use
	Limit  ledger.Limit
	Spent  ledger.Amount // before
}

// Gateway implements models.Gateway. It is safe for concurrent use.
type Gateway struct {
	o      Options
	models map[*cell.Model]*upstream
	ledger *ledger.Ledger
	run    *ledger.Account
	cells  map[string]*ledger.Account // by trial
	memory *memory
	count  atomic.Int64

	mu       sync.Mutex
	records  map[string]*recording.Room // by the folder of the attempt
	attempts map[string]*ledger.Account // by trial, attempt and role
	health   map[string]*health         // by address, key and name of a model
	replays  map[string]Recording       // by the name of the run
}

// upstream is one model of the experiment with what it is reached by.
type upstream struct {
	model   cell.Model
	price   *cell.Price
	others  map[string]*cell.Price // of allow_models
	key     string
	dialect dialect.Dialect // nil: the script answers in any
	base    string
	script  func() dialect.Scripted // begins a session of a scripted model; nil: it is none
	replay  Recording               // nil: it is not replayed
	health  *health                 // of its provider; nil: it has none
	probes  sync.Map                // *probe, by the name of the model
}

// New makes a gateway. Fails when a key or a script is missing, when a budget
// in USD could not be held because a price is not known, or when a model asks
// for what this program cannot do.
func New(o Options) (*Gateway, error) {
	if o.Transport == nil {
		o.Transport = transport()
	}
	g := &Gateway{
		o: o, models: map[*cell.Model]*upstream{}, ledger: ledger.New(), cells: map[string]*ledger.Account{}, attempts: map[string]*ledger.Account{},
		health: map[string]*health{}, replays: map[string]Recording{}, memory: newMemory(), records: map[string]*recording.Room{},
	}
	g.run = g.ledger.Open("run", o.Run, o.Spent)
	for _, m := range o.Models {
		u, err := g.upstream(m)
		if err != nil {
			return nil, fmt.Errorf("model %q: %w", m.Label, err)
		}
		if o.Run.USD != nil {
			if err = u.bounds(); err != nil {
				return nil, err
			}
		}
		g.models[m] = u
	}
	if err := g.openCells(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	return g, nil
}

// openCells opens the budgets of cells.
func (g *Gateway) openCells() error {
	for i := range g.o.Cells {
		c := &g.o.Cells[i]
		if c.Limit.None() {
			continue
		}
		for _, m := range c.Models {
			u := g.models[m]
			if c.Limit.USD == nil || u == nil {
				continue
			}
			if err := u.bounds(); err != nil {
				return fmt.Errorf("cell %s: %w", c.Name, err)
			}
		}
		a := g.ledger.Open(strings.TrimSpace("cell "+c.Name), c.Limit, c.Spent)
		for _, id := range c.Trials {
			g.cells[id] = a
		}
	}
	return nil
}

// errNoPrice says why a budget in USD cannot be held.
var errNoPrice = fmt.Errorf("its price is not known, so a budget in USD cannot be held: add a price block, or bound tokens")

// bounds says why a budget in USD cannot be held with this model.
func (u *upstream) bounds() error {
	for _, name := range append([]string{u.model.Name}, u.model.AllowModels...) {
		switch {
		case price.Bounds(u.priceOf(name)):
		case name == u.model.Name:
			return fmt.Errorf("model %q: %w", u.model.Label, errNoPrice)
		default:
			return fmt.Errorf("model %q: allow_models: of %q the price is not known, so a budget in USD cannot be held: leave it out, or bound tokens", u.model.Label, name)
		}
	}
	return nil
}

// priceOf is the price of the model that a request names: the block's is that of
// the block's model alone. Nil: not known.
func (u *upstream) priceOf(name string) *cell.Price {
	if name == u.model.Name || u.script != nil {
		return u.price
	}
	return u.others[name]
}

// transport has no limit for an answer: that is the watchdog's. HTTPS_PROXY and
// its kin are those of this process.
func transport() http.RoundTripper {
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second,
		TLSHandshakeTimeout: 20 * time.Second,
		DisableCompression:  true, ForceAttemptHTTP2: true,
		WriteBufferSize: 64 << 10, // a conversation leaves in few writes
	}
}

func (g *Gateway) upstream(m *cell.Model) (*upstream, error) {
	u := &upstream{model: *m, price: price.Of(&g.o.Dialects, m), others: map[string]*cell.Price{}}
	for _, name := range m.AllowModels {
		other := *m
		other.Name, other.Price = name, nil
		u.others[name] = price.Of(&g.o.Dialects, &other)
	}
	scripted := m.Provider == string(model.DialectScript)
	if u.model.Name == "" && scripted {
		u.model.Name = "script"
	}
	if u.dialect = g.o.Dialects.Named(model.Dialect(m.Provider)); u.dialect == nil && !scripted {
		return nil, fmt.Errorf("unknown provider %q: choose from %s", m.Provider, strings.Join(g.o.Dialects.Providers(), ", "))
	}
	if u.otherRate() {
		u.price, u.others = nil, nil // the table has the usual one
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
	if m.APIKey != nil {
		key, err := m.APIKey.Reveal()
		if err != nil {
			return nil, fmt.Errorf("api_key: %w", err)
		}
		u.key = key
	}
	u.health = g.healthOf(u)
	if u.key == "" && m.BaseURL == "" {
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

// accounts are the budgets that a session draws on, its own first.
func (g *Gateway) accounts(spec *models.Spec) []*ledger.Account {
	as := []*ledger.Account{g.account(spec)}
	if c := g.cells[spec.Trial]; c != nil {
		as = append(as, c)
	}
	return append(as, g.run)
}

// account is the budget of one role in one attempt, the same for all of its
// sessions.
func (g *Gateway) account(spec *models.Spec) *ledger.Account {
	key := spec.Trial + "/" + strconv.Itoa(spec.Attempt) + "/" + spec.Role
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.attempts[key]
	if a == nil {
		name := "attempt"
		if spec.Role != "agent" {
			name += "'s " + spec.Role
		}
		b := spec.Budget
		a = g.ledger.Open(name, ledger.Limit{Requests: b.Requests, Tokens: b.Tokens, USD: b.CostUSD}, ledger.Amount{})
		g.attempts[key] = a
	}
	return a
}

// Settled is what the run has spent, with what it had spent before.
func (g *Gateway) Settled() ledger.Amount { return g.run.Settled() }

// socket is the path of the next session's socket.
func (g *Gateway) socket() string {
	return filepath.Join(g.o.Dir, strconv.FormatInt(g.count.Add(1), 36))
}

// Close removes the gateway's folder. Sessions are closed before.
func (g *Gateway) Close() error {
	if t, ok := g.o.Transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
	return os.RemoveAll(g.o.Dir)
}
