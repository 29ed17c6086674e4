package suggest_test

import (
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/suggest"
)

func TestWordIsASlipAway(t *testing.T) {
	t.Parallel()
	modes := []string{"live", "restarted", "image", "separate", "copies"}
	for _, tt := range []struct{ name, want string }{
		{"liv", "live"},
		{"LIVE", "live"},
		{"lvie", "live"},
		{"restart", "restarted"},
		{"separete", "separate"},
		{"", ""},
		{"x", ""},
		{"elsewhere", ""},
		{strings.Repeat("live", 100), ""},
	} {
		if got := suggest.Word(tt.name, modes); got != tt.want {
			t.Errorf("Word(%q) = %q, want %q", tt.name, got, tt.want)
		}
	}
	if got := suggest.Word("a\x1bc", []string{"a\x1bb"}); got != "" {
		t.Errorf("a word with an escape is suggested: %q", got)
	}
}

func TestHintSaysWhatThereIs(t *testing.T) {
	t.Parallel()
	many := strings.Split("abcdefghijklmnopqrstuvwxyz", "")
	for _, tt := range []struct {
		name        string
		known       []string
		hint, after string
	}{
		{"nnoe", []string{"none", "public"}, ` Did you mean "none"?`, `: did you mean "none"?`},
		{"wide", []string{"none", "public"}, " Known: none, public.", "; known: none, public"},
		{"wide", many, "", ""},
		{"wide", nil, "", ""},
	} {
		if got := suggest.Hint(tt.name, tt.known); got != tt.hint {
			t.Errorf("Hint(%q, %q) = %q, want %q", tt.name, tt.known, got, tt.hint)
		}
		if got := suggest.After(tt.name, tt.known); got != tt.after {
			t.Errorf("After(%q, %q) = %q, want %q", tt.name, tt.known, got, tt.after)
		}
	}
}
