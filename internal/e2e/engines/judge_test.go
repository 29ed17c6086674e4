package engines

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// The tests of a task ask a model, as judges do: with a client in Python or, in an
// image without it, in bash.
const (
	judgeTest = `#!/bin/sh
cd /tests
if command -v python3 > /dev/null; then python3 judge.py; else bash judge.sh; fi > /logs/verifier/answer
grep -q GOOD /logs/verifier/answer && ! grep -q "$OPENAI_API_KEY" /app/* && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
`
	judgePython = `import json, os, urllib.request
body = {"model": os.environ["MODEL_NAME"], "messages": [{"role": "user", "content": open("/app/answer").read()}]}
r = urllib.request.Request(os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1") + "/chat/completions", json.dumps(body).encode(),
    {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
print(json.load(urllib.request.urlopen(r))["choices"][0]["message"]["content"])
`
	judgeBash = `a=${OPENAI_BASE_URL#http://}; path=/${a#*/}; a=${a%%/*}
body='{"model": "'$MODEL_NAME'", "messages": [{"role": "user", "content": "'$(cat /app/answer)'"}]}'
exec 3<> "/dev/tcp/${a%:*}/${a#*:}"
printf 'POST %s/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s' \
    "$path" "$OPENAI_API_KEY" "${#body}" "$body" >&3
cat <&3
`
	judgeReplies = `replies:
  - when: {last: "42"}
    text: GOOD
    usage: {input: 30, output: 4}
  - text: BAD
`
)

// A judge in the tests of a task that asks for a provider's key gets the model of
// its verifier, in every environment, without a network and without the key.
func TestATasksOwnJudge(t *testing.T) {
	t.Parallel()
	for _, plugin := range []string{"local", "docker", "podman"} {
		for _, mode := range []string{"", "image", "separate"} {
			t.Run(strings.TrimSpace(plugin+" "+mode), func(t *testing.T) {
				t.Parallel()
				judged(t, plugin, mode)
			})
		}
	}
}

func judged(t *testing.T, plugin, mode string) {
	t.Helper()
	env := []string{"OPENAI_API_KEY=the-real-key"}
	if plugin != "local" {
		env = append(env, machineFor(t, plugin, debian).env())
	}
	p := newPlace(t, env...)
	p.tampered(tampering{name: "judge", test: judgeTest, solve: "echo 42 > /app/answer; env > /app/env; cat /proc/[0-9]*/environ > /app/all 2> /dev/null || :"})
	file := filepath.Join("tasks", "judge", "task.toml")
	text, err := os.ReadFile(filepath.Join(p.dir, file))
	if err != nil {
		t.Fatal(err)
	}
	p.write(file, "artifacts = [\"/app/answer\"]\n"+string(text)+"[verifier.env]\nOPENAI_API_KEY = \"${OPENAI_API_KEY}\"\nMODEL_NAME = \"gpt-5-mini\"\n")
	p.write(filepath.Join("tasks", "judge", "tests", "judge.py"), judgePython)
	p.write(filepath.Join("tasks", "judge", "tests", "judge.sh"), judgeBash)
	p.write("judge.yaml", judgeReplies)
	more := ""
	if mode != "" {
		more = fmt.Sprintf("verify = %q", mode)
	}
	p.experiment(plugin, "", more)
	if s := p.start("validate", "."); p.end(s) != 2 || !strings.Contains(s.out.String()+s.err.String(), "OPENAI_API_KEY is not let through") ||
		!strings.Contains(s.out.String()+s.err.String(), "or give the verifier a model") {
		t.Errorf("validate without a model: %s%s", s.out.String(), s.err.String())
	}
	hcl, err := os.ReadFile(filepath.Join(p.dir, "berth.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	p.write("berth.hcl", string(hcl)+"verifier \"script\" {\n  model = model.judge\n}\nmodel \"judge\" {\n  provider = \"script\"\n  script = \"judge.yaml\"\n}\n")
	p.berth(0, "validate", ".")
	p.berth(0, "run", ".", "--allow-env", "OPENAI_API_KEY") // the model wins
	dir := p.show().Trials[0].Attempts[0].Dir
	r := e2etest.Result(t, dir)
	if r.Outcome != record.Passed {
		t.Errorf("%s: %+v, %+v", r.Outcome, r.Error, r.Findings)
	}
	if u := r.Usage; len(u) != 1 || u[0].Verifier != "script" || u[0].Requests != 1 || u[0].InputTokens != 30 || u[0].OutputTokens != 4 {
		t.Errorf("usage %+v", u)
	}
	if out := p.berth(0, "show", "last", "engines/judge"); !strings.Contains(out, `verifier "script", script: 1 requests, 30 in, 4 out`) {
		t.Errorf("show: %s", out)
	}
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), "the-real-key") {
			t.Errorf("%s has the key of the host", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
