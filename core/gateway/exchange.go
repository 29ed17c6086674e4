package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway/ledger"
	"github.com/berth-eval/berth/core/gateway/ratelimit"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/plugins/dialect"
	answers "github.com/berth-eval/berth/plugins/model/answer"
)

// exchange is one request and its answer.
type exchange struct {
	s       *session
	e       *entry
	d       dialect.Dialect
	call    dialect.Call
	w       http.ResponseWriter
	r       *http.Request
	life    context.Context //nolint:containedctx // of the turn: an exchange is one call of ServeHTTP
	control *http.ResponseController

	body    *dialect.Object
	facts   dialect.Facts
	worst   dialect.Usage
	price   *dialect.Price // of the requested model; nil: not known
	hide    bool           // hide the events that only we asked for
	early   bool           // the answer has begun, but only with keep-alives
	held    int64          // bytes of memory that are reserved for the request
	lost    error          // why the provider's answer is not passed on
	failing error          // why the last try failed, when the provider is asked again
	limited bool           // it failed because of the provider's rate limit
	line    Exchange
	digest  uint64 // of the request, valid only in this process
	sent    []byte // the client's body, for a fallback; nil: there is none
	key     int    // index of the key that is used

	forward *forwarding // of a request from another gateway; nil: it is a client's
	remote  forwarded   // the result of a request to another gateway

	keep     bool         // it is to be recorded
	asked    []byte       // body without secrets
	answered bool         // reply holds the answer as far as it was received
	reply    bytes.Buffer //
}

// toolsTokens is how many tokens a provider adds at most to a request with tools: the
// system prompt for them and the descriptions of its own tools, which the request only
// names. It is the sum of what the documentation of a large provider says: 346, and
// 735, 499, 245 and 700 for a computer, its screen, a shell and an editor.
const toolsTokens = 2600

func (x *exchange) fail(kind dialect.FailureKind, format string, args ...any) {
	x.refuse(dialect.Failure{Kind: kind, Message: fmt.Sprintf(format, args...)})
}

func (x *exchange) refuse(f dialect.Failure) {
	x.line.Error = f.Message
	if x.forward != nil {
		x.refuseUp(f)
		return
	}
	resp := x.d.Failure(f)
	x.line.Status = resp.Status
	switch {
	case !x.early:
		answer(x.w, resp)
	case !x.late(f):
		x.line.Broken = string(byGateway)
		panic(http.ErrAbortHandler)
	}
}

// serve runs the exchange and records it.
func (x *exchange) serve(ctx context.Context) {
	x.line = Exchange{Time: time.Now().UTC(), Role: x.s.spec.Role, Name: x.e.name, Model: x.e.up.model.Name, Dialect: string(x.d.Name())}
	defer x.endWithTurn()()
	if x.e.up.dialect != nil && x.e.up.dialect.Name() != x.d.Name() {
		x.reject(dialect.NotServed, "model %q speaks %s, not %s", x.e.up.model.Name, x.e.up.dialect.Name(), x.d.Name())
		return
	}
	if !x.read(ctx) || !x.policy() {
		return
	}
	x.keep = true
	if x.call.Kind == dialect.Count {
		x.count(ctx)
		return
	}
	if x.facts.Media.Audio && x.bounded(func(l cell.Budget) bool { return l.CostUSD != nil }) {
		x.reject(dialect.NotServed, "audio has a separate price, so a budget in USD cannot be held: leave it out, or bound tokens in the experiment")
		return
	}
	leave, err := x.place(ctx)
	if err != nil {
		x.fail(dialect.Over, "the turn that this token is good for is over")
		return
	}
	defer leave()
	hold, err := x.reserve(ctx)
	if err != nil {
		x.unreserved(err)
		return
	}
	x.generate(ctx, hold)
}

// read reads the request and its facts.
func (x *exchange) read(ctx context.Context) bool {
	b, err := x.readBody(ctx)
	if err == nil {
		x.body, err = dialect.ParseObject(b)
	}
	if x.e.next != nil {
		x.sent = b
	}
	if err == nil {
		x.facts, err = x.d.Facts(x.call, x.body)
	}
	if err == nil {
		return true
	}
	x.drain()
	switch {
	case x.life.Err() != nil:
		x.fail(dialect.Over, "the turn that this token is good for is over")
	default:
		x.reject(dialect.BadRequest, "%s", err)
	}
	return false
}

