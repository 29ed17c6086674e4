// Package recording stores the exchanges between a client and a model. Each body
// is stored once, compressed and named by its digest.
//
// It must not know providers, budgets or sockets.
package recording

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/google/renameio/v2"
	"github.com/klauspost/compress/zstd"

	"github.com/berth-eval/berth/plugins/untrusted"
)

// Entry is the part of a line of the record that is about the bodies of an
// exchange.
type Entry struct {
	Kind    string `json:"kind"`            // generate or count
	Path    string `json:"path"`            // at the provider, without its address
	Match   string `json:"match"`           // digest of the request without the members that may differ between runs
	Request string `json:"request"`         // digest of the body that was sent to the provider
	Reply   string `json:"reply,omitempty"` // digest of the answer as far as it was received; empty: nothing was received
	Type    string `json:"content_type,omitempty"`
}

// The kinds of exchanges.
const (
	KindGenerate = "generate"
	KindCount    = "count"
)

// blobs is the folder of the bodies.
const blobs = "blobs"

// Digest returns the name of a body.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Room is how many bytes of compressed bodies may still be stored. Once a body
// does not fit, no further one is stored. Safe for concurrent use.
type Room struct {
	left atomic.Int64
	full atomic.Bool
}

// NewRoom makes room for n bytes.
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

// maxBody is the largest size of a decompressed body: 256 MiB.
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

// Store stores a body in dir if there is room, and returns its digest. Safe for
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

// Fetch returns a body that Store stored, verified by its digest.
func Fetch(dir, digest string) ([]byte, error) {
	raw := strings.TrimPrefix(digest, "sha256:")
	if len(raw) != 2*sha256.Size || strings.Trim(raw, "0123456789abcdef") != "" {
		return nil, fmt.Errorf("recorded exchange: %q is not a digest", digest)
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
