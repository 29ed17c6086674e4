package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/model/chat"
	"github.com/berth-eval/berth/plugins/model/chat/chattest"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/relay"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
	"github.com/berth-eval/berth/plugins/verifier"
)

func TestMain(m *testing.M) { os.Exit(sandboxtest.Main(m.Run, sandboxtest.Inside{})) }

// shell makes a sandbox of the supervisor's own and returns it with its address.
// Its commands have a variable with a key.
func shell(t *testing.T, o sandboxtest.Options) (*sandboxtest.Box, string) {
	t.Helper()
	box := sandboxtest.Start(t, o)
	dir, err := os.MkdirTemp("", "sv") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	r, err := relay.New(filepath.Join(dir, "s"), relay.Of(box.Sandbox, host.Session{ID: "judge", Env: []string{"SECRET_KEY=MARK-KEY"}, Grading: true}))
	if err == nil {
		err = r.Open(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.Shut(context.WithoutCancel(t.Context())) // the sandbox may be gone
		_ = os.RemoveAll(dir)
	})
	return box, r.Address()
}

func command(script string) chat.Call {
	arguments, err := json.Marshal(map[string]string{"command": script})
	if err != nil {
		panic(err)
	}
	return chat.Call{ID: "1", Name: "run", Arguments: arguments}
}

// What a command does, its model learns in bounded time and size, and the next
// command works.
func TestCommandsInTheSupervisorsOwnSandbox(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, script string
		arguments    string // instead of the script
		want         []string
		not          string
		failed       bool
	}{
		{name: "a file of the view", script: "cat attempt/artifacts/price.txt; pwd; echo oops >&2; exit 3", want: []string{"Exit code 3.", "41\n", "/view\n", "oops"}},
		{name: "a key of the task", script: `echo "[$SECRET_KEY]"; tr '\0' '\n' < /proc/self/environ; tr '\0' '\n' < /proc/$PPID/environ; echo`, want: []string{"[]"}, not: "MARK-KEY"},
		{name: "never ends", script: "echo begun; sleep 1000 & setsid sleep 1000 & sleep 1000", want: []string{"It was ended after 2s.", "begun"}},
		{name: "100 MB", script: "head -c 100000000 /dev/zero | tr '\\0' x; sleep 1000", want: []string{"It was ended, because it printed more than 64 MiB.", "xxx", "bytes"}},
		{name: "a long output", script: "echo first; seq 100000; echo last", want: []string{"Exit code 0.", "first", "last\n", "bytes"}},
		{name: "a fork bomb", script: "f() { f | f & }; f; sleep 1000", want: []string{"Output:"}},
		{name: "a signal", script: "kill -9 $$", want: []string{"It was ended by a signal: killed."}},
		{name: "no text", script: `printf '\377\000ok'`, want: []string{"Exit code 0.", "ok"}},
		{name: "no such program", script: "libreoffice --headless", want: []string{"Exit code 127."}},
		{name: "no command", script: " ", want: []string{"give a command"}, failed: true},
		{name: "other arguments", arguments: `["ls"]`, want: []string{"not as the tool describes"}, failed: true},
		{name: "a network", script: "ls /sys/class/net; cat < /dev/tcp/1.1.1.1/80", want: []string{"Output:"}, not: "eth0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, address := shell(t, sandboxtest.Options{Processes: 200})
			r := verifier.Request{View: lay(t, map[string]string{"attempt/artifacts/price.txt": "41\n"}), Shell: address, Env: map[string]string{"SECRET_KEY": "MARK-KEY"}}
			b := bench{request: &r, limit: limitOf(tt.script)}
			defer b.close()
			call := command(tt.script)
			if tt.arguments != "" {
				call.Arguments = json.RawMessage(tt.arguments)
			}
			res, err := b.do(t.Context(), call)
			if err != nil || res.Failed != tt.failed || res.CallID != "1" || len(res.Text) > maxShown+500 {
				t.Errorf("%d bytes, failed %v, %v", len(res.Text), res.Failed, err)
			}
			for _, want := range tt.want {
				if !strings.Contains(res.Text, want) {
					t.Errorf("%q is not in %.500s", want, res.Text)
				}
			}
			if tt.not != "" && strings.Contains(res.Text, tt.not) {
				t.Errorf("%q is in %s", tt.not, res.Text)
			}
			b.limit = 30 * time.Second
			if res, err = b.do(t.Context(), command("echo alive; cat /proc/[0-9]*/comm 2> /dev/null | grep -c sleep")); err != nil || !strings.Contains(res.Text, "alive\n0\n") {
				t.Errorf("afterwards: %s, %v", res.Text, err)
			}
		})
	}
}

