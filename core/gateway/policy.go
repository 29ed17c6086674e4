package gateway

import (
	"bytes"
	"context"
	"fmt"
	"hash/maphash"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-eval/berth/plugins/dialect"
)

// seed is the seed of the digests that recognise a repeated request.
var seed = maphash.MakeSeed()

// policy changes the request as the experiment requires.
func (x *exchange) policy() bool {
	u := x.e.up
	edit := dialect.Edit{Parameters: u.model.Parameters, AskUsage: x.facts.Stream && x.facts.Silent}
	if x.line.FallbackFor != "" {
		edit.Model = u.model.Name
	} else if asked := x.facts.Model; asked != u.model.Name && !slices.Contains(u.model.AllowModels, asked) {
		edit.Model = u.model.Name
		x.line.Asked = clip(asked)
		x.s.find("other_model", fmt.Sprintf("the %s asked for model %q and was served by %q", x.s.spec.Role, clip(asked), u.model.Name))
	}
	if !x.seal() {
		return false
	}
	x.usualRate()
	if err := x.d.Edit(&x.call, x.body, edit); err != nil {
		x.reject(dialect.BadRequest, "%s", err)
		return false
	}
	x.hide = edit.AskUsage
	if x.body.Changed() { // parameters may have changed the facts
		f, err := x.d.Facts(x.call, x.body)
		if err != nil {
			x.reject(dialect.BadRequest, "%s", err)
			return false
		}
		x.facts = f
	}
	if slices.Contains(u.model.AllowModels, x.facts.Model) {
		x.line.Model = x.facts.Model
	}
	x.price = u.priceOf(x.line.Model)
	x.line.Stream = x.facts.Stream
	b := x.body.Bytes()
	x.digest = maphash.Bytes(seed, b)
	return true
}

// seal keeps the provider from fetching or running anything that the sandbox
// must not reach: features that are only offered are removed, and a request
// that depends on one is refused.
func (x *exchange) seal() bool {
	if x.s.spec.Hosted {
		return true
	}
	dropped, r := x.d.Restrict(x.call, x.body, x.e.up.model.AllowHosted)
	if r != "" {
		x.s.find("hosted_tool", fmt.Sprintf("a request was refused with something that the provider would fetch or run, because no network is granted: %s; "+
			"allow_hosted = [%q] in the model block allows it", clip(r), clip(r)))
		x.s.setRefused(fmt.Errorf("a request of the %s was refused: %q runs at the provider, or is fetched by it", x.s.spec.Role, clip(r)))
		x.fail(dialect.BadRequest, "%q runs at the provider, or is fetched by it, and this task grants no network: leave it out, or send the content itself", clip(r))
		return false
	}
	if len(dropped) > 0 {
		slices.Sort(dropped)
		x.s.find("hosted_tool", fmt.Sprintf("taken out of requests, because the provider would or might fetch or run something, and no network is granted: %s",
			clip(strings.Join(dropped, ", "))))
	}
	return true
}

// clip shortens text from a client for a record.
func clip(s string) string {
	const limit = 200
	if len(s) > limit {
		return strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}

// Cause says why a provider refused a request.
type Cause string

// The causes. Empty means that the request was not refused, or that the cause
// is unknown.
const (
	CauseRequest  Cause = "request"
	CauseProvider Cause = "provider"
)

// mayBeRequest reports whether a status can be caused by the content of a
// request.
func mayBeRequest(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, // about the key
		http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests: // about the moment
		return false
	default:
		return status >= 400 && status < 500
	}
}

// probe records whether a provider answered the smallest request for a model.
type probe struct {
	mu       sync.Mutex
	at       time.Time
	answered bool
}

// How long a probe may take, and how long its result is valid.
const (
	probeTime = 30 * time.Second
	probeGood = 10 * time.Second
)

// cause finds out whether the content of a refused request is the cause. It is
// if the provider answers the smallest request for the same model. With any
// other result of that test the agent is not blamed.
func (x *exchange) cause(status int) Cause {
	u := x.e.up
	switch {
	case !mayBeRequest(status):
		return CauseProvider
	case x.e.play != nil:
		return CauseProvider // a scripted model says so itself
	case u.relayed:
		return x.remote.Cause
	case u.replay != nil:
		return CauseRequest
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(x.life, probeTime)
	defer cancel()
	answered := x.probe(ctx)
	x.s.wait.addSince(begin)
	if answered {
		return CauseRequest
	}
	return CauseProvider
}

// probe reports whether the provider answers the smallest request for the model
// that x requested.
func (x *exchange) probe(ctx context.Context) bool {
	known, _ := x.e.up.probes.LoadOrStore(x.line.Model, &probe{})
	p, ok := known.(*probe)
	if !ok {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at.IsZero() || time.Since(p.at) > probeGood {
		if p.answered = x.smallest(ctx); x.life.Err() == nil { // otherwise it was cut off, and says nothing
			p.at = time.Now()
		}
	}
	return p.answered
}

// smallest sends the smallest request, with the parameters of the experiment,
// and reads only the status of the answer.
func (x *exchange) smallest(ctx context.Context) bool {
	call, text := x.d.Smallest(x.line.Model)
	body, err := dialect.ParseObject(text)
	if err == nil {
		err = x.d.Edit(&call, body, dialect.Edit{Parameters: x.e.up.model.Parameters})
	}
	if err != nil {
		return false
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.e.up.base+call.Path, bytes.NewReader(body.Bytes()))
	if err != nil {
		return false
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept-Encoding", "identity")
	x.d.Authorize(req, x.value())
	resp, err := x.e.up.carries.RoundTrip(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode < 300
}

// refused records that a request was refused because of its content.
func (x *exchange) refused(why string) {
	x.s.setRefused(fmt.Errorf("a request of the %s was refused: %s", x.s.spec.Role, why))
	x.s.find("request_refused", fmt.Sprintf("a request of the %s was refused for what it asks: %s", x.s.spec.Role, why))
}

// reject answers a request that the gateway itself does not serve.
func (x *exchange) reject(kind dialect.FailureKind, format string, args ...any) {
	x.refused("the gateway says: " + fmt.Sprintf(format, args...))
	x.fail(kind, format, args...)
}

// notServed records a request that reaches no model. A client that has already
// been answered may request things other than models, such as a list of
// features or an address for statistics.
func (s *session) notServed(what string) {
	s.find("not_served", fmt.Sprintf("the %s sent %s", s.spec.Role, what))
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.answered {
		s.state.Refused = fmt.Errorf("the %s sent %s", s.spec.Role, what)
	}
}

func (s *session) setRefused(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Down, s.state.GaveUp, s.state.Refused, s.unserved = nil, nil, err, true
}
