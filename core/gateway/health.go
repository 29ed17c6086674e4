package gateway

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/berth-eval/berth/core/gateway/ratelimit"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
)

// health is what a run has seen of one provider, with one key and model.
type health struct {
	limiter *ratelimit.Limiter

	mu     sync.Mutex
	served bool // since this process began
	why    string
	ended  map[string]bool // attempts in a row that ended so, without a success in between
}

// maxEqual is how many attempts in a row may end in the same way without an
// answer of the provider, before another one ends the run.
const maxEqual = 5

// healthOf is the one for the address, the key and the name of a model, which
// all cells that use it share.
func (g *Gateway) healthOf(u *upstream) *health {
	id := u.base + " " + u.key + " " + u.model.Name
	if h := g.health[id]; h != nil {
		return h
	}
	o := g.o.RateLimit
	if u.model.InFlight > 0 {
		o.Max = u.model.InFlight
	}
	name, log := u.model.Name, g.o.Log
	o.Tell = func(s ratelimit.State) { log.Warn().Msg(told(name, s)) }
	h := &health{limiter: ratelimit.New(o)}
	g.health[id] = h
	return h
}

func (h *health) hasServed() bool {
	if h == nil {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.served
}

// ok notes an answer.
func (h *health) ok() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.served, h.why, h.ended = true, "", nil
}

// gone notes that an attempt ended because the provider did not serve.
func (h *health) gone(attempt string, why error) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := withoutDigits(why.Error()); w != h.why {
		h.why, h.ended = w, map[string]bool{}
	}
	h.ended[attempt] = true
}

// after is how many attempts in a row have ended as this failure would end
// another.
func (h *health) after(attempt string, why error) int {
	if h == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended[attempt] || withoutDigits(why.Error()) != h.why {
		return 0
	}
	return len(h.ended)
}

// withoutDigits is a failure without what differs from one to the next.
func withoutDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, s)
}

// hopeless says whether a provider that has never served will not, however
// often it is asked: nobody is there, or it does not want this key.
func hopeless(err error, status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden:
		return true
	}
	if err == nil {
		return false
	}
	if errors.As(err, new(*net.DNSError)) || errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(tls.RecordHeaderError)) {
		return true
	}
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)
}

// attempt names the attempt of a session.
func (s *session) attempt() string {
	return s.spec.Trial + "/" + strconv.Itoa(s.spec.Attempt)
}

// down notes that the provider did not serve. One that cannot serve at all, or
// has failed several attempts in the same way, ends the run: every further
// attempt would end so.
func (x *exchange) down(why error, hopeless bool) {
	u := x.e.up
	err := fmt.Errorf("provider of model %q: %w", u.model.Name, why)
	x.s.setDown(err)
	x.s.mu.Lock()
	x.s.health = u.health
	x.s.mu.Unlock()
	if n := u.health.after(x.s.attempt(), err); n >= maxEqual {
		x.s.halt(fmt.Errorf("%w; %d attempts in a row have ended so", err, n))
	} else if hopeless && !u.health.hasServed() {
		x.s.halt(err)
	}
}

// halt ends the turn, and the run with it.
func (s *session) halt(why error) {
	s.endTurn(&models.Refusal{Scope: record.ScopeRun, Provider: true, Err: why})
}

// ended notes at the end of a turn how the attempt would end now.
func (s *session) ended() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil {
		s.health.gone(s.attempt(), s.down)
	}
}
