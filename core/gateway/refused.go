package gateway

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/berth-eval/berth/core/gateway/dialect"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Cause is whose fault it is that a provider refused a request.
type Cause string

// The causes. The zero value is: it was not refused, or nobody can say.
const (
	CauseRequest  Cause = "request"
	CauseProvider Cause = "provider"
)

// mayBeRequest says whether a status can be about what a request says.
func mayBeRequest(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, // about the key
		http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests: // about the moment
		return false
	default:
		return status >= 400 && status < 500
	}
}

// probe is whether a provider answered the smallest request for a model.
type probe struct {
	mu       sync.Mutex
	at       time.Time
	answered bool
}

// How long a probe may take, and how long what it said is believed.
const (
	probeTime = 30 * time.Second
	probeGood = 10 * time.Second
)

// cause finds out whether a refused request has caused that itself. It has when
// the provider answers the smallest request for the same model. Whatever else
// comes back, from a refusal to a provider that is down, does not blame the agent.
func (x *exchange) cause(status int) Cause {
	u := x.e.up
	switch {
	case !mayBeRequest(status):
		return CauseProvider
	case x.e.play != nil:
		return CauseProvider // its script says so, whatever is asked
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

// probe says whether the provider answers the smallest request for the model that
// x asked for.
func (x *exchange) probe(ctx context.Context) bool {
	known, _ := x.e.up.probes.LoadOrStore(x.line.Model, &probe{})
	p, ok := known.(*probe)
	if !ok {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at.IsZero() || time.Since(p.at) > probeGood {
		p.answered = x.smallest(ctx)
		p.at = time.Now()
	}
	return p.answered
}

// smallest sends the smallest request, with the parameters of the experiment,
// and reads nothing of an answer but its status.
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
	x.d.Authorize(req, x.e.up.key)
	resp, err := x.s.g.o.Transport.RoundTrip(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode < 300
}

// refused says that a request was refused for what it says itself.
func (x *exchange) refused(why string) {
	x.s.setRefused(fmt.Errorf("a request of the %s was refused: %s", x.s.spec.Role, why))
	x.s.find("request_refused", verifier.Note, fmt.Sprintf("a request of the %s was refused for what it asks: %s", x.s.spec.Role, why))
}

// reject is for a request that the gateway itself does not serve.
func (x *exchange) reject(kind dialect.FailureKind, format string, args ...any) {
	x.refused("the gateway says: " + fmt.Sprintf(format, args...))
	x.fail(kind, format, args...)
}

// notServed is for what reaches no model at all. One that has been answered
// before may ask for more than models as well: a list of features, a place for
// statistics.
func (s *session) notServed(what string) {
	s.find("not_served", verifier.Note, fmt.Sprintf("the %s sent %s", s.spec.Role, what))
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.answered {
		s.refused = fmt.Errorf("the %s sent %s", s.spec.Role, what)
	}
}

func (s *session) setRefused(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down, s.refused, s.unserved = nil, err, true
}

// Refused implements models.Session.
func (s *session) Refused() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}
