package gateway

import "hash/maphash"

// known is a request whose tokens the provider has told, by digests of its
// parts: what the next one has in common with it is known, too.
type known struct {
	part       int // bytes of each part but the last
	head, tail []uint64
	size       int   // of the request, in bytes
	inline     int64 // bytes of files in it
	input      int64 // tokens
}

// Bounds of what is kept of a request: how small a part is at least, in bytes,
// and how many there are at most, counted from each end.
const (
	minPart  = 64
	maxParts = 4096
)

// seam is how many tokens the places can come to at which a request is cut.
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

// fresh is how many bytes of b are neither where k begins nor where it ends,
// and so may be any tokens.
func (k *known) fresh(b []byte) int {
	most := min(k.size, len(b)) // what is at both ends counts once
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

// most is how many tokens of text b has at most, of which so many bytes are
// files, when so many bytes make one token.
func (k *known) most(b []byte, inline, perToken int64) int64 {
	text := int64(len(b)) - inline
	if k.size == 0 {
		return text / perToken
	}
	// Files that are new are no text.
	fresh := min(text, max(0, int64(k.fresh(b))-max(0, inline-k.inline)))
	return min(text, k.input+seam+fresh/perToken)
}
