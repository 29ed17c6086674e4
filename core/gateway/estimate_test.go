package gateway

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway/ledger"
	"github.com/berth-eval/berth/core/models"
)

// Never less is taken for new than is, and little more.
func TestWhatIsNewOfARequest(t *testing.T) {
	t.Parallel()
	text := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte('a' + rand.IntN(26)) //nolint:gosec // any text will do
		}
		return b
	}
	for range 300 {
		old := text(rand.IntN(100_000)) //nolint:gosec // likewise
		from := 0
		if len(old) > 0 {
			from = rand.IntN(len(old)) //nolint:gosec // likewise
		}
		to := min(len(old), from+rand.IntN(500))                                     //nolint:gosec // likewise
		now := bytes.Join([][]byte{old[:from], text(rand.IntN(300)), old[to:]}, nil) //nolint:gosec // likewise
		k := knownOf(old, 0, 0)
		head, tail := 0, 0
		for head < min(len(old), len(now)) && old[head] == now[head] {
			head++
		}
		for tail < min(len(old), len(now))-head && old[len(old)-1-tail] == now[len(now)-1-tail] {
			tail++
		}
		least := len(now) - head - tail
		if got := k.fresh(now); got < least || got > least+2*k.part {
			t.Fatalf("of %d bytes, once %d, %d are taken for new; %d are", len(now), len(old), got, least)
		}
	}
	k := knownOf(text(1000), 0, 5)
	if got := k.fresh(nil); got != 0 {
		t.Errorf("of nothing %d bytes are new", got)
	}
	if k = knownOf(nil, 0, 0); k.fresh([]byte("abc")) != 3 {
		t.Error("what follows nothing is not new")
	}
}

// A request that is as long as the last one, and another, is not taken for it:
// long spaces come to few tokens.
func TestAnotherRequestOfTheSameLengthHasNoRoom(t *testing.T) {
	t.Parallel()
	m := scripted(t, "replies:\n  - {text: x, usage: {input: 50, output: 1}}\n  - {text: x, usage: {input: 60, output: 1}}\n")
	limit := int64(120_000)
	b := start(t, m, func(_ *cell.Model, o *Options, _ *models.Spec) { o.Run = ledger.Limit{Tokens: &limit} })
	ask := func(text string) int {
		return b.ask(t.Context(), t, "/v1/messages", `{"max_tokens":10,"messages":[{"role":"user","content":"`+text+`"}]}`).status
	}
	spaces := strings.Repeat(" ", 110_000)
	if got := ask(spaces); got != http.StatusOK {
		t.Fatalf("the first: %d", got)
	}
	for range 50 { // what is known costs little, so it fits again and again
		if got := ask(spaces + "and more"); got != http.StatusOK {
			t.Fatalf("the same, and more: %d", got)
		}
	}
	if got := ask(strings.Repeat("漢x", 30_000)); got != http.StatusForbidden {
		t.Errorf("another of the same length: %d", got)
	}
}
