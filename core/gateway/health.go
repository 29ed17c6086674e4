package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/berth-eval/berth/core/gateway/ratelimit"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/dialect"
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

// host returns the host of the provider's address, for messages.
func (u *upstream) host() string {
	if at, err := url.Parse(u.base); err == nil && at.Host != "" {
		return at.Host
	}
	if u.base == "" {
		return "the script"
	}
	return u.base
}

// inWords says briefly why host did not answer.
func inWords(host string, err error) string {
	if silent, ok := errors.AsType[*silentError](err); ok {
		return fmt.Sprintf("no answer from %s: %s", host, silent)
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return "no such host: " + dns.Name
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Sprintf("the name %s cannot be looked up: %s", dns.Name, dns.Err)
	}
	if errors.As(err, new(x509.UnknownAuthorityError)) {
		return fmt.Sprintf("the certificate of %s is not accepted: its authority is unknown", host)
	}
	if bad, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Sprintf("the certificate of %s is not accepted: %s", host, bad.Err)
	}
	if errors.As(err, new(tls.RecordHeaderError)) {
		return host + " does not speak TLS (https): begin base_url with http if that is right"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "proxyconnect" {
		host = "the proxy that leads to " + host
		if inner, at := errors.AsType[*net.OpError](op.Err); at && inner.Addr != nil {
			host += ", " + inner.Addr.String()
		}
	} else if ok && op.Addr != nil && op.Addr.String() != host {
		host += " (" + op.Addr.String() + ")"
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused by " + host
	case errors.Is(err, syscall.ECONNRESET):
		return "connection reset by " + host
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route to " + host
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return host + " closed the connection without an answer"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return "no connection to " + host + " in time"
	default:
		return fmt.Sprintf("no answer from %s: %s", host, err)
	}
}

// trouble says why the provider did not serve a request, without secrets.
func (x *exchange) trouble(resp *http.Response, err error) error {
	switch {
	case errors.As(err, new(*remoteError)), errors.As(err, new(*uplinkError)), errors.As(err, new(*longError)):
		return err // is a sentence already
	case err != nil:
		return errors.New(clip(string(x.clean([]byte(inWords(x.e.up.host(), err))))) + x.e.up.authority(err))
	}
	return errors.New(refusalInWords(x.e.up.host(), resp.StatusCode))
}

// authority says what to do about a certificate of an unknown authority.
func (u *upstream) authority(err error) string {
	switch {
	case !errors.As(err, new(x509.UnknownAuthorityError)):
		return ""
	case u.model.CAFile != "":
		return fmt.Sprintf(": ca_file %q does not have that authority", u.model.CAFile)
	default:
		return fmt.Sprintf(": if it is a private one, name the file with its certificate in ca_file of model %q", u.model.Label)
	}
}

// refusalInWords describes an error status.
func refusalInWords(host string, status int) string {
	switch status {
	case http.StatusUnauthorized:
		return host + " does not accept the api_key (status 401)"
	case http.StatusPaymentRequired:
		return host + " wants to be paid first (status 402)"
	case http.StatusForbidden:
		return host + " does not allow it with this api_key (status 403)"
	default:
		return fmt.Sprintf("status %d from %s", status, host)
	}
}

// told is the log message for a provider that limited requests, failed, or has
// recovered.
func told(model string, s ratelimit.State) string {
	if s.Failing == 0 {
		return fmt.Sprintf("model %s: the provider takes as many requests as before", model)
	}
	if s.Pause > s.Left {
		return fmt.Sprintf("model %s: %s, and it asks to wait %s: attempts that need it end now", model, s.Why, dialect.Roughly(s.Pause))
	}
	text := fmt.Sprintf("model %s: %s, trying again in %s, up to %s", model, s.Why, dialect.Roughly(s.Pause), dialect.Roughly(s.Left))
	if s.Result == ratelimit.Limited {
		text += ", with " + strconv.Itoa(s.Limit) + " at the same time"
	}
	return text
}
