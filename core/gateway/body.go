package gateway

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
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
