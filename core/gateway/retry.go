package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/berth-eval/berth/core/gateway/ledger"
	"github.com/berth-eval/berth/core/gateway/ratelimit"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/plugins/dialect"
	answers "github.com/berth-eval/berth/plugins/model/answer"
)

// silence is how long a client of a stream waits for the first keep-alive, and
// between keep-alives. Clients give up after minutes.
const silence = 10 * time.Second

// wholeSilence is the factor by which a client waits longer that wants a whole
// answer: the first keep-alive fixes the status of the answer, and an error
// after it can only break the connection.
const wholeSilence = 6

// waiting records that the request waits, and sends keep-alives to the client.
// Call end before writing anything else.
func (x *exchange) waiting() (end func()) {
	begin := time.Now()
	noWait := x.s.wait.begin()
	quiet := x.signing()
	return func() {
		quiet()
		noWait()
		x.line.Waited += time.Since(begin)
	}
}

// signing sends keep-alives to the client. Call end before writing anything
// else.
func (x *exchange) signing() (end func()) {
	if x.forward != nil {
		return func() {}
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		x.signs(stop)
	}()
	return func() {
		close(stop)
		<-done
	}
}

// events reports whether the client wants a stream of events.
func (x *exchange) events() bool { return x.facts.Stream && !x.call.Array }

// sign returns the keep-alive for the client, its media type, and the interval.
// Spaces before JSON mean nothing.
func (x *exchange) sign() (sign []byte, kind string, every time.Duration) {
	every = cmp.Or(x.s.g.o.Silence, silence)
	switch {
	case x.events():
		return x.d.KeepAlive(), eventStream, every
	case x.facts.Stream:
		return []byte("\n"), "application/json", every
	default:
		return []byte("\n"), "application/json", wholeSilence * every
	}
}

// signs sends keep-alives until stop is closed.
func (x *exchange) signs(stop <-chan struct{}) {
	sign, kind, every := x.sign()
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
		}
		if !x.early {
			x.w.Header().Set("Content-Type", kind)
			x.w.WriteHeader(http.StatusOK)
			x.early = true
		}
		if _, err := x.w.Write(sign); err != nil {
			return // the client has gone; its context shows that, too
		}
		_ = x.control.Flush()
	}
}

// late reports a failure to a client that has received keep-alives. It returns
// false if the only way left is to cut the answer off.
func (x *exchange) late(f dialect.Failure) bool {
	switch {
	case x.events():
		_, _ = x.w.Write(x.d.Late(f)) // the client may be gone
	case x.facts.Stream:
		_, _ = fmt.Fprintf(x.w, "[%s]", x.d.Failure(f).Body)
	default:
		return false
	}
	return true
}

// paced sends the request when the rate limit allows it, and again after the
// provider limited it or could not answer, until the provider is given up. The
// client does not see this, and is not charged for it. Call done with the
// result of the answer. sent is zero when the provider was not asked.
func (x *exchange) paced(ctx context.Context) (resp *http.Response, sent time.Time, done func(ratelimit.Result), err error) {
	if x.e.up.health == nil { // there is no provider
		sent = time.Now()
		resp, err = x.send(ctx)
		return resp, sent, func(ratelimit.Result) {}, err
	}
	nothing := func(ratelimit.Result) {}
	refused := map[int]bool{} // keys
	for {
		keys := x.candidates(refused)
		if long := x.tooLong(keys); long != nil {
			return nil, time.Time{}, nothing, long
		}
		if why := x.pausing(keys); !x.alone() && why != nil {
			return nil, time.Time{}, nothing, &pausedError{why}
		}
		turn, waitErr := x.acquire(ctx, keys)
		if waitErr != nil {
			return nil, time.Time{}, nothing, waitErr
		}
		resp, sent, err = x.try(ctx)
		r, after := x.resultOf(ctx, resp, err)
		switch {
		case r == ratelimit.Served && aboutKey(resp.StatusCode) && len(keys) > 1: // another key may be accepted
			turn.Done(ratelimit.Nothing, 0, "")
			refused[x.key] = true
		case r == ratelimit.Served || r == ratelimit.Nothing:
			if r == ratelimit.Served && resp.StatusCode < 300 {
				x.accepted(refused)
			}
			var once sync.Once
			return resp, sent, func(r ratelimit.Result) { once.Do(func() { turn.Done(r, 0, "") }) }, err
		case !x.again(resp, err, sent, keys, func(why string) { turn.Done(r, after, why) }):
			turn.Done(ratelimit.Nothing, 0, "")
			if long := x.tooLong(keys); long != nil && resp != nil {
				return nil, sent, nothing, x.saying(long, resp)
			}
			return resp, sent, nothing, err
		}
		if resp != nil {
			_ = resp.Body.Close()
		}
		x.line.Tries++
	}
}

// try sends the request with the chosen key.
func (x *exchange) try(ctx context.Context) (resp *http.Response, sent time.Time, err error) {
	sent, x.line.Limit = time.Now(), x.e.up.keys[x.key].limiter.State().Limit
	if x.e.up.relayed { // it sends keep-alives itself
		resp, err = x.send(ctx)
		return resp, sent.Add(x.remote.Waited), err
	}
	if x.failing != nil {
		defer x.signing()() // the client has waited for long
	}
	resp, err = x.send(ctx)
	return resp, sent, err
}