// reserve reserves the largest possible cost of the request, and waits until
// there is room for it.
func (x *exchange) reserve(ctx context.Context) (*ledger.Hold, error) {
	limits := x.limits()
	x.worst.Input = x.input(1)
	if x.refers() || x.facts.Media.Unbounded {
		x.worst.Input = max(x.worst.Input, limits.context)
	}
	x.e.mu.Lock()
	counted, again := x.e.failed[x.digest]
	x.e.mu.Unlock()
	x.line.Retry = x.line.Retry || again
	each := x.facts.MaxOutput
	switch {
	case each == 0:
		each = dialect.Tokens(limits.usual)
	case limits.output > 0:
		each = min(each, dialect.Tokens(limits.output))
	}
	x.worst.Output = int64(each.Times(max(x.facts.Answers, 1))) + x.facts.Predicted
	need := ledger.Amount{
		Requests: 1, Tokens: x.worst.Input + x.worst.Output, USD: x.price.AtMost(x.worst.Input, x.worst.Output, x.facts.CacheHour),
	}
	if counted {
		need.Requests = 0
	}
	defer x.waiting()()
	return x.s.g.ledger.Reserve(ctx, need, x.s.payer, x.s.accounts...)
}

// unreserved answers a request for which there was no room.
func (x *exchange) unreserved(err error) {
	if spent, over := errors.AsType[*ledger.SpentError](err); over {
		if spent.Unit != "requests" {
			err = fmt.Errorf("%w (%d tokens of input and %d of output are set aside for it)", err, x.worst.Input, x.worst.Output)
		}
		if x.forward != nil {
			x.forward.unreserved(x.s.g, spent)
		} else {
			x.s.refuse(spent, err)
		}
		x.fail(dialect.Spent, "%s", err)
	} else {
		x.fail(dialect.Over, "the turn that this token is good for is over")
	}
}

// generate asks the provider and passes its answer on.
func (x *exchange) generate(ctx context.Context, hold *ledger.Hold) {
	done := false
	defer func() {
		if !done { // by a panic that closes the connection
			hold.Settle(hold.Amount())
		}
	}()
	resp, sent, turn, err := x.paced(ctx)
	defer func() { turn(ratelimit.Nothing) }()
	for {
		why := x.failover(ctx, resp, err)
		if why == nil {
			break
		}
		turn(ratelimit.Nothing)
		if resp != nil {
			_ = resp.Body.Close()
		}
		hold.Settle(ledger.Amount{})
		var ok bool
		if hold, ok = x.fallBack(ctx, why); !ok {
			done = true
			return
		}
		resp, sent, turn, err = x.paced(ctx)
	}
	if err != nil {
		x.unanswered(ctx, err, hold, !sent.IsZero())
		done = true
		if errors.Is(err, dialect.ErrDropped) {
			panic(http.ErrAbortHandler)
		}
		return
	}
	defer func() { _ = resp.Body.Close() }()
	x.line.FirstByte = time.Since(sent)
	x.line.Status = resp.StatusCode
	m := answers.NewMeter(x.d.Name())
	broken := x.relay(ctx, resp, m)
	if broken != byProvider && resp.StatusCode < 300 {
		turn(ratelimit.Served)
	}
	x.line.Took = time.Since(sent)
	x.settle(m.Read(), resp.StatusCode, broken, hold)
	done = true
	if broken.any() {
		panic(http.ErrAbortHandler) // the client must see that the answer is incomplete
	}
}

// send sends the request to the provider or the script.
func (x *exchange) send(ctx context.Context) (*http.Response, error) {
	if x.e.up.replay != nil {
		return x.played()
	}
	if x.e.play != nil {
		return x.e.play.Send(ctx, dialect.Request{Dialect: x.d, Call: x.call, Facts: x.facts, Body: x.body})
	}
	req, err := x.request(ctx)
	if err != nil {
		return nil, err
	}
	if x.e.up.relayed {
		return x.askUp(ctx, req)
	}
	return x.roundTrip(ctx, req)
}

// maxAtOnce is how many requests of one session are in progress at the same time.
// More wait, so that one agent does not make the others of the run wait.
const maxAtOnce = 16

