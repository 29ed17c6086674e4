package wire

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/proto/v1/agentpb"
)

func TestWordsHaveNoDefault(t *testing.T) {
	t.Parallel()
	if got, err := Word[string]("role", Number[agentpb.AgentRole]("user")); got != "user" || err != nil {
		t.Errorf("user comes back as %q, %v", got, err)
	}
	for n, want := range map[agentpb.AgentRole]string{0: "role is not given", 99: "role 99 is not known"} {
		if _, err := Word[string]("role", n); !errors.Is(err, fault.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%d is %v, want %q", n, err, want)
		}
	}
	if Number[agentpb.AgentRole]("green") != 0 || Number[agentpb.AgentRole]("") != 0 {
		t.Error("a word that is not in the vocabulary has a number")
	}
}

func TestTimesDoNotBecomeNone(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, -1: -1, -time.Millisecond: -1, time.Hour: 3_600_000,
	} {
		if got := Millis(d); got != want {
			t.Errorf("Millis(%d) = %d, want %d", d, got, want)
		}
	}
	if got := Duration(math.MaxInt64); got <= 0 {
		t.Errorf("the longest time overflows to %v", got)
	}
	if got := Duration(1500); got != 1500*time.Millisecond {
		t.Errorf("Duration(1500) = %v", got)
	}
}

func TestLinesAreWholeCharacters(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][]string{
		"": {""}, "a": {"a"}, "a\r\n": {"a"}, "a\xffb": {"a\uFFFDb"},
	} {
		if got := Lines(in); !slices.Equal(got, want) {
			t.Errorf("Lines(%q) = %q, want %q", in, got, want)
		}
	}
	in := "x" + strings.Repeat("€", MaxLine)
	pieces := Lines(in)
	if strings.Join(pieces, "") != in || len(pieces) < 3 {
		t.Errorf("%d pieces do not add up to the line", len(pieces))
	}
	for _, p := range pieces {
		if len(p) > MaxLine || strings.ContainsRune(p, '\uFFFD') {
			t.Errorf("a piece of %d bytes is too long or cut in a character", len(p))
		}
	}
}