// resultOf returns what an answer says about the provider, and how long it asks
// to wait.
func (x *exchange) resultOf(ctx context.Context, resp *http.Response, err error) (ratelimit.Result, time.Duration) {
	if ctx.Err() != nil {
		return ratelimit.Nothing, 0
	}
	if x.e.up.relayed && (err == nil || errors.As(err, new(*remoteError)) || errors.As(err, new(*longError))) {
		return ratelimit.Nothing, 0 // the other gateway has asked again as often as it makes sense
	}
	r, after := resultOf(resp, err)
	isDown := down(resp, err)
	x.e.up.keys[x.key].down.Store(isDown)
	if !x.alone() && isDown {
		r = ratelimit.Failed // also if it is overloaded: the fallback serves while this one pauses
	}
	return r, after
}

// again reports whether a request that failed is to be sent once more. It calls
// failed with the reason, unless the failure says nothing about the provider's
// rate.
func (x *exchange) again(resp *http.Response, err error, sent time.Time, keys []int, failed func(why string)) bool {
	x.failing, x.limited = x.trouble(resp, err), err == nil && resp.StatusCode == http.StatusTooManyRequests
	x.s.wait.addSince(sent)
	x.line.Waited += time.Since(sent)
	if hopeless(err, 0) && !x.e.up.health.hasServed() && x.alone() { // waiting does not help
		return false
	}
	failed(x.failing.Error())
	return !x.gaveUp(keys) && (x.alone() || !down(resp, err))
}

// resultOf returns what an answer says about the provider, and how long the
// provider asks to wait.
func resultOf(resp *http.Response, err error) (ratelimit.Result, time.Duration) {
	if err != nil {
		return ratelimit.Failed, 0
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, statusOverloaded:
		return ratelimit.Limited, dialect.RetryAfter(resp.Header)
	case http.StatusServiceUnavailable:
		return ratelimit.Failed, dialect.RetryAfter(resp.Header)
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout:
		return ratelimit.Failed, 0
	default:
		return ratelimit.Served, 0
	}
}

// longError says that a provider asks to wait for longer than it is asked again.
type longError struct {
	wait time.Duration
	why  string
}

// Error implements error.
func (e *longError) Error() string {
	return fmt.Sprintf("%s, and it asks to wait %s", e.why, dialect.Roughly(e.wait))
}

// Unwrap implements the interface of errors.Is.
func (e *longError) Unwrap() error { return models.ErrRateLimited }

// tooLong returns the error for a provider that cannot be asked in time with any
// of the keys; nil: it can.
func (x *exchange) tooLong(keys []int) *longError {
	var least *longError
	for _, i := range keys {
		l := x.e.up.keys[i].limiter
		wait := l.Beyond()
		if wait == 0 {
			return nil
		}
		if least == nil || wait < least.wait {
			least = &longError{wait, l.State().Why}
		}
	}
	return least
}

// saying adds what the provider says.
func (x *exchange) saying(long *longError, resp *http.Response) *longError {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxFailure)) // what has come of it
	_ = resp.Body.Close()
	if says := answers.Problem(x.clean(b)); says != "" {
		x.line.Upstream = clip(says)
		long.why += ": " + strings.TrimRight(x.line.Upstream, ". ")
	}
	return long
}

// pausedError says why a provider was not asked.
type pausedError struct{ why error }

func (e *pausedError) Error() string { return e.why.Error() }

// down reports whether a failure says that the provider is down or overloaded,
// so that a fallback serves without further tries.
func down(resp *http.Response, err error) bool {
	if err != nil {
		return !errors.As(err, new(*uplinkError))
	}
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, statusOverloaded:
		return true
	default:
		return false
	}
}

// failover returns why a fallback is to serve the request; nil if there is none,
// or if the answer is the model's. The answer to a request that is itself wrong
// is the model's. So is one to a key that never worked: it is a mistake in the
// experiment, which a fallback would hide.
func (x *exchange) failover(ctx context.Context, resp *http.Response, err error) error {
	u := x.e.up
	if x.e.next == nil || u.health == nil || ctx.Err() != nil {
		return nil //nolint:nilerr // the client has gone
	}
	if r, ok := errors.AsType[*remoteError](err); ok && r.Failure != dialect.Unreachable || errors.As(err, new(*uplinkError)) {
		return nil //nolint:nilerr // this is not about the provider
	}
	if paused, ok := errors.AsType[*pausedError](err); ok {
		return paused.why
	}
	if err == nil {
		s := resp.StatusCode
		lasting := s == http.StatusTooManyRequests || s >= 500
		refused := aboutKey(s) && u.health.hasServed()
		if !lasting && !refused {
			return nil
		}
	}
	return x.trouble(resp, err)
}

// fallBack prepares the request for the next model of the chain, and reserves
// its cost. If it returns false, the request has been answered.
func (x *exchange) fallBack(ctx context.Context, why error) (*ledger.Hold, bool) {
	from := x.line.Model
	x.digests() // a replay finds the exchange by the request to the first model
	if x.line.FallbackFor == "" {
		x.line.FallbackFor = from
	}
	x.e = x.e.next
	x.line.Model, x.line.Key, x.line.Limit, x.asked, x.failing = x.e.up.model.Name, 0, 0, nil, nil
	x.s.find("model_fallback", fmt.Sprintf("model %q did not serve, and %q was asked instead: %s", from, x.line.Model, why))
	var err error
	if x.body, err = dialect.ParseObject(x.sent); err == nil {
		x.facts, err = x.d.Facts(x.call, x.body)
	}
	if err != nil { // it was read before
		x.fail(dialect.BadRequest, "%s", err)
		return nil, false
	}
	if !x.policy() {
		return nil, false
	}
	hold, err := x.reserve(ctx)
	if err != nil {
		x.unreserved(err)
		return nil, false
	}
	return hold, true
}
