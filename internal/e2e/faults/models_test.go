package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/testlevel"
)

// sessionToken matches the tokens that the gateway gives to sessions.
var sessionToken = regexp.MustCompile(`berth-[0-9a-f]{48}`)

// keyed is a provider that requires the key, speaks Chat Completions, and
// repeats the key wherever it can: in bodies and headers of errors. It keeps
// the requests that it got.
type keyed struct {
	mu    sync.Mutex
	asked int
	said  bytes.Buffer
}

// ServeHTTP implements http.Handler.
func (p *keyed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := r.Header.Get("Authorization")
	var body bytes.Buffer
	_, _ = body.ReadFrom(r.Body)
	r.Header.Del("Authorization")
	fmt.Fprintf(&p.said, "%s %v %s\n", r.URL, r.Header, body.Bytes())
	if key != "Bearer "+canary+"-model" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	smallest := bytes.Contains(body.Bytes(), []byte("Say yes.")) // by which the gateway finds out whose fault a refusal is
	if !smallest {
		p.asked++
	}
	if smallest || p.asked%3 == 1 {
		w.WriteHeader(map[bool]int{true: http.StatusBadRequest, false: http.StatusServiceUnavailable}[smallest || p.asked == 7])
		fmt.Fprintf(w, `{"error":{"message":"not with the key %s"}}`, key)
		return
	}
	var q struct{ Messages []struct{ Role string } }
	_ = json.Unmarshal(body.Bytes(), &q) // without messages it is the first turn
	say := "Look everywhere.\n\n```bash\nenv; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; touch /app/done\n```"
	if len(q.Messages) > 2 {
		say = "```bash\necho TASK_IS_COMPLETE\n```"
	}
	_ = json.NewEncoder(w).Encode(map[string]any{ // the client may be gone
		"model": "m1", "choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": say}}},
		"usage": map[string]any{"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
	})
}

// The key of a provider and the tokens of sessions are in no file of a run, no
// log, no argument list and nothing that the agent or the provider was told,
// and only the process that reads the key has it in its environment. This holds
// during the run and after it.
func TestKeysAndTokensOfModelsAreNowhere(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	provider := &keyed{}
	s := httptest.NewServer(provider)
	defer s.Close()
	p.task("keyed", "", solveTiny, testTiny)
	p.experiment("agent = agent.loop\n  model = model.m\n  repeat = 6", fmt.Sprintf(`agent "loop" {
  plugin = "minisweagent"
}
model "m" {
  provider = "openai-chat"
  name     = "m1"
  base_url = "%s/v1"
  api_key  = secret("E2E_MODEL_KEY")
}
`, s.URL))
	run := p.start([]string{"E2E_MODEL_KEY=" + canary + "-model"}, "run", ".", "--no-live", "-v", "--in-flight", "3")
	lists, environments := 0, 0
	for looking := true; looking; {
		select {
		case <-run.ended:
			looking = false
		default:
			for _, pid := range descendants(run.pid) {
				lists++
				args := cmdline(pid)
				hasNone(t, fmt.Sprintf("the arguments of process %d", pid), args)
				if strings.Contains(args, "berth run") {
					continue // itself, or a child of it that is not yet another program
				}
				if e, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err == nil && len(e) > 0 {
					environments++
					hasNone(t, fmt.Sprintf("the environment of process %d, %q", pid, args), string(e))
				}
			}
			hasNone(t, "the folder of sockets and locks", whatIsThere(p.runtime()))
		}
	}
	r := run.wait()
	if lists == 0 || environments == 0 {
		t.Errorf("%d argument lists and %d environments were looked at", lists, environments)
	}
	if r.Left != nil {
		t.Errorf("left behind: %q", r.Left)
	}
	outcomes := p.show(p.run()).Summary.Outcomes
	if outcomes[record.Passed] < 4 || outcomes[record.Passed]+outcomes[record.ModelError] != 6 {
		t.Errorf("outcomes %v: %s", outcomes, r.stderr)
	}
	files := unpacked(t, p.dir)
	if !strings.Contains(files, "[hidden]") || !strings.Contains(files, "not with the key") || !strings.Contains(files, "cat /proc/*/environ") {
		t.Error("neither what the provider said of the key nor what the agent did is anywhere: the test proves nothing")
	}
	provider.mu.Lock()
	told := provider.said.String()
	provider.mu.Unlock()
	if !strings.Contains(told, "TASK_IS_COMPLETE") {
		t.Error("the provider was told nothing")
	}
	for where, text := range map[string]string{
		"stdout": r.stdout, "stderr": r.stderr, "a file of the place": files, "what the provider was told beside its header": told,
		"show": p.berth("show", p.run(), "--json").stdout,
	} {
		hasNone(t, where, text)
	}
	p.clean()
}

// whatIsThere returns the content of all files below dir while files are
// created and removed.
func whatIsThere(dir string) string {
	var all strings.Builder
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			all.WriteString("\n" + path + "\n" + read(path))
		}
		return nil //nolint:nilerr // what is gone says nothing
	})
	return all.String()
}

func hasNone(t *testing.T, where, text string) {
	t.Helper()
	at := strings.Index(text, canary)
	if at < 0 {
		if found := sessionToken.FindStringIndex(text); found != nil {
			at = found[0]
		}
	}
	if at >= 0 {
		t.Errorf("a secret is in %s: …%s…", where, text[max(0, at-300):min(len(text), at+100)])
	}
}