// place waits for one of the places that the session has for requests, and for one
// of those that all attempts of the agent share, if their number is limited. Fails
// only with the cause of ctx. Only the second wait is for others.
func (x *exchange) place(ctx context.Context) (leave func(), err error) {
	quiet := x.signing()
	own, err := enter(ctx, x.s.places)
	quiet()
	if err != nil {
		return nil, err
	}
	defer x.waiting()()
	all, err := enter(ctx, x.s.g.placesOf(&x.s.spec))
	if err != nil {
		own()
		return nil, err
	}
	return func() { all(); own() }, nil
}

// enter waits for a place; with nil it does not.
func enter(ctx context.Context, places chan struct{}) (leave func(), err error) {
	if places == nil {
		return func() {}, nil
	}
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// count passes on a request to count tokens, which costs nothing.
func (x *exchange) count(ctx context.Context) {
	if x.e.up.health != nil {
		x.use(x.candidates(nil)[0])
	}
	resp, err := x.send(ctx)
	if err != nil {
		x.unreached(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	x.line.Status = resp.StatusCode
	if b := x.relay(ctx, resp, answers.NewMeter(x.d.Name())); b.any() {
		panic(http.ErrAbortHandler)
	}
}

// unanswered handles a request without an answer. A provider that has received
// it may continue, and charge for it, after the client has gone.
func (x *exchange) unanswered(ctx context.Context, err error, hold *ledger.Hold, sent bool) {
	if ctx.Err() != nil {
		x.line.Error = "the client went away"
		x.gaveUpWaiting()
		if sent {
			x.settle(dialect.Reading{}, http.StatusOK, byClient, hold)
		}
		hold.Settle(ledger.Amount{})
		return
	}
	hold.Settle(ledger.Amount{})
	x.failed(true, false)
	x.line.Error = "no answer"
	if errors.Is(err, dialect.ErrDropped) {
		x.s.setDown(fmt.Errorf("model %q: %w", x.e.up.model.Name, err))
		return
	}
	x.unreached(err)
}

// gaveUpWaiting records that a client gave up a request while the provider failed.
// A client that is gone does not say whether that kept it from going on: the
// attempt decides.
func (x *exchange) gaveUpWaiting() {
	if x.failing == nil {
		return
	}
	err := fmt.Errorf("provider of model %q: %w", x.e.up.model.Name, x.failing)
	if x.limited {
		err = fmt.Errorf("%w: %w", err, models.ErrRateLimited)
	}
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	x.s.state.GaveUp, x.s.unserved = err, true
}

// unreached tells the client that the provider could not be reached.
func (x *exchange) unreached(err error) {
	if x.refusedUp(err) {
		return
	}
	name := x.e.up.model.Name
	if r, ok := errors.AsType[*replayError](err); ok {
		x.s.setDown(fmt.Errorf("model %q: %w", name, r.err))
		x.fail(dialect.BadRequest, "%s", r.err)
		return
	}
	if long, ok := errors.AsType[*longError](err); ok {
		x.endLong(long)
		return
	}
	why := x.trouble(nil, err)
	x.down(why, hopeless(err, 0))
	if x.forward != nil {
		x.forward.Message, x.forward.Hopeless = why.Error(), hopeless(err, 0)
	}
	x.fail(dialect.Unreachable, "the provider of model %q cannot be reached", name)
}

// endLong ends a turn that would have to wait for too long. Clients that ask again
// by themselves would do so for minutes.
func (x *exchange) endLong(long *longError) {
	x.down(long, false)
	if x.forward != nil {
		x.forward.Wait, x.forward.Why = long.wait, long.why
	} else if !x.early {
		x.w.Header().Set("X-Should-Retry", "false")
	}
	defer x.s.endTurn(&models.Refusal{Provider: true, Err: x.s.State().Down})
	x.refuse(dialect.Failure{Kind: dialect.Overloaded, Message: long.Error(), Retry: long.wait})
}

// failed remembers a request that may be retried, and whether it was counted.
func (x *exchange) failed(yes, counted bool) {
	x.e.mu.Lock()
	defer x.e.mu.Unlock()
	if yes {
		x.e.failed[x.digest] = counted || x.e.failed[x.digest]
	} else {
		delete(x.e.failed, x.digest)
	}
}
