package gateway

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"strings"

	"github.com/berth-eval/berth/core/gateway/ledger"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/plugins/dialect"
)

// settle ends the reservation with the usage that the provider reports. If an
// answer was cut off before the usage was reported, the usage is estimated from
// what was received, and the budget keeps the worst case.
func (x *exchange) settle(r dialect.Reading, status int, broken breakage, hold *ledger.Hold) {
	ok := status >= 200 && status < 300
	if r.Error != "" && r.Said == 0 && r.Raw == nil { // in place of an answer, as with another status
		ok = false
	}
	u := r.Usage
	actual := ledger.Amount{Requests: hold.Amount().Requests}
	if r.Raw = x.clean(r.Raw); len(r.Raw) <= maxRaw {
		x.line.Raw = r.Raw
	}
	if r.Error != "" {
		r.Error = clip(string(x.clean([]byte(r.Error))))
		x.line.Upstream = r.Error
	}
	if len(r.Notes) > 0 {
		x.s.find("answer_form", fmt.Sprintf("model %q: members of an answer have an unknown form, and were not read: %s",
			x.e.up.model.Name, clip(string(x.clean([]byte(strings.Join(r.Notes, ", ")))))))
	}
	believed := x.believed(u)
	if !believed {
		x.s.find("usage_not_believed", fmt.Sprintf("model %q reported %d input and %d output tokens for one request, which is more than it can have used: "+
			"the usage is estimated", x.e.up.model.Name, u.Input, u.Output))
		u = dialect.Usage{}
	}
	switch {
	case !ok:
		actual.Requests = 0
	case !r.Complete || !believed:
		x.line.Estimated = true
		u.Input = max(u.Input, x.input(usualBytes))
		u.Output = max(u.Output, (r.Said+2)/3)
		actual.Tokens, actual.USD = hold.Amount().Tokens, hold.Amount().USD
	}
	cost, price, known := x.cost(u, r.StatedUSD)
	if actual.Tokens == 0 {
		actual.Tokens = u.Input + u.Output
		actual.USD = cost
		if !known {
			actual.USD = x.price.AtMost(u.Input, u.Output, u.CacheHour > 0)
		}
	}
	x.line.Broken = string(broken)
	if len(r.ID) <= maxID {
		x.line.ResponseID = string(x.clean([]byte(r.ID)))
	}
	if ok && r.Ended && len(r.Stop) <= maxID {
		x.line.Stop = string(x.clean([]byte(r.Stop)))
	}
	if ok {
		x.line.Usage, x.line.StatedUSD = &u, r.StatedUSD
		if known {
			x.line.CostUSD, x.line.Price = &cost, price
		}
	}
	x.add(u, actual.Requests, cost, known, ok)
	x.failed(!ok || broken.any() || r.Error != "", ok)
	x.judge(status, r, broken)
	hold.Settle(actual)
}

// cost returns the cost of a request: by the price of the model or, if that is
// not known, what the provider states.
func (x *exchange) cost(u dialect.Usage, stated *float64) (usd float64, by *dialect.Price, known bool) {
	usd, known = x.price.Cost(u)
	known = known && !x.facts.Media.Audio
	switch {
	case known:
		if stated != nil && math.Abs(usd-*stated) > usd/100+1e-6 {
			x.e.costly.Do(func() {
				x.s.find("stated_cost", fmt.Sprintf("model %q: the provider states another cost than the price gives: %g USD for a request that costs %g USD by its price: "+
					"check its price block", x.e.up.model.Name, *stated, usd))
			})
		}
	case stated != nil:
		return *stated, nil, true
	}
	return usd, x.price, known
}

// maxID is the largest length of the id of an answer that is kept, and of the word
// for its end, in bytes.
const maxID = 200

// maxRaw is the largest size of the provider's own record of usage that is
// kept, in bytes.
const maxRaw = 64 << 10

// usualBytes is roughly how many bytes of a request make a token.
const usualBytes = 4

// input returns the number of tokens of the request if perToken bytes make one;
// with 1, the largest possible number. Conversations grow, so the part in
// common with the last request is known, and only the new part is estimated.
func (x *exchange) input(perToken int64) int64 {
	text := x.text()
	x.e.mu.Lock()
	defer x.e.mu.Unlock()
	most := x.e.known.most(text, perToken)
	if perToken > 1 { // an estimate is the larger of both ways to count
		most = max(most, int64(len(text))/perToken)
	}
	if x.facts.Continues != "" { // it may contain all earlier messages
		most += x.e.most
	}
	if x.body.Get("tools") != nil {
		most += toolsTokens / perToken
	}
	return most + max(x.facts.Media.Tokens, x.facts.Media.Images*x.s.g.o.Dialects.Known(x.line.Model).ImageTokens)
}

// add adds the exchange to the usage of its model.
func (x *exchange) add(u dialect.Usage, requests int64, cost float64, priced, ok bool) {
	e := x.e
	e.mu.Lock()
	defer e.mu.Unlock()
	e.usage.Requests += requests
	e.usage.InputTokens += u.Input
	e.usage.CachedTokens += u.Cached
	e.usage.CacheWrite += u.CacheWrite
	e.usage.OutputTokens += u.Output
	e.usage.ReasoningTokens += u.Reasoning
	if x.line.Estimated {
		e.usage.Estimated++
	}
	e.priced = e.priced && priced
	sum := cost
	if e.usage.CostUSD != nil {
		sum += *e.usage.CostUSD
	}
	e.usage.CostUSD = &sum
	e.most = max(e.most, u.Input+u.Output)
	if ok && !x.line.Estimated {
		e.known = known{text: x.text(), input: u.Input}
	}
}

// said returns the beginning of the answer.
func (x *exchange) said() string {
	b := x.reply.Bytes()
	return clip(strings.ToValidUTF8(string(b[:min(len(b), 1<<10)]), "�"))
}

// judge decides whether the provider could serve.
func (x *exchange) judge(status int, r dialect.Reading, broken breakage) {
	failed := func(format string, args ...any) { x.down(fmt.Errorf(format, args...), hopeless(nil, status)) }
	refusal := refusalInWords(x.e.up.host(), status)
	switch {
	case broken == byClient:
	case status == http.StatusTooManyRequests || status == statusOverloaded:
		failed("%s: %w", refusal, models.ErrRateLimited)
	case x.lost != nil:
		failed("%w", x.lost)
	case status == http.StatusUnauthorized: // the provider's message about the key is not passed on
		failed("%s", refusal)
	case status >= 400 && x.line.Cause == CauseRequest:
		x.refused(fmt.Sprintf("the provider of model %q says: status %d: %s", x.e.up.model.Name, status, x.line.Upstream))
	case status >= 400:
		failed("%s: %s", refusal, x.line.Upstream)
	case broken == byProvider:
		failed("it broke off its answer")
	case r.Error != "":
		failed("%s", r.Error)
	case r.Invalid:
		failed("its stream holds an event that is not JSON")
	case !r.Ended && strings.HasPrefix(x.line.Type, eventStream):
		failed("its stream has no end")
	case !r.Ended:
		failed("its answer (%s) is not valid for %s: %q", cmp.Or(x.line.Type, "no media type"), x.d.Name(), x.said())
	default:
		x.s.setDown(nil)
		x.e.up.health.ok()
	}
}

// statusOverloaded is the status that some providers use when overloaded.
const statusOverloaded = 529
