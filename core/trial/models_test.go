package trial_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/model"
)

// Inside a sandbox without a network, the model is served on a loopback port,
// and its usage is in the result. Token and key are in no file.
func TestAModelIsReachedFromInside(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "s.yaml")
	if err := os.WriteFile(script, []byte("replies:\n  - {text: from the model, usage: {input: 30, output: 4}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "gw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m := &cell.Model{Label: "m", Provider: "script", Name: "scripted", Script: script}
	g, err := gateway.New(gateway.Options{Dialects: dialects.All, Dir: filepath.Join(dir, "g"), Models: []*cell.Model{m}})
	if err != nil {
		t.Fatal(err)
	}
	token := ""
	a := turn(func(ctx context.Context, act *actor) (agent.Yield, error) {
		e := act.setup.Models["default"]
		token = e.Token
		body := `{"model":"scripted","messages":[{"role":"user","content":"hi"}]}`
		host := strings.TrimPrefix(e.Inside, "http://")
		request := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", e.Token, len(body), body)
		in, out := int64(30), int64(5)
		return agent.Yield{End: agent.Done, Claim: &agent.Claim{Input: &in, Output: &out}}, act.sh(ctx, fmt.Sprintf("exec bash -c 'exec 3<>/dev/tcp/%s && printf %%s \"$0\" >&3 && cat <&3 >/app/x' '%s'", strings.Replace(host, ":", "/", 1), request))
	})
	a.needs.Dialects = []model.Dialect{model.DialectOpenAIChat}
	b := newBench(t, a, tests("grep -q 'from the model' /app/x"))
	b.gateway = g
	b.cell.Agent.Models = map[string]*cell.Model{"default": m}
	r := b.run(t.Context(), t)
	want(t, r, record.Passed, record.Yielded, record.Checked)
	if len(r.Claimed) != 1 || *r.Claimed[0].Output != 5 || !strings.Contains(fmt.Sprint(r.Findings), "the gateway counted 30 and 4") {
		t.Errorf("what the agent claims: %+v, findings %+v", r.Claimed, r.Findings)
	}
	if len(r.Usage) != 1 || r.Usage[0].InputTokens != 30 || r.Usage[0].CostUSD == nil {
		t.Errorf("usage %+v", r.Usage)
	}
	err = filepath.Walk(b.dir, func(path string, fi os.FileInfo, err error) error {
		if err != nil || fi.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if token != "" && strings.Contains(string(text), token) {
			t.Errorf("%s holds the token", path)
		}
		return err
	})
	if _, missing := os.Stat(filepath.Join(b.dir, record.ExchangesFile)); err != nil || missing != nil || token == "" {
		t.Errorf("%v, %v, token %q", err, missing, token)
	}
	if err = g.Close(); err != nil {
		t.Error(err)
	}
}
