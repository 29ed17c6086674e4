package gateway

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-eval/berth/core/gateway/dialects"
	"github.com/berth-eval/berth/core/gateway/wire"
)

// maxRequest is how large a request may be, unpacked: 128 MiB. maxUnderWay is how
// large those may be together that are under way in a session: a sandbox must not
// fill the memory of the host.
const (
	maxRequest  = 128 << 20
	maxUnderWay = 2 * maxRequest
)

// ServeHTTP answers one request of the session's plugin.
func (s *session) ServeHTTP(w http.ResponseWriter, r *http.Request) { //nolint:contextcheck // a request ends with the turn, too
	d, call, ok := dialects.Of(r)
	if !ok {
		s.other(w, r)
		return
	}
	e := s.entries[d.Token(r)]
	if e == nil {
		s.notServed("a request with a token that is not good for its address")
		answer(w, d.Failure(wire.Failure{Kind: wire.BadToken, Message: "this token is not good for this address: use the one that came with it"}))
		return
	}
	life, leave, ok := s.enter()
	if !ok {
		answer(w, d.Failure(wire.Failure{Kind: wire.Over, Message: "the turn that this token is good for is over"}))
		return
	}
	x := &exchange{s: s, e: e, d: d, call: call, w: w, r: r, life: life, control: http.NewResponseController(w)}
	defer func() {
		x.finish(func() {
			x.leave()
			leave()
		})
	}()
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
		s.notServed(fmt.Sprintf("%s %q, which the gateway does not serve", clip(r.Method), clip(r.URL.Path)))
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

// errTooMany says that there is no room for a request now.
var errTooMany = fmt.Errorf("the requests that are under way are larger than %d MiB together: ask again when one of them is answered", maxUnderWay>>20)

// room counts what a request takes of the session's memory.
type room struct {
	io.Reader

	all  *atomic.Int64
	mine int64
}

// Read implements io.Reader.
func (m *room) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	m.mine += int64(n)
	if m.all.Add(int64(n)) > maxUnderWay {
		return n, errTooMany
	}
	return n, err
}

// leave gives the memory back.
func (m *room) leave() { m.all.Add(-m.mine) }

// body reads and unpacks the body of a request. leave must be called when it is
// no longer needed, also after an error.
func (s *session) body(r *http.Request) (b []byte, leave func(), err error) {
	in, end, err := unpacking(r)
	defer end()
	if err != nil {
		return nil, func() {}, err
	}
	m := &room{Reader: io.LimitReader(in, maxRequest+1), all: &s.underWay}
	var buf bytes.Buffer
	if in == r.Body && r.ContentLength > 0 { // which is but a claim
		buf.Grow(int(min(r.ContentLength, 1<<20)) + bytes.MinRead)
	}
	_, err = buf.ReadFrom(m)
	switch {
	case errors.Is(err, errTooMany):
		return nil, m.leave, err
	case err != nil:
		return nil, m.leave, fmt.Errorf("the body cannot be read: %w", err)
	case buf.Len() > maxRequest:
		return nil, m.leave, errTooLarge
	default:
		return buf.Bytes(), m.leave, nil
	}
}

// unpacking is the body of a request without its packing.
func unpacking(r *http.Request) (in io.Reader, end func(), err error) {
	end = func() {}
	switch enc := strings.ToLower(r.Header.Get("Content-Encoding")); enc {
	case "", "identity":
		return r.Body, end, nil
	case "gzip":
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, end, fmt.Errorf("the body is no gzip: %w", err)
		}
		return z, end, nil
	case "zstd":
		z, err := zstd.NewReader(r.Body, zstd.WithDecoderMaxMemory(maxRequest), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, end, fmt.Errorf("the body is no zstd: %w", err)
		}
		return z, z.Close, nil
	default:
		return nil, end, fmt.Errorf("content encoding %q is not known: send gzip, zstd or plain JSON", clip(enc))
	}
}

// maxWindow is how far back a request that is packed with zstd may refer, in
// bytes: what every decoder has to know, and memory that nobody counts.
const maxWindow = 8 << 20
