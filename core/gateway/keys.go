package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/berth-eval/berth/core/gateway/ratelimit"
)

// apiKey is one key of a model. Models with the same address and name share it.
type apiKey struct {
	value   string // empty: the provider needs none
	limiter *ratelimit.Limiter
	refused atomic.Bool // another key served a request for which the provider refused this one
	down    atomic.Bool // the last try says that the provider is down or overloaded
}

// keysOf reads the keys of a model.
func (g *Gateway) keysOf(u *upstream) error {
	for i, key := range u.model.Keys() {
		name := "api_key"
		if u.model.APIKey == nil {
			name = fmt.Sprintf("api_keys[%d]", i)
		}
		value, err := key.Reveal()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if value == "" && len(u.model.APIKeys) > 0 {
			return fmt.Errorf("%s is empty: set its variable, or remove it", name)
		}
		u.keys = append(u.keys, g.keyOf(u, value, i))
	}
	if len(u.keys) == 0 {
		u.keys = []*apiKey{g.keyOf(u, "", 0)}
	}
	return nil
}

func (g *Gateway) keyOf(u *upstream, value string, i int) *apiKey {
	id := u.base + " " + value + " " + u.model.Name
	if k := g.keys[id]; k != nil {
		return k
	}
	o := g.o.RateLimit
	if u.model.InFlight > 0 {
		o.Max = u.model.InFlight
	}
	name, log := u.model.Name, g.o.Log
	if len(u.model.APIKeys) > 1 {
		name = fmt.Sprintf("%s, key %d of %d", name, i+1, len(u.model.APIKeys))
	}
	o.Tell = func(s ratelimit.State) { log.Warn().Msg(told(name, s)) }
	k := &apiKey{value: value, limiter: ratelimit.New(o)}
	g.keys[id] = k
	return k
}

// candidates returns the indexes of the keys that may serve the request, the
// preferred one first.
func (x *exchange) candidates(refused map[int]bool) (all []int) {
	keys := x.e.up.keys
	for _, known := range []bool{true, false} { // if all keys were refused before, they are asked again
		for i := range keys {
			i = (i + x.e.first) % len(keys)
			if refused[i] || known && keys[i].refused.Load() {
				continue
			}
			all = append(all, i)
		}
		if len(all) > 0 {
			break
		}
	}
	return all
}

// acquire waits until the request may be sent with one of the keys, and chooses
// that key.
func (x *exchange) acquire(ctx context.Context, candidates []int) (*ratelimit.Turn, error) {
	defer x.waiting()()
	var limiters []*ratelimit.Limiter
	for _, i := range candidates {
		limiters = append(limiters, x.e.up.keys[i].limiter)
	}
	n, turn, err := ratelimit.Any(ctx, limiters...)
	if err == nil {
		x.use(candidates[n])
	}
	return turn, err
}

// use chooses a key for the request.
func (x *exchange) use(i int) {
	x.key, x.line.Key = i, 0
	if len(x.e.up.keys) > 1 {
		x.line.Key = i + 1
	}
}

// value returns the chosen key.
func (x *exchange) value() string { return x.e.up.keys[x.key].value }

// aboutKey reports whether a status may be about the key.
func aboutKey(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusPaymentRequired || status == http.StatusForbidden
}

// accepted records that the provider served the request after it had refused
// other keys for it, so that these are not used any more.
func (x *exchange) accepted(refused map[int]bool) {
	keys := x.e.up.keys
	for i := range refused {
		if keys[i].refused.Swap(true) {
			continue
		}
		text := fmt.Sprintf("model %s: the provider does not accept key %d of %d, and the others serve", x.e.up.model.Name, i+1, len(keys))
		x.s.g.o.Log.Warn().Msg(text)
		x.s.find("key_refused", text)
	}
}

// gaveUp reports whether the provider has failed for too long with each of the
// keys.
func (x *exchange) gaveUp(candidates []int) bool {
	for _, i := range candidates {
		if !x.e.up.keys[i].limiter.GivenUp() {
			return false
		}
	}
	return true
}

// pausing returns why the provider is not asked for now with any of the keys,
// although its fallback is: it has just failed. Nil: it may be asked.
func (x *exchange) pausing(candidates []int) error {
	why := ""
	for _, i := range candidates {
		s := x.e.up.keys[i].limiter.State()
		if s.Pause == 0 || !x.e.up.keys[i].down.Load() {
			return nil
		}
		why = s.Why
	}
	return errors.New(why)
}