// unpacked returns the content of all files below dir, and unpacks compressed
// ones.
func unpacked(t *testing.T, dir string) string {
	t.Helper()
	d, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	all := bytes.NewBufferString(allOf(t, dir, ""))
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".zst" {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil {
			b, err = d.DecodeAll(b, nil)
		}
		fmt.Fprintf(all, "\n== %s ==\n%s", path, b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// A provider at a wrong address stops the run at once, with a message of one
// sentence. When the provider can be reached, the run is resumed and completed.
func TestAProviderThatIsNotThereStopsTheRun(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed at once
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	p.task("unreached", "", solveTiny, testTiny)
	p.experiment("agent = agent.loop\n  model = model.m\n  repeat = 4\n  limits {\n    in_flight = 1\n  }",
		fmt.Sprintf("agent \"loop\" {\n  plugin = \"minisweagent\"\n}\nmodel \"m\" {\n  provider = \"openai-chat\"\n  name = \"m1\"\n  base_url = \"http://%s/v1\"\n}\n", address))
	r := p.berth("run", ".", "--no-live").want(t, 3)
	why := fmt.Sprintf(`stopped: provider of model "m1": connection refused by %s`, address)
	if !strings.Contains(r.stdout, why) {
		t.Errorf("%s\nwant %s", r.stdout, why)
	}
	show := p.show(p.run())
	if o := show.Summary.Outcomes; o[record.NotRun] != 4 {
		t.Errorf("outcomes %v", o)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct{ Messages []struct{ Role string } }
		_ = json.NewDecoder(r.Body).Decode(&q) // without messages it is the first turn
		say := "```bash\ntouch /app/done\n```"
		if len(q.Messages) > 2 {
			say = "```bash\necho TASK_IS_COMPLETE\n```"
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{ // the client may be gone
			"model": "m1", "choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": say}}},
			"usage": map[string]any{"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
		})
	})}
	if l, err = net.Listen("tcp", address); err != nil { //nolint:noctx // as above
		testlevel.Cannot(t, "another program took the port: run the test again", err)
	}
	go func() { _ = s.Serve(l) }() // it ends with Close
	defer s.Close()
	p.berth("resume", p.run(), "--no-live").want(t, 0)
	p.clean()
}

// canary stands for a secret.
const canary = "canary-4f1d9b7ae2c05368"

// A secret of the experiment, and a variable of the host that a task asks for,
// are in no file of the run, no argument list and no log, although the solution
// prints the variable, whole and in pieces.
func TestSecretsAreNowhere(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.task("secret", "[environment.env]\nE2E_TOKEN = \"${E2E_TOKEN}\"\n",
		`echo "token $E2E_TOKEN"; echo "$E2E_TOKEN" >&2; printf 'canary-4f1d'; sleep 0.2; echo '9b7ae2c05368-token'
mkdir -p /logs/artifacts; [ -n "$E2E_TOKEN" ] && echo "$E2E_TOKEN" > /logs/artifacts/token.txt; `+solveTiny,
		`echo "test sees $E2E_TOKEN"; `+testTiny)
	p.experiment("matrix {\n    agent = [agent.oracle, agent.nop]\n    model = [model.m]\n  }", `model "m" {
  provider = "anthropic"
  name     = "some-model"
  api_key  = secret("E2E_KEY")
}
`)
	env := []string{"E2E_TOKEN=" + canary + "-token", "E2E_KEY=" + canary + "-key"}
	s := p.start(env, "run", ".", "--no-live", "-v", "--allow-env", "E2E_TOKEN")
	seen := 0
	for looking := true; looking; {
		select {
		case <-s.ended:
			looking = false
		default:
			for _, pid := range append(descendants(s.pid), s.pid) {
				seen++
				if c := cmdline(pid); strings.Contains(c, canary) {
					t.Errorf("in the arguments of process %d: %s", pid, c)
				}
			}
		}
	}
	r := s.wait().want(t, 0)
	if seen == 0 {
		t.Error("no argument list was looked at")
	}
	show := p.settled(p.run())
	if show.Summary.Outcomes[record.Passed] != 1 {
		t.Errorf("outcomes %v: the oracle did not get as far as to print the secret", show.Summary.Outcomes)
	}
	if !strings.Contains(allOf(t, p.dir, "trials"), "token ***") {
		t.Error("the solution's output is nowhere: the test proves nothing")
	}
	for where, text := range map[string]string{
		"stdout": r.stdout, "stderr": r.stderr, "a file of the place": allOf(t, p.dir, ""), "show": p.berth("show", p.run(), "--json").stdout,
	} {
		if at := strings.Index(text, canary); at >= 0 {
			t.Errorf("the secret is in %s: …%s…", where, text[max(0, at-300):min(len(text), at+100)])
		}
	}
	p.clean()
}

// allOf returns the content of all files below dir whose path contains part,
// each after its name.
func allOf(t *testing.T, dir, part string) string {
	t.Helper()
	var all bytes.Buffer
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !strings.Contains(path, part) {
			return err
		}
		b, err := os.ReadFile(path)
		fmt.Fprintf(&all, "\n== %s ==\n%s", path, b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
