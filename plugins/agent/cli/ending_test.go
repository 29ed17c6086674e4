package cli

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/sandbox"
)

func TestWhatComesOfATurn(t *testing.T) {
	t.Parallel()
	left := func(code int) Exit { return Exit{Result: sandbox.Result{ExitCode: code}, Errors: " last words\n"} }
	killed := Exit{Result: sandbox.Result{ExitCode: -1, Signal: syscall.SIGKILL}}
	for _, tt := range []struct {
		name   string
		x      Exit
		e      Ending
		end    agent.End // empty: the model is down
		reason string
		claims bool
	}{
		{name: "nothing is wrong", e: Ending{Reason: "stop"}, end: agent.Done, reason: "stop", claims: true},
		{name: "an exit code", x: left(3), end: agent.Crashed, reason: "the CLI ended with exit code 3: last words", claims: true},
		{name: "a signal", x: killed, end: agent.Crashed, reason: "the CLI was killed by signal 9 (killed)", claims: true},
		{name: "no end", x: left(0), e: Ending{Open: "no result"}, end: agent.Crashed, reason: "the CLI ended with exit code 0: no result: last words"},
		{name: "its limit, whatever else it says", x: left(1), e: Ending{Limit: true, Wrong: "503"}, end: agent.MaxSteps, reason: "max_turns is reached", claims: true},
		{name: "a refusal", e: Ending{Refused: "refusal"}, end: agent.Refused, reason: "refusal", claims: true},
		{name: "a refusal as an error", x: left(1), e: Ending{Wrong: "400 content_filter"}, end: agent.Refused, reason: "400 content_filter", claims: true},
		{name: "a connection that was refused", e: Ending{Wrong: "connect ECONNREFUSED 127.0.0.1:1"}, reason: "ECONNREFUSED"},
		{name: "a connection that was refused, in Python", e: Ending{Wrong: "ConnectionRefusedError: Connection refused"}, reason: "refused"},
		{name: "a status in words", e: Ending{Wrong: "API Error (status 529): overloaded"}, reason: "529"},
		{name: "a request that was wrong, in words", e: Ending{Wrong: "HTTP 400: bad connection header"}, end: agent.Crashed, reason: "the CLI ended with exit code 0: HTTP 400: bad connection header", claims: true},
		{name: "a status", e: Ending{Wrong: "oh", Status: new(503)}, reason: "oh"},
		{name: "nobody answered", e: Ending{Wrong: "oh", Status: new(0)}, reason: "oh"},
		{name: "a status that wins over words", e: Ending{Wrong: "network", Status: new(422)}, end: agent.Crashed, reason: "the CLI ended with exit code 0: network", claims: true},
		{name: "an empty answer", e: Ending{Wrong: "Model stream ended with empty response text."}, end: agent.Crashed, reason: "the CLI ended with exit code 0: Model stream ended with empty response text.", claims: true},
		{name: "a program that goes on", x: Exit{Runs: true}, e: Ending{Wrong: "no disk"}, end: agent.Crashed, reason: "no disk", claims: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newTranscript("m", "", "")
			b.Message(Message{Text: "said", Usage: Tokens(3, 2, 1)})
			y, err := b.Judge(tt.x, tt.e)
			if tt.end == "" {
				if !errors.Is(err, agent.ErrModel) || !strings.Contains(err.Error(), tt.reason) {
					t.Errorf("%+v, %v; want that the model is down: %q", y, err, tt.reason)
				}
				return
			}
			if err != nil || y.End != tt.end || y.Reason != tt.reason || (y.Claim != nil) != tt.claims {
				t.Errorf("%+v, %v; want %s, %q, claims %t", y, err, tt.end, tt.reason, tt.claims)
			}
			if want := map[bool]string{true: "", false: "said"}[tt.end == agent.Crashed]; y.Message != want {
				t.Errorf("message %q, want %q", y.Message, want)
			}
		})
	}
}

// What a driver prints is read, and each turn has its own end and its own use.
func TestWhatADriverPrints(t *testing.T) {
	t.Parallel()
	b := newTranscript("m", "", "")
	turn := func(lines ...string) (agent.Yield, []string) {
		r := &recorded{}
		b.begin(r)
		d := Driver(b)
		for _, l := range lines {
			d.Line([]byte(l))
		}
		b.end()
		y, err := d.End(Exit{})
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, s := range r.steps {
			said = append(said, s.Message.Text+string(s.Extra))
		}
		return y, said
	}
	y, said := turn(
		`{"type":"session","id":"s"}`, `no JSON`, `{"type":"later","text":7}`,
		`{"type":"message","text":"a","thinking":"t","calls":[{"id":"c","name":"sh","arguments":{"x":1}}],"usage":{"input_tokens":5,"output_tokens":1}}`,
		`{"type":"result","id":"c","text":"r","failed":true}`, `{"type":"message","text":"b","stop":"stop","usage":{"input_tokens":7,"output_tokens":2}}`, `{"type":"end","reason":"stop"}`,
	)
	if y.End != agent.Done || y.Message != "b" || y.Reason != "stop" || *y.Claim.Input != 12 || *y.Claim.Output != 3 || strings.Join(said, " ") != `a b{"stop_reason":"stop"}` || b.Session != "s" {
		t.Errorf("%+v, %q, session %q", y, said, b.Session)
	}
	if y, _ = turn(`{"type":"message","text":"c"}`); y.End != agent.Crashed || y.Reason != "the CLI ended with exit code 0: the driver ended without an end event" {
		t.Errorf("without an end: %+v", y)
	}
	if y, _ = turn(`{"type":"end","limit":true}`); y.End != agent.MaxSteps || y.Message != "" || y.Claim != nil {
		t.Errorf("a limit: %+v", y)
	}
	if y, _ = turn(`{"type":"end","text":"x","refused":7}`); y.End != agent.Done || y.Message != "x" {
		t.Errorf("an odd field: %+v", y)
	}
}

// What a session has used by now becomes what each turn has used.
func TestATurnsUseIsTheDifference(t *testing.T) {
	t.Parallel()
	b := newTranscript("m", "", "")
	for i, tt := range []struct{ total, want int64 }{{10, 10}, {25, 15}, {5, 5}} { // which began anew
		b.begin(&recorded{})
		b.UsedSoFar(Tokens(tt.total, 0, tt.total))
		if y, err := b.Judge(Exit{}, Ending{}); err != nil || *y.Claim.Input != tt.want {
			t.Errorf("turn %d: %d, %v; want %d", i, *y.Claim.Input, err, tt.want)
		}
	}
}

// Options without a value are left out, and so are files without a text.
func TestAStartHoldsWhatIsGiven(t *testing.T) {
	t.Parallel()
	s := &Start{Argv: []string{"x"}}
	s.Options("--a", "1", "--b", "", "--c", s.Text("d/c.md", "text"), "--d", s.Text("d/d.md", ""), "--e", s.JSON("e.json", map[string]int{"n": 1}))
	if got := strings.Join(s.Argv, " "); got != "x --a 1 --c "+Home+"/d/c.md --e "+Home+"/e.json" || len(s.Files) != 2 || s.Files[1].Data != `{"n":1}` {
		t.Errorf("%s, files %+v", got, s.Files)
	}
	if s.Marshal(func() {}); !errors.Is(s.err, agent.ErrBadConfig) {
		t.Errorf("what is not JSON: %v", s.err)
	}
}
