package scripted

import (
	"strings"
	"testing"
)

const inOrder = `
replies:
  - {text: one}
  - {error: {status: 429, retry_after: 2s}, times: 2}
  - {text: two}
  - {when: {last: "(?i)oops"}, text: sorry, times: 1}
  - {when: {turn: 7, tool: bash}, text: seven}
`

func TestRepliesAreChosenByTheRequest(t *testing.T) {
	t.Parallel()
	s, err := Parse([]byte(inOrder))
	if err != nil {
		t.Fatal(err)
	}
	session := s.Session()
	for _, tt := range []struct {
		talk Talk
		want string
	}{
		{Talk{}, "one"},
		{Talk{}, "one"}, // sent again, answered again
		{Talk{Turn: 1}, "429"},
		{Talk{Turn: 1}, "429"},
		{Talk{Turn: 1}, "two"},
		{Talk{Turn: 1, Last: "OOPS"}, "sorry"},
		{Talk{Turn: 1, Last: "OOPS"}, "two"},
		{Talk{Turn: 7}, "no reply"},
		{Talk{Turn: 7, Tools: []string{"bash"}}, "seven"},
		{Talk{Turn: 2}, "no reply"},
	} {
		r, err := session.next(tt.talk)
		got := ""
		switch {
		case err != nil:
			got = err.Error()
		case r.Error != nil:
			got = "429"
		default:
			got = r.Text
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%+v: %q, want %q", tt.talk, got, tt.want)
		}
	}
	if r, err := s.Session().next(Talk{Turn: 1}); err != nil || r.Error == nil {
		t.Error("another session does not begin anew")
	}
}

func TestScriptsThatAreWrong(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   string
		want string
	}{
		{in: "", want: "no replies"},
		{in: "replies:\n  - {txt: hi}\n", want: "txt"},
		{in: "replies:\n  - {break: sometimes}\n", want: "drop, cut"},
		{in: "replies:\n  - {error: {status: 200}}\n", want: "400 to 599"},
		{in: "replies:\n  - {delay: 5}\n", want: "200ms"},
		{in: "replies:\n  - {when: {last: \"(\"}}\n", want: "when last"},
		{in: "replies:\n  - {tools: [{arguments: {}}]}\n", want: "no name"},
		{in: "# hm\nreplies:\n  - {text: a}\n  # and\n  - text: b\n    break: sometimes\n", want: "line 5, reply 2: break"},
		{in: "replies:\n  - {text: a}\n  - text: b\n    delay: soon\n", want: "line 4: duration is \"soon\""},
		{in: "replies:\n  - {usage: {input: 5, output: -1}}\n", want: "line 2, reply 1: usage cannot be negative"},
		{in: "replies:\n  - {usage: {input: 9000000000000000000}}\n", want: "larger than any"},
	} {
		if _, err := Parse([]byte(tt.in)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Parse(%q) = %v, want an error with %q", tt.in, err, tt.want)
		}
	}
}
