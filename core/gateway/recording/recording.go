// Package recording keeps what went between a client and a model, each body once,
// compressed and named by its content, and plays it again: to a request that is
// the same the same answer, byte for byte, and to any other none, but where it
// differs.
//
// It must not know a provider, a budget or a socket.
package recording

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/google/renameio/v2"
	"github.com/klauspost/compress/zstd"

	"github.com/berth-eval/berth/core/untrusted"
)

// Entry is what a line of the record says of the bodies of an exchange.
type Entry struct {
	Kind    string `json:"kind"`            // generate or count
	Path    string `json:"path"`            // at the provider, without its address
	Match   string `json:"match"`           // digest of the request without what may differ from run to run
	Request string `json:"request"`         // digest of the body that went to the provider
	Reply   string `json:"reply,omitempty"` // digest of what came back, as far as it came; empty: nothing
	Type    string `json:"content_type,omitempty"`
}

// The kinds of exchanges.
const (
	KindGenerate = "generate"
	KindCount    = "count"
)

// blobs is the folder of the bodies.
const blobs = "blobs"

// Digest names a body.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// DigestOf names what write writes.
func DigestOf(write func(io.Writer) error) (string, error) {
	h := sha256.New()
	if err := write(h); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// Room is how many bytes of bodies may be kept, as they are on the disk. Once a
// body does not fit, no further one is kept. Safe for concurrent use.
type Room struct {
	left atomic.Int64
	full atomic.Bool
}

// NewRoom is room for n bytes.
func NewRoom(n int64) *Room {
	r := &Room{}
	r.left.Store(n)
	return r
}

func (r *Room) take(n int) bool {
	if r.left.Add(-int64(n)) < 0 {
		r.full.Store(true)
	}
	return !r.full.Load()
}

// maxBody is how large a body may be, unpacked: 256 MiB.
const maxBody = 256 << 20

var encoder = sync.OnceValues(func() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2), zstd.WithWindowSize(1<<20))
})

var decoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxBody), zstd.WithDecoderConcurrency(2))
})

func place(dir, digest string) string {
	return filepath.Join(dir, blobs, strings.TrimPrefix(digest, "sha256:")+".zst")
}

// Store keeps a body in dir, if there is room, and returns its digest. Safe for
// concurrent use.
func Store(dir string, body []byte, room *Room) (digest string, kept bool, err error) {
	digest = Digest(body)
	path := place(dir, digest)
	if _, missing := os.Stat(path); missing == nil {
		return digest, true, nil
	}
	if room.full.Load() {
		return digest, false, nil
	}
	e, err := encoder()
	if err != nil {
		return "", false, fmt.Errorf("record exchange: %w", err)
	}
	packed := e.EncodeAll(body, nil)
	if !room.take(len(packed)) {
		return digest, false, nil
	}
	if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
		err = renameio.WriteFile(path, packed, 0o644, renameio.WithTempDir(filepath.Dir(path)))
	}
	if err != nil {
		return "", false, fmt.Errorf("record exchange: %w", err)
	}
	return digest, true, nil
}

// Fetch is a body that Store kept, checked against its name.
func Fetch(dir, digest string) ([]byte, error) {
	raw := strings.TrimPrefix(digest, "sha256:")
	if len(raw) != 2*sha256.Size || strings.Trim(raw, "0123456789abcdef") != "" {
		return nil, fmt.Errorf("recorded exchange: %q is no digest", digest)
	}
	packed, err := untrusted.Read(dir, blobs+"/"+raw+".zst", maxBody)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("recorded exchange %s: its body is not there: it was removed, or the record of the attempt was full", digest)
	}
	if err != nil {
		return nil, fmt.Errorf("recorded exchange: %w", err)
	}
	d, err := decoder()
	if err != nil {
		return nil, err
	}
	body, err := d.DecodeAll(packed, nil)
	if err != nil {
		return nil, fmt.Errorf("recorded exchange %s: %w", digest, err)
	}
	if Digest(body) != digest {
		return nil, fmt.Errorf("recorded exchange %s: the file was changed", digest)
	}
	return body, nil
}
