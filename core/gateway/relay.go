package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/berth-eval/berth/plugins/dialect"
	answers "github.com/berth-eval/berth/plugins/model/answer"
)

// breakage says which side ended an answer early; empty: none.
type breakage string

// The sides.
const (
	byProvider breakage = "provider"
	byClient   breakage = "client"
	byGateway  breakage = "gateway" // after a keep-alive, an error can no longer be sent
)

func (b breakage) any() bool { return b != "" }

// perHop are the headers of one connection, which are not passed on, and those
// that the gateway sets itself.
var perHop = map[string]bool{
	"Connection": true, "Proxy-Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true, "Proxy-Authorization": true,
	"Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "Content-Length": true,
	"Accept-Encoding": true, "Content-Encoding": true, "Cookie": true, "Set-Cookie": true, "Host": true, "Forwarded": true,
	"X-Forwarded-For": true, "X-Forwarded-Host": true, "X-Forwarded-Proto": true, "X-Real-Ip": true,
}

// request makes the request to the provider: the client's, with our key and the
// changes of the policy.
func (x *exchange) request(ctx context.Context) (*http.Request, error) {
	b := x.body.Bytes()
	base := x.e.up.base
	if x.e.up.relayed {
		base = uplinkBase
	}
	target, err := url.Parse(base + x.call.Path)
	if err != nil {
		return nil, fmt.Errorf("base_url: %w", err)
	}
	target.RawQuery = x.r.URL.RawQuery
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	for k, v := range x.r.Header {
		if !perHop[k] && !strings.EqualFold(x.r.Header.Get("Connection"), k) && !strings.Contains(strings.Join(v, " "), x.e.token) {
			req.Header[k] = v
		}
	}
	req.Header.Set("Accept-Encoding", "identity")
	x.d.Authorize(req, x.value())
	return req, nil
}

// relay passes an answer on as it arrives, and lets the meter read it.
func (x *exchange) relay(ctx context.Context, resp *http.Response, m *answers.Meter) breakage {
	if !x.early {
		h := x.w.Header()
		for k, v := range resp.Header {
			if !perHop[k] && k != "Location" {
				h[k] = x.s.secrets.cleanAll(v)
			}
		}
	}
	switch {
	case resp.StatusCode >= 400:
		return x.relayFailure(resp) //nolint:contextcheck // what it asks the provider must not end with the client
	case resp.StatusCode >= 300:
		x.lost = x.s.moved(resp)
		x.fail(dialect.NotServed, "the provider of model %q does not serve it at the address of the experiment: %s", x.e.up.model.Name, x.lost)
		return ""
	}
	x.line.Type = resp.Header.Get("Content-Type")
	if strings.HasPrefix(x.line.Type, eventStream) {
		return x.relayStream(ctx, resp, m)
	}
	x.begin(resp.StatusCode)
	broken := x.copy(ctx, resp.Body, func(p []byte) error {
		_, err := x.w.Write(p)
		if err == nil && x.facts.Stream {
			err = x.control.Flush()
		}
		return err
	})
	m.Body(x.reply.Bytes())
	return broken
}

// begin begins the answer, unless keep-alives have begun it.
func (x *exchange) begin(status int) {
	if !x.early {
		x.w.WriteHeader(status)
	}
}

// eventStream is the media type of a stream of events.
const eventStream = "text/event-stream"

// maxFailure is how many bytes of an error answer are passed on: 1 MiB.
const maxFailure = 1 << 20

// relayFailure passes on an error answer without the key, which some providers
// repeat. An agent cannot fix the key, so errors about it get our own message.
func (x *exchange) relayFailure(resp *http.Response) breakage {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxFailure))
	if err != nil {
		return byProvider
	}
	if resp.StatusCode == http.StatusUnauthorized {
		f := x.d.Failure(dialect.Failure{Kind: dialect.BadToken, Message: "the provider does not accept the key of the experiment"})
		b = f.Body
	}
	b = x.clean(b)
	x.answered = true
	x.reply.Write(b)
	x.line.Type = resp.Header.Get("Content-Type")
	x.line.Upstream = clip(string(b))
	x.line.Cause = x.cause(resp.StatusCode)
	if x.early {
		if !x.late(dialect.Failure{Kind: kindOf(resp.StatusCode), Message: clip(string(b))}) {
			return byGateway
		}
		return ""
	}
	x.w.WriteHeader(resp.StatusCode)
	_, _ = x.w.Write(b) // the client may be gone
	return ""
}

// kindOf returns the kind of failure that is closest to a status.
func kindOf(status int) dialect.FailureKind {
	switch {
	case status == http.StatusTooManyRequests || status == statusOverloaded:
		return dialect.Overloaded
	case status >= 500:
		return dialect.Unreachable
	default:
		return dialect.BadRequest
	}
}

func (x *exchange) relayStream(ctx context.Context, resp *http.Response, m *answers.Meter) breakage {
	var events dialect.Events
	x.begin(resp.StatusCode)
	broken := x.copy(ctx, resp.Body, func(p []byte) (err error) {
		if !x.hide {
			if _, err = x.w.Write(p); err == nil {
				err = x.control.Flush()
			}
		}
		// The meter works after the client has received the bytes.
		events.Write(p, func(e dialect.Event) {
			m.Event(e)
			if x.hide && !x.d.Hide(e) && err == nil {
				_, err = x.w.Write(e.Raw)
			}
		})
		if x.hide && err == nil {
			err = x.control.Flush()
		}
		return err
	})
	if !broken.any() {
		events.End(m.Event)
	}
	if x.hide && !broken.any() {
		_, _ = x.w.Write(events.Rest()) // the client may be gone
	}
	return broken
}

// copy reads to the end, and returns the side that ended the answer early. The
// recorded and forwarded bytes contain no key.
func (x *exchange) copy(ctx context.Context, from io.ReadCloser, to func([]byte) error) breakage {
	buf := make([]byte, 32<<10)
	x.answered = true
	filter := x.s.secrets.redact.Writer(passed(func(p []byte) error {
		x.reply.Write(p)
		return to(p)
	}))
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if x.reply.Len()+n > maxReply {
				x.lost = errTooMuch
				return byProvider
			}
			if _, failed := filter.Write(buf[:n]); failed != nil {
				return byClient
			}
		}
		switch {
		case err == io.EOF: //nolint:errorlint // as io.Reader has it
			if filter.Close() != nil {
				return byClient
			}
			return ""
		case err != nil && ctx.Err() != nil:
			return byClient
		case err != nil:
			if silent, ok := errors.AsType[*silentError](err); ok {
				x.lost = silent
			}
			return byProvider
		}
	}
}

// passed is called with what is written.
type passed func([]byte) error

// Write implements io.Writer.
func (f passed) Write(p []byte) (int, error) { return len(p), f(p) }
