package gateway

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway/ledger"
	"github.com/berth-eval/berth/plugins/dialect"
	"github.com/berth-eval/berth/plugins/model"
)

// limits are the largest numbers of tokens of a request to a model and of its answer.
type limits struct {
	context int64 // of a request
	output  int64 // of an answer; 0: not known
	usual   int64 // assumed limit of an answer when the request does not set one
}

// limits returns the limits of the requested model from its block, or else from the
// table. The usual one is lower than the model's, because few answers are that long.
func (x *exchange) limits() limits {
	m, known := &x.e.up.model, x.s.g.o.Dialects.Known(x.line.Model)
	l := limits{cmp.Or(m.ContextTokens, known.Context, assumedContext), known.MaxOutput, assumedOutput}
	if l.output > 0 {
		l.usual = min(l.usual, l.output)
	}
	return l
}

// refers reports whether the request refers to content outside it, such as a
// document by its address or a prompt stored by the provider, whose length
// cannot be known. A request that continues an earlier answer of this session
// does not count.
func (x *exchange) refers() bool {
	if !x.bounded(func(l cell.Budget) bool { return l.Tokens != nil || l.CostUSD != nil }) {
		return false
	}
	body, err := dialect.ParseObject(x.body.Bytes())
	if err != nil {
		return false // it was read before
	}
	var allowed []string
	x.e.mu.Lock()
	if x.e.most > 0 {
		allowed = []string{x.facts.Continues}
	}
	x.e.mu.Unlock()
	_, refused := x.d.Restrict(x.call, body, allowed)
	return refused != ""
}

// bounded reports whether a budget of the session has such a limit.
func (x *exchange) bounded(so func(cell.Budget) bool) bool {
	return slices.ContainsFunc(x.s.accounts, func(a *ledger.Account) bool { return so(a.Limit()) })
}

// usualRate removes members of the request that would change the price of its
// tokens.
func (x *exchange) usualRate() {
	for _, name := range dialect.Dearer(x.body, x.d.Rates()) {
		x.s.find("price_tier", fmt.Sprintf("taken out of requests, because it changes the price of tokens: %s = %s; to use it, set it in the parameters of the model block, "+
			"with its price", name, clip(string(x.body.Get(name)))))
		x.body.Delete(name)
	}
}

// otherRate reports whether the parameters of a model choose another price than
// that of the table.
func (u *upstream) otherRate() bool {
	if u.model.Price != nil || u.dialect == nil || len(u.model.Parameters) == 0 {
		return false
	}
	p, err := dialect.ParseObject(u.model.Parameters)
	return err == nil && len(dialect.Dearer(p, u.dialect.Rates())) > 0
}

// known is a request whose number of tokens the provider reported. The parts that the
// next request has in common with it are then known, too.
type known struct {
	text  []byte
	input int64 // tokens of all of it
}

// seam is how many extra tokens cutting a request into parts can cause.
const seam = 8

// fresh returns how many bytes of b are in neither the beginning nor the end of
// k, so that their number of tokens is unknown.
func (k *known) fresh(b []byte) int {
	old := k.text
	for len(old) > 0 && len(b) > 0 && old[0] == b[0] {
		old, b = old[1:], b[1:]
	}
	for len(old) > 0 && len(b) > 0 && old[len(old)-1] == b[len(b)-1] {
		old, b = old[:len(old)-1], b[:len(b)-1]
	}
	return len(b)
}

// most returns the largest possible number of tokens in the text b when perToken
// bytes make one token.
func (k *known) most(b []byte, perToken int64) int64 {
	text := int64(len(b))
	if len(k.text) == 0 {
		return text / perToken
	}
	return min(text, k.input+seam+int64(k.fresh(b))/perToken)
}

// text returns the request without its media.
func (x *exchange) text() []byte {
	left := x.body.Bytes()
	if len(x.facts.Media.Data) == 0 {
		return left
	}
	var text []byte
	for _, data := range x.facts.Media.Data { // in the order of the request
		if before, after, found := bytes.Cut(left, data); found {
			text, left = append(text, before...), after
		}
	}
	return append(text, left...)
}

// beyond bounds the usage that a provider may report, as a multiple of the
// possible usage of a request and its answer. A higher number is not believed.
// Providers may work in several rounds.
const beyond = 16

// believed reports whether the request can have used that much.
func (x *exchange) believed(u dialect.Usage) bool {
	most := beyond * max(x.limits().context, x.worst.Input+x.worst.Output)
	return u.Input <= most && u.Output <= most
}

// PriceOf returns the price of a model: that of its block or else, at a provider's
// own address, that of the table; nil when it is not known. A scripted model
// without a price is free.
func PriceOf(table *dialect.Set, m *cell.Model) *dialect.Price {
	zero := 0.0
	switch {
	case m.Price != nil:
		return m.Price
	case m.Provider == string(model.DialectScript):
		return &dialect.Price{Input: &zero, CachedInput: &zero, CacheWrite: &zero, Output: &zero}
	case m.BaseURL != "":
		return nil // the price of another provider
	}
	return table.Known(m.Name).Price
}

// The values assumed for a model that neither its block nor the table
// describes.
const (
	assumedContext = 1 << 20
	assumedOutput  = 16384
)
