package gateway

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

// readBody reads and decompresses the body of the request when there is room
// for it.
func (x *exchange) readBody(ctx context.Context) ([]byte, error) {
	known := x.r.ContentLength
	if known > maxRequest {
		return nil, errTooLarge
	}
	in, end, err := unpacking(x.r, maxRequest)
	defer end()
	if err != nil {
		return nil, err
	}
	size := int64(maxRequest)
	if known >= 0 && in == x.r.Body {
		size = known
	}
	if err = x.hold(ctx, size); err != nil {
		return nil, err
	}
	x.readUntil(time.Now().Add(slowest))
	b, err := io.ReadAll(io.LimitReader(in, maxRequest+1))
	if err != nil {
		return nil, fmt.Errorf("the body cannot be read: %w", err)
	}
	if len(b) > maxRequest {
		return nil, errTooLarge
	}
	x.release(2 * max(0, size-int64(len(b))))
	x.readUntil(time.Time{})
	return b, nil
}

// readUntil sets the time until which the client may send, at most until the
// end of its turn.
func (x *exchange) readUntil(t time.Time) {
	_ = x.control.SetReadDeadline(t)
	if x.life.Err() != nil {
		_ = x.control.SetReadDeadline(time.Unix(1, 0))
	}
}

// drain reads the rest of a refused request: most clients read an answer only
// after they have sent everything.
func (x *exchange) drain() {
	x.readUntil(time.Now().Add(slowest))
	_, _ = io.CopyN(io.Discard, x.r.Body, maxDrained)
}

// unpacking returns the decompressed body of a request.
func unpacking(r *http.Request, most int64) (in io.Reader, end func(), err error) {
	end = func() {}
	switch enc := strings.ToLower(r.Header.Get("Content-Encoding")); enc {
	case "", "identity":
		return r.Body, end, nil
	case "gzip":
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, end, fmt.Errorf("request body is not valid gzip: %w", err)
		}
		return z, end, nil
	case "zstd":
		z, err := zstd.NewReader(r.Body, zstd.WithDecoderMaxMemory(uint64(most)), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, end, fmt.Errorf("request body is not valid zstd: %w", err)
		}
		return z, z.Close, nil
	default:
		return nil, end, fmt.Errorf("content encoding %q is not known: send gzip, zstd or plain JSON", clip(enc))
	}
}

// maxWindow is how far back a request that is packed with zstd may refer, in
// bytes: what every decoder has to know, and memory that is not counted.
const maxWindow = 8 << 20

// Requests in progress are held in memory twice: as received and as sent. These are
// the bounds, in bytes.
const (
	maxRequest  = 64 << 20  // of one request, decompressed
	maxRequests = 256 << 20 // for all requests of a session; more have to wait
	maxTogether = 512 << 20 // for requests of all sessions; more have to wait
	maxReply    = 64 << 20  // of one answer
	perRequest  = 256 << 10 // for a request in addition to its bytes, including the beginning of its answer
	maxDrained  = 256 << 20 // of a request that is too large, and is read to its end
)

// slowest is how long the body of a request may take to arrive: meanwhile its
// memory is not available for others.
const slowest = 2 * time.Minute

// errTooMuch is the reason for cutting off an answer.
var errTooMuch = fmt.Errorf("its answer is larger than %d MiB", maxReply>>20)

// hold reserves memory for a request of n bytes, and waits while other requests use
// it. The wait for those of other sessions is not charged to the agent.
func (x *exchange) hold(ctx context.Context, n int64) error {
	n = 2*n + perRequest
	if err := x.s.memory.Acquire(ctx, n); err != nil {
		return err
	}
	defer x.s.wait.begin()()
	if err := x.s.g.memory.Acquire(ctx, n); err != nil {
		x.s.memory.Release(n)
		return err
	}
	x.held = n
	return nil
}

// release releases n bytes of the memory of the request.
func (x *exchange) release(n int64) {
	x.held -= n
	x.s.memory.Release(n)
	x.s.g.memory.Release(n)
}

// errTooLarge is the reason for refusing a request.
var errTooLarge = fmt.Errorf("the request is larger than %d MiB", maxRequest>>20)

// errUnfit means that the answer does not come from a provider.
var errUnfit = errors.New("it does not answer as a provider does")

// fit prepares an answer for metering and passing on. If it is not a usable
// answer, fit says why and closes its body.
func fit(resp *http.Response) (*http.Response, error) {
	var err error
	if s := resp.StatusCode; s < http.StatusOK || s > 599 {
		err = fmt.Errorf("%w: status %d", errUnfit, s)
	}
	// Some providers compress the answer although they were asked not to.
	// Clients do not expect that, and a compressed answer cannot be metered.
	switch enc := strings.ToLower(strings.TrimSpace(resp.Header.Get("Content-Encoding"))); enc {
	case "", "identity":
	case "gzip", "x-gzip":
		resp.Body = &unpacked{ReadCloser: resp.Body}
	default:
		err = fmt.Errorf("%w: its answer is packed with %q, although it was asked not to pack it", errUnfit, clip(enc))
	}
	if err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// unpacked reads a gzip body. It decompresses in pieces, so a decompression
// bomb is only a long answer.
type unpacked struct {
	io.ReadCloser

	z *gzip.Reader // nil: nothing was read yet
}

// Read implements io.Reader.
func (u *unpacked) Read(p []byte) (n int, err error) {
	if u.z == nil {
		if u.z, err = gzip.NewReader(u.ReadCloser); err != nil {
			u.z = nil
			return 0, err
		}
	}
	return u.z.Read(p)
}

// moved returns the error for a redirect. Redirects are not followed, because
// the key and the conversation are only for the address that the experiment
// names.
func (s *session) moved(resp *http.Response) error {
	to, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || to.Host == "" {
		return fmt.Errorf("%w: status %d", errUnfit, resp.StatusCode)
	}
	return fmt.Errorf("%w: status %d, which leads to %q: if that is right, make it the base_url", errUnfit, resp.StatusCode, clip(string(s.secrets.clean([]byte(to.Scheme+"://"+to.Host+to.Path)))))
}
