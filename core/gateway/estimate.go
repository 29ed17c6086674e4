package gateway

import (
	"bytes"
	"hash/maphash"

	"github.com/berth-eval/berth/plugins/dialect"
)

// known is a request whose number of tokens the provider reported, with digests
// of its parts. The parts that the next request has in common with it are then
// known, too.
type known struct {
	part       int // bytes of each part except the last
	head, tail []uint64
	size       int   // of the text of the request, in bytes
	input      int64 // tokens of all of it
}

// Bounds of the digests of a request: the smallest size of a part in bytes, and
// the largest number of parts, counted from each end.
const (
	minPart  = 64
	maxParts = 4096
)

// seam is how many extra tokens cutting a request into parts can cause.
const seam = 8

func knownOf(b []byte, input int64) known {
	k := known{part: max(minPart, len(b)/maxParts+1), size: len(b), input: input}
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

// most returns the largest possible number of tokens in the text b when perToken
// bytes make one token.
func (k *known) most(b []byte, perToken int64) int64 {
	text := int64(len(b))
	if k.size == 0 {
		return text / perToken
	}
	return min(text, k.input+seam+int64(k.fresh(b))/perToken)
}

// text returns the request without its media.
func (x *exchange) text() []byte {
	left := x.body.Bytes()
	if len(x.facts.Media.Data) == 0 {
		return left
	}
	var text []byte
	for _, data := range x.facts.Media.Data { // in the order of the request
		if before, after, found := bytes.Cut(left, data); found {
			text, left = append(text, before...), after
		}
	}
	return append(text, left...)
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
