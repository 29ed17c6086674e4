package gateway

import (
	"bytes"

	"github.com/berth-eval/berth/plugins/dialect"
)

// known is a request whose number of tokens the provider reported. The parts that the
// next request has in common with it are then known, too.
type known struct {
	text  []byte
	input int64 // tokens of all of it
}

// seam is how many extra tokens cutting a request into parts can cause.
const seam = 8

// fresh returns how many bytes of b are in neither the beginning nor the end of
// k, so that their number of tokens is unknown.
func (k *known) fresh(b []byte) int {
	old := k.text
	for len(old) > 0 && len(b) > 0 && old[0] == b[0] {
		old, b = old[1:], b[1:]
	}
	for len(old) > 0 && len(b) > 0 && old[len(old)-1] == b[len(b)-1] {
		old, b = old[:len(old)-1], b[:len(b)-1]
	}
	return len(b)
}

// most returns the largest possible number of tokens in the text b when perToken
// bytes make one token.
func (k *known) most(b []byte, perToken int64) int64 {
	text := int64(len(b))
	if len(k.text) == 0 {
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
	most := beyond * max(x.limits().context, x.worst.Input+x.worst.Output)
	return u.Input <= most && u.Output <= most
}
