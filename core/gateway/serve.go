package gateway

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-eval/berth/core/gateway/dialects"
	"github.com/berth-eval/berth/core/gateway/wire"
)

// maxRequest is how large a request may be, unpacked: 128 MiB.
const maxRequest = 128 << 20

// ServeHTTP answers one request of the session's plugin.
func (s *session) ServeHTTP(w http.ResponseWriter, r *http.Request) { //nolint:contextcheck // a request ends with the turn, too
	d, call, ok := dialects.Of(r)
	if !ok {
		s.other(w, r)
		return
	}
	e := s.entries[d.Token(r)]
	if e == nil {
		answer(w, d.Failure(wire.Failure{Kind: wire.BadToken, Message: "this token is not good for this address: use the one that came with it"}))
		return
	}
	life, leave, ok := s.enter()
	if !ok {
		answer(w, d.Failure(wire.Failure{Kind: wire.Over, Message: "the turn that this token is good for is over"}))
		return
	}
	x := &exchange{s: s, e: e, d: d, call: call, w: w, r: r, life: life, control: http.NewResponseController(w)}
	defer x.finish(leave)
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(life, func() { cancel(context.Cause(life)) })() //nolint:contextcheck // as above
	if call.Kind == wire.List {
		answer(w, wire.Response{Status: http.StatusOK, Header: jsonHeader(), Body: d.Listed([]string{e.up.model.Name})})
		return
	}
	x.serve(ctx)
}

// other answers what belongs to no dialect: a look whether somebody is there,
// an offer to speak another protocol, a mistake.
func (s *session) other(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Upgrade") != "":
		// Clients that try a web socket first then ask as usual.
		w.WriteHeader(http.StatusUpgradeRequired)
	case r.Method == http.MethodHead, r.Method == http.MethodGet && r.URL.Path == "/":
		w.WriteHeader(http.StatusOK)
	default:
		d := dialects.Named(dialects.Usual)
		answer(w, d.Failure(wire.Failure{
			Kind: wire.NotServed, Message: fmt.Sprintf("the gateway does not serve %s %q: it serves models and nothing else of a provider", r.Method, r.URL.Path),
		}))
	}
}

func jsonHeader() http.Header { return http.Header{"Content-Type": {"application/json"}} }

func answer(w http.ResponseWriter, f wire.Response) {
	maps.Copy(w.Header(), f.Header)
	w.WriteHeader(f.Status)
	_, _ = w.Write(f.Body) // the client may be gone
}

// errTooLarge says that a request is larger than the gateway takes.
var errTooLarge = fmt.Errorf("the request is larger than %d MiB", maxRequest>>20)

// body reads and unpacks the body of a request.
func body(r *http.Request) ([]byte, error) {
	var in io.Reader = r.Body
	switch enc := strings.ToLower(r.Header.Get("Content-Encoding")); enc {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("the body is no gzip: %w", err)
		}
		in = z
	case "zstd":
		z, err := zstd.NewReader(in, zstd.WithDecoderMaxMemory(maxRequest), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, fmt.Errorf("the body is no zstd: %w", err)
		}
		defer z.Close()
		in = z
	default:
		return nil, fmt.Errorf("content encoding %q is not known: send gzip, zstd or plain JSON", enc)
	}
	var buf bytes.Buffer
	if in == r.Body && r.ContentLength > 0 { // which is but a claim
		buf.Grow(int(min(r.ContentLength, 1<<20)) + bytes.MinRead)
	}
	_, err := buf.ReadFrom(io.LimitReader(in, maxRequest+1))
	b := buf.Bytes()
	switch {
	case err != nil:
		return nil, fmt.Errorf("the body cannot be read: %w", err)
	case len(b) > maxRequest:
		return nil, errTooLarge
	default:
		return b, nil
	}
}
