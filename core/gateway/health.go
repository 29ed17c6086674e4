package gateway

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"

	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
)

// health is the state of one provider, for the keys of a model, as seen by the
// run.
type health struct {
	mu     sync.Mutex
	served bool // since this process began
	why    string
	ended  map[string]bool // consecutive attempts that ended in this way, without a success in between
}

// maxEqual is how many attempts in a row may end in the same way without an
// answer of the provider; one more ends the run.
const maxEqual = 5

// healthOf returns the health for the address, the keys and the name of a model.
// All cells that use the model share it.
func (g *Gateway) healthOf(u *upstream) *health {
	var values []string
	for _, k := range u.keys {
		values = append(values, k.value)
	}
	id := u.base + " " + strings.Join(values, " ") + " " + u.model.Name
	if g.health[id] == nil {
		g.health[id] = &health{}
	}
	return g.health[id]
}

func (h *health) hasServed() bool {
	if h == nil {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.served
}

// ok records an answer.
func (h *health) ok() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.served, h.why, h.ended = true, "", nil
}

// gone records that an attempt ended because the provider did not serve.
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

// after returns how many attempts in a row have ended in the same way as this
// failure would end another one.
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

// withoutDigits returns a failure without the digits, which differ from one to
// the next.
func withoutDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, s)
}

// hopeless reports whether a provider that has never served will keep failing,
// however often it is asked: nothing listens there, or it rejects this key.
func hopeless(err error, status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden:
		return true
	}
	if err == nil {
		return false
	}
	if r, ok := errors.AsType[*remoteError](err); ok {
		return r.Hopeless
	}
	if errors.As(err, new(*net.DNSError)) || errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(tls.RecordHeaderError)) {
		return true
	}
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)
}

// attempt returns the name of the attempt of a session.
func (s *session) attempt() string {
	return attemptKey(s.spec.Trial, s.spec.Attempt)
}

// down records that the provider did not serve. A provider that cannot serve at
// all, or has failed several attempts in the same way, ends the run, because
// every further attempt would end in the same way.
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

// halt ends the turn and the run.
func (s *session) halt(why error) {
	s.endTurn(&models.Refusal{Scope: record.ScopeRun, Provider: true, Err: why})
}

// ended records at the end of a turn how the attempt would end now.
func (s *session) ended() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if down := s.state.Down; down != nil {
		s.health.gone(s.attempt(), down)
	}
}
