package scaffolds

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/plugins/model"
)

// fault is a way in which a provider fails, or in which the agent's program
// ends, and what must come of it. The work of each trial is worth nothing, so
// that a fault of the provider that counts as the agent's would be seen.
type fault struct {
	reply   string // of the script; empty: a real server fails
	outcome record.Outcome
	says    string // a regular expression of the error
}

// html is what a proxy says that stands in for a provider.
const html = `"<!doctype html><html><body>Please log in to this network.</body></html>"`

// unended is a stream of Chat Completions without a finish_reason.
const unended = `"data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,` +
	`\"delta\":{\"role\":\"assistant\",\"content\":\"never\"}}]}\n\n"`

func (s scaffold) faults() map[string]fault {
	kill := s.kill
	if kill == "" {
		kill = "kill -9 $PPID; sleep 60"
	}
	return map[string]fault{
		"status400": {"error: {status: 400, message: scripted trouble}", record.ModelError, "status 400"},
		"status401": {"error: {status: 401, message: scripted trouble}", record.ModelError, "401"},
		"status429": {"error: {status: 429, message: scripted trouble}", record.RateLimited, "rate limited"},
		"garbage":   {"text: never, break: garbage", record.ModelError, "not JSON|not valid"},
		"cut":       {"text: never, break: cut", record.ModelError, "broke off"},
		"no_end":    {"text: never, break: no_end", record.ModelError, "no end|not valid|broke off"},
		"html":      {"raw: " + html, record.ModelError, "no end|not valid"},
		"kill":      {s.call("I go.", kill), record.Failed, cmp.Or(s.crash, "signal 9")},
		"stall":     {"", record.ModelError, "silent for"},
	}
}

// Whatever a provider does, the attempt is never one that the agent failed, and
// the error says what the provider did. An agent whose program is killed has
// failed by itself.
func TestEveryFaultOfAProvider(t *testing.T) {
	table(t)
	for _, s := range scaffolds {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			needs(t, s)
			if s.plugin != "" {
				t.Skip("its own plugin is tried")
			}
			dialects, _ := s.abilities(t)
			scripted, served := s.endings(dialects[0])
			dir := t.TempDir()
			s.lay(t, dir, scripted)
			s.blamed(t, dir, len(scripted))

			provider := httptest.NewServer(http.HandlerFunc(stalls))
			defer provider.Close()
			dir = t.TempDir()
			s.lay(t, dir, served)
			at(t, dir, provider.URL, dialects[0])
			s.blamed(t, dir, len(served))
		})
	}
}

// endings are the tasks of the faults: those that the script has, and those of a real
// server.
func (s scaffold) endings(d model.Dialect) (scripted, served map[string]ending) {
	scripted, served = map[string]ending{}, map[string]ending{}
	for name, f := range s.faults() {
		e := ending{verify: "false"}
		if name == "no_end" && d == model.DialectOpenAIChat { // where no_end leaves out only [DONE], which nobody needs
			f.reply = "raw: " + unended
		}
		if f.reply == "" {
			served[name] = e
			continue
		}
		if name == "html" { // after which OpenCode asks again without end
			e.toml = "[agent]\ntimeout_sec = 200\n"
		}
		e.replies = []string{fmt.Sprintf("  - {when: {last: MARK-%s}, %s, %s, times: 1000000}\n", name, f.reply, usage)}
		for turn := 1; name == "cut" && turn < 20; turn++ { // Qwen Code asks for the rest of what it got
			e.replies = append(e.replies, fmt.Sprintf("  - {when: {turn: %d}, %s, times: 1000}\n", turn, f.reply))
		}
		scripted[name] = e
	}
	return scripted, served
}

// at has the model of the experiment in dir served by a provider at an address.
func at(t *testing.T, dir, address string, d model.Dialect) {
	t.Helper()
	if strings.HasPrefix(string(d), "openai") {
		address += "/v1"
	}
	text := change(t, e2etest.Read(t, dir, "berth.hcl"), "  provider = \"script\"\n", fmt.Sprintf(
		"  provider = %q\n  base_url = %q\n  first_byte_timeout = \"3s\"\n  idle_timeout = \"3s\"\n", d, address,
	))
	e2etest.Write(t, dir, map[string]string{"berth.hcl": change(t, text, "  script   = \"replies.yaml\"\n", "")})
}

// stalls begins an answer to each request and then sends nothing.
func stalls(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // the client may be gone
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprint(w, ": the answer begins\n\n")
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// blamed runs what was laid and looks at each trial.
func (s scaffold) blamed(t *testing.T, dir string, trials int) {
	t.Helper()
	_, _, printed := tree.Berth(t, dir, "run", "--json")
	_, out, _ := tree.Berth(t, dir, "show", "last", "--json")
	var show output.ShowRun
	if err := json.Unmarshal([]byte(out), &show); err != nil || len(show.Trials) != trials {
		t.Fatalf("%d trials: %s", len(show.Trials), printed)
	}
	for _, tr := range show.Trials {
		name := strings.TrimPrefix(tr.Task, "e2e/")
		t.Run(name, func(t *testing.T) {
			want, r := s.faults()[name], e2etest.Result(t, tr.Attempts[0].Dir)
			said := ""
			switch {
			case r.Error != nil:
				said = r.Error.Message
			case len(r.Stages) == 1 && r.Stages[0].LastTurn != nil:
				said = r.Stages[0].LastTurn.Reason
			}
			t.Logf("%s / %s: %s", r.Outcome, r.AgentEnd, said)
			if r.Outcome != want.outcome || said == "" || !regexp.MustCompile(want.says).MatchString(said) {
				t.Errorf("want %s and %q; turns: %s\nprinted: %.2000s\n%.2000s", want.outcome, want.says, e2etest.Read(t, tr.Attempts[0].Dir, "turns.jsonl"),
					e2etest.Read(t, tr.Attempts[0].Dir, "agent/stdout.jsonl"), e2etest.Read(t, tr.Attempts[0].Dir, "agent/stderr.txt"))
			}
		})
	}
}
