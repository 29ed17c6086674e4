package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
)

// host is the address of the provider, for people.
func (u *upstream) host() string {
	if at, err := url.Parse(u.base); err == nil && at.Host != "" {
		return at.Host
	}
	return u.base
}

// inWords says in a few words why host did not answer.
func inWords(host string, err error) string {
	if silent, ok := errors.AsType[*silentError](err); ok {
		return fmt.Sprintf("no answer from %s: %s", host, silent)
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return "no such host: " + dns.Name
	}
	if bad, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Sprintf("the certificate of %s is not accepted: %s", host, bad.Err)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Addr != nil && errors.Is(err, syscall.ECONNREFUSED) {
		if at := op.Addr.String(); at != host {
			host += " (" + at + ")"
		}
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

// trouble is why the provider did not serve a request, without what is secret.
func (x *exchange) trouble(resp *http.Response, err error) error {
	if err != nil {
		return errors.New(clip(string(x.clean([]byte(inWords(x.e.up.host(), err))))))
	}
	return fmt.Errorf("status %d from %s", resp.StatusCode, x.e.up.host())
}
