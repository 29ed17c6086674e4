package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/berth-eval/berth/core/gateway/ledger"
	"github.com/berth-eval/berth/plugins/dialect"
)

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
