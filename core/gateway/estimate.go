package gateway

import (
	"hash/maphash"

	"github.com/berth-eval/berth/plugins/dialect"
)

// known is a request whose number of tokens the provider reported, with digests
// of its parts. The parts that the next request has in common with it are then
// known, too.
type known struct {
	part       int // bytes of each part except the last
	head, tail []uint64
	size       int   // of the request, in bytes
	inline     int64 // bytes of files in it
	input      int64 // tokens
}

// Bounds of the digests of a request: the smallest size of a part in bytes, and
// the largest number of parts, counted from each end.
const (
	minPart  = 64
	maxParts = 4096
)

// seam is how many extra tokens cutting a request into parts can cause.
const seam = 8

func knownOf(b []byte, inline, input int64) known {
	k := known{part: max(minPart, len(b)/maxParts+1), size: len(b), inline: inline, input: input}
	k.head, k.tail = make([]uint64, 0, len(b)/k.part), make([]uint64, 0, len(b)/k.part)
	for n := k.part; n <= len(b); n += k.part {
		k.head = append(k.head, maphash.Bytes(seed, b[n-k.part:n]))
		k.tail = append(k.tail, maphash.Bytes(seed, b[len(b)-n:len(b)-n+k.part]))
	}
	return k
}

// fresh returns how many bytes of b are in neither the beginning nor the end of
// k, so that their number of tokens is unknown.
func (k *known) fresh(b []byte) int {
	most := min(k.size, len(b)) // bytes at both ends count once
	head := 0
	for _, h := range k.head {
		if head+k.part > most || maphash.Bytes(seed, b[head:head+k.part]) != h {
			break
		}
		head += k.part
	}
	tail := 0
	for _, h := range k.tail {
		n := tail + k.part
		if head+n > most || maphash.Bytes(seed, b[len(b)-n:len(b)-tail]) != h {
			break
		}
		tail = n
	}
	return len(b) - head - tail
}

// most returns the largest possible number of text tokens in b, of which inline
// bytes are files, when perToken bytes make one token.
func (k *known) most(b []byte, inline, perToken int64) int64 {
	text := int64(len(b)) - inline
	if k.size == 0 {
		return text / perToken
	}
	// New files are not text.
	fresh := min(text, max(0, int64(k.fresh(b))-max(0, inline-k.inline)))
	return min(text, k.input+seam+fresh/perToken)
}

// beyond bounds the usage that a provider may report, as a multiple of the
// possible usage of a request and its answer. A higher number is not believed.
// Providers may work in several rounds.
const beyond = 16

// believed reports whether the request can have used that much.
func (x *exchange) believed(u dialect.Usage) bool {
	most := beyond * max(x.limits().Context, x.worst.Input+x.worst.Output)
	return u.Input <= most && u.Output <= most
}
