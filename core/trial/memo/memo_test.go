package memo_test

import (
	"errors"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/memo"
)

func TestAnAnswerIsRememberedWhenItLetsTheAttemptGoOn(t *testing.T) {
	t.Parallel()
	var m memo.Memo
	one, other := record.PluginUsed{Kind: "agent", Name: "a", Digest: "sha256:1"}, record.PluginUsed{Kind: "agent", Name: "a", Digest: "sha256:2"}
	asked := 0
	ask := func(answer int, err error) func() (int, error) {
		return func() (int, error) { asked++; return answer, err }
	}
	good := func(answer int) bool { return answer > 0 }
	broken := errors.New("broken")
	for _, tt := range []struct {
		name  string
		memo  *memo.Memo
		of    record.PluginUsed
		about string
		say   int
		err   error
		want  int
		asked int // in all, after it
	}{
		{"an error is not", &m, one, "q", 1, broken, 1, 1},
		{"a refusal is not", &m, one, "q", 0, nil, 0, 2},
		{"asked for the first time", &m, one, "q", 1, nil, 1, 3},
		{"asked again", &m, one, "q", 2, nil, 1, 3},
		{"another question", &m, one, "r", 3, nil, 3, 4},
		{"another build of the plugin", &m, other, "q", 4, nil, 4, 5},
		{"a plugin without a digest", &m, record.PluginUsed{Kind: "agent", Name: "a"}, "q", 5, nil, 5, 6},
		{"nothing to remember with", nil, one, "q", 6, nil, 6, 7},
	} {
		got, err := memo.Answer(tt.memo, tt.memo.Key(tt.of, tt.about), good, ask(tt.say, tt.err))
		if got != tt.want || !errors.Is(err, tt.err) || asked != tt.asked {
			t.Errorf("%s: %d, %v after %d questions, want %d after %d", tt.name, got, err, asked, tt.want, tt.asked)
		}
	}
}
