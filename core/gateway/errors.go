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
	"syscall"

	"github.com/berth-eval/berth/core/gateway/ratelimit"
	"github.com/berth-eval/berth/plugins/dialect"
)

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
		return err // in words already
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