// What the model writes in its sandbox is there in the next round, and /view shows
// that round's files alone.
func TestTheSupervisorsOwnSandboxIsKept(t *testing.T) {
	t.Parallel()
	_, address := shell(t, sandboxtest.Options{})
	for round, tt := range []struct{ file, script, want string }{
		{"one.txt", "ls attempt/artifacts; echo noted > /tmp/state; touch /view/mine", "one.txt\n"},
		{"two.txt", "ls attempt/artifacts; cat /tmp/state; ls /view", "two.txt\nnoted\nattempt\ninstruction.md\nreferences\n"},
	} {
		r := verifier.Request{
			View: lay(t, map[string]string{"attempt/artifacts/" + tt.file: "x"}), Round: round + 1, RoundsLeft: 1, Shell: address, Config: json.RawMessage(`{"tools":"sandbox"}`),
		}
		_, s, err := askOnce(t, r, func(q chattest.Question) chattest.Answer {
			if q.Turns == 0 {
				return chattest.Answer{Calls: []chat.Call{command(tt.script)}}
			}
			quoted, _ := json.Marshal("Exit code 0. Output:\n" + tt.want) //nolint:errchkjson // a text
			if !strings.Contains(string(q.Body), string(quoted)) {
				t.Errorf("round %d: %s is not in %s", round+1, quoted, q.Body)
			}
			return chattest.Answer{Text: judged("continue", 0.4, "")}
		})
		if err != nil {
			t.Fatal(err)
		}
		if first := string(s.Questions()[0].Body); !strings.Contains(first, `"run"`) || !strings.Contains(first, "a copy of the folder") {
			t.Errorf("the model is not told of its tool: %s", first)
		}
	}
}

// Commands run as the user of the verification, who owns the copy of the view.
func TestCommandsOfAnotherUser(t *testing.T) {
	t.Parallel()
	_, address := shell(t, sandboxtest.Options{ManyIDs: true})
	r := verifier.Request{View: lay(t, nil), Shell: address, User: "alice"}
	for range 2 { // the second judgement replaces what the first one left
		b := bench{request: &r}
		res, err := b.do(t.Context(), command("id -un; cat references/eval_rule.md; ls; echo mine > attempt/mine"))
		b.close()
		if want := "Exit code 0. Output:\nalice\nRUBRIC: the price is 42.attempt\ninstruction.md\nreferences\n"; err != nil || res.Text != want {
			t.Errorf("%q, %v; want %q", res.Text, err, want)
		}
	}
}

// A view that does not fit into the sandbox is what the agent left: its model learns
// that, and nothing about this machine.
func TestAViewThatDoesNotFit(t *testing.T) {
	t.Parallel()
	_, address := shell(t, sandboxtest.Options{SizeMiB: 16})
	r := verifier.Request{View: lay(t, map[string]string{"attempt/artifacts/large": strings.Repeat("x", 32<<20)}), Shell: address}
	b := bench{request: &r}
	defer b.close()
	for range 2 {
		res, err := b.do(t.Context(), command("true"))
		if err != nil || !res.Failed || !strings.Contains(res.Text, "place the view") || strings.Contains(res.Text, r.View) {
			t.Errorf("%+v, %v", res, err)
		}
	}
}

// Without the setting there is no such tool, and no sandbox is asked for.
func TestASupervisorWithoutASandbox(t *testing.T) {
	t.Parallel()
	_, s, err := askOnce(t, verifier.Request{View: lay(t, nil), Round: 1}, func(q chattest.Question) chattest.Answer {
		if q.Turns == 0 {
			return chattest.Answer{Calls: []chat.Call{command("true")}}
		}
		return chattest.Answer{Text: judged("continue", 0.4, "")}
	})
	if err != nil || !strings.Contains(string(s.Questions()[1].Body), `there is no tool`) || strings.Contains(string(s.Questions()[0].Body), `"run"`) {
		t.Errorf("%s, %v", s.Questions()[1].Body, err)
	}
}

// A sandbox that does not work is not a fact about the agent's work: there is no
// verdict.
func TestASandboxOfTheSupervisorThatIsGone(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]bool{"gone": true, "none": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := verifier.Request{View: lay(t, nil), Round: 1, Config: json.RawMessage(`{"tools":"sandbox"}`)}
			var box *sandboxtest.Box
			if gone {
				box, r.Shell = shell(t, sandboxtest.Options{})
			}
			v, _, err := askOnce(t, r, func(q chattest.Question) chattest.Answer {
				if gone && q.Turns == 1 {
					_ = box.Close()
					testlevel.Eventually(t, "the sandbox has ended", func() bool { return !box.Alive() })
				}
				return chattest.Answer{Calls: []chat.Call{command("true")}}
			})
			if err == nil || v.Decision != "" || !strings.Contains(err.Error(), "own sandbox") || errors.Is(err, chat.ErrBadReply) {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
}

// Work that passes in a turn that was not completed ends the loop, or the agent is
// told to finish.
func TestAPassThatIsDeferred(t *testing.T) {
	t.Parallel()
	for deferred, want := range map[string]verifier.Decision{"stop": verifier.Fail, "nudge": verifier.Continue} {
		r := verifier.Request{
			View: lay(t, map[string]string{"attempt/steps.jsonl": step(1, "I am still looking.", `"extra":{}`)}), Round: 1, RoundsLeft: 1,
			Config: json.RawMessage(fmt.Sprintf(`{"deferred":%q}`, deferred)),
		}
		v, _, err := askOnce(t, r, chattest.Script(judged("pass", 1, "")))
		if err != nil || v.Decision != want || v.Labels["verdict"] != "continue" || v.Labels["gate"] != "deferred" || v.Labels["attempt_state"] != "incomplete" {
			t.Errorf("%s: %+v, %v; want %s", deferred, v, err, want)
		}
	}
}

// limitOf is the limit of a command in a test. Much output takes long on a busy
// machine.
func limitOf(script string) time.Duration {
	if strings.Contains(script, "/dev/zero") {
		return maxCommand
	}
	return 2 * time.Second
}
