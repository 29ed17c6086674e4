package command

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/gateway/recording"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/surface"
)

// The page counts clicks.
const counterPage = `<!doctype html><title>Counter</title><body style="margin:0">
<button style="position:absolute;left:10px;top:10px;width:100px;height:40px" onclick="state.n++; out.textContent = 'pressed ' + state.n">More</button>
<p id=out style="margin-top:100px">pressed 0</p><img src="https://tracker.example/x.png">
<script>const state = {n: 0}</script>`

const browserExperiment = `experiment "browser" {
  datasets    = [dataset.samples]
  environment = environment.local
  model       = model.m
  matrix {
    agent = [agent.oracle, agent.nop, agent.random, agent.visual]
  }
  limits {
    in_flight = 2
  }
}
dataset "samples" {
  format = "harbor"
  path   = "./tasks"
}
environment "local" {
  plugin  = "local"
  surface = "browser"
  surface_config {
    slow_mo = "0s"
    settle  = "50ms"
  }
}
agent "oracle" {
  plugin = "oracle"
  oracle = true
}
agent "nop" {
  plugin = "nop"
}
agent "random" {
  plugin = "random"
  config {
    actions = 8
  }
}
agent "visual" {
  plugin = "visual"
}
model "m" {
  provider = "script"
  name     = "gpt-5"
  script   = "./agent.yaml"
}
`

// browserFiles are an experiment and a task on a page. Two clicks pass: the host
// takes their number from the page itself.
func browserFiles() map[string]string {
	return map[string]string{
		"berth.hcl": browserExperiment,
		"agent.yaml": `replies:
  - when: {last: 'I have seen 2'}
    text: '{"answer": "pressed"}'
  - when: {last: 'click was refused'}
    text: "` + "```\\nmouse_click(60, 30, button='left')\\n```" + `"
  - when: {last: 'pressed 0'}
    text: "I press it.\n` + "```\\nmouse_click(60, 30)\\n```" + `"
  - when: {last: 'pressed 1'}
    text: "Again.\n` + "```\\nclick('99999')\\n```" + `"
  - when: {last: 'pressed 2'}
    text: '{"answer": "I have seen 2"}'
`,
		"tasks/counter/task.toml": `schema_version = "1.4"
[task]
name = "samples/counter"
[environment]
network_mode = "no-network"
[metadata.berth.surface]
files        = "tests/site"
steps        = 10
observations = ["screenshot", "axtree", "last_action_error"]
[metadata.berth.surface.settings]
url = "index.html"
[[metadata.berth.captures]]
name     = "state"
settings = { kind = "script", script = "({n: state.n, secret: 'MARK-CAPTURE'})" }
[[metadata.berth.captures]]
name     = "picture"
settings = { kind = "screenshot" }
[[metadata.berth.verifiers]]
name     = "compare-fields"
settings = { truth = "tests/truth.json", prediction = "attempt/captures/state/value.json" }
`,
		"tasks/counter/instruction.md":         "Press the button twice.\n",
		"tasks/counter/environment/Dockerfile": "FROM debian:bookworm-slim\n",
		"tasks/counter/tests/site/index.html":  counterPage,
		"tasks/counter/tests/truth.json":       `{"n": 2}`,
		"tasks/counter/solution/actions.jsonl": strings.Repeat(`{"name": "mouse_click", "arguments": {"x": 60, "y": 30}}`+"\n", 2),
	}
}

// An agent sees a page in a real browser, acts on it, and is graded by what the host
// takes from the page, not by what it says. Nothing leaves the sandbox.
func TestABrowser(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	testlevel.Program(t, "chromium", "chromium")
	dir := t.TempDir()
	e2etest.Write(t, dir, browserFiles())
	r := berthWith(t, dir, nil, "run", "--json")
	t.Log(r.out, r.stderr)
	results := e2etest.Found(t, 4, dir, "runs", "*", "trials", "*", "attempt-1")
	for _, attempt := range results {
		got := e2etest.Result(t, attempt)
		agent := got.Cell["agent"]
		want := record.Failed
		if agent == "oracle" || agent == "visual" {
			want = record.Passed
		}
		if agent == "random" { // it may leave the page, of which nothing can be taken then
			if got.Outcome != want && got.Outcome != record.ArtifactMissing {
				t.Errorf("random: %s, %s", got.Outcome, pretty(got.Error))
			}
			continue
		}
		if got.Outcome != want || got.Integrity != record.Checked {
			t.Errorf("%s: %s, %s, %s %s; want %s", agent, got.Outcome, got.Integrity, pretty(got.Error), fmt.Sprintf("%+v", got.Findings), want)
		}
		if agent == "visual" {
			seenByTheModel(t, attempt)
		}
	}
}

// seenByTheModel looks at what the agent saw, and at the record of it.
func seenByTheModel(t *testing.T, attempt string) {
	t.Helper()
	acted, refused, left := 0, 0, 0
	for _, l := range e2etest.Lines[surface.Line](t, attempt, record.SurfaceFile) {
		var info struct {
			Requests map[string]int `json:"refused_requests"`
		}
		if len(l.Info) > 0 {
			e2etest.Must(t, json.Unmarshal(l.Info, &info))
		}
		left = max(left, info.Requests["tracker.example"])
		if l.Kind == surface.KindAct && l.Error == "" {
			acted++
		} else if l.Kind == surface.KindAct {
			refused++
		}
	}
	if acted != 2 || refused != 1 || left != 1 {
		t.Errorf("%d actions, %d refused ones, %d requests that would have left; want 2, 1 and 1", acted, refused, left)
	}
	bodies := ""
	for line := range strings.Lines(e2etest.Read(t, attempt, record.ExchangesFile)) {
		var x struct {
			Request string `json:"request"`
		}
		e2etest.Must(t, json.Unmarshal([]byte(line), &x))
		b, err := recording.Fetch(filepath.Join(attempt, record.ModelDir), x.Request)
		e2etest.Must(t, err)
		bodies += string(b)
	}
	for _, hidden := range []string{"MARK-CAPTURE", "refused_requests", "tracker.example\\\":1"} {
		if strings.Contains(bodies, hidden) {
			t.Errorf("%s is in a request of the agent", hidden)
		}
	}
	if !strings.Contains(bodies, "data:image/png;base64,") || !strings.Contains(bodies, "button 'More'") {
		t.Error("the model gets no picture, or no tree")
	}
}

// reachPipe writes into the pipe from which the browser reads its protocol.
const reachPipe = `for p in /proc/[0-9]*; do
  tr '\0' ' ' 2>/dev/null < $p/cmdline | grep -q -e '--remote-debugging-pipe' || continue
  echo "found $p" >> /logs/artifacts/said
  (printf '{"id":4242,"method":"Browser.getVersion"}\0' > $p/fd/3) 2>> /logs/artifacts/said && echo reached >> /logs/artifacts/said
done
true
`

// reachPort asks a port of a browser where its protocol is.
const reachPort = `for i in $(seq 100); do
  exec 3<>/dev/tcp/127.0.0.1/9333 && break
  sleep 0.1
done 2>/dev/null
printf 'GET /json/version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
timeout 10 cat <&3 | grep -q webSocketDebuggerUrl && echo reached >> /logs/artifacts/said
true
`

// listening starts a second browser, which uses a port.
const listening = `#!/bin/sh
chromium --headless --no-sandbox --disable-gpu --user-data-dir=/tmp/second --remote-debugging-port=9333 about:blank >/dev/null 2>&1 3<&- 4>&- &
exec chromium "$@"
`

// An agent that is root in a shell beside the browser cannot reach its protocol. It
// reaches that of a browser that the surface starts in the same way with a port.
func TestAnAgentBesideTheBrowser(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	testlevel.Program(t, "chromium", "chromium")
	for name, tt := range map[string]struct {
		solve   string
		reached bool
	}{"through the pipe": {reachPipe, false}, "through a port": {reachPort, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, files := t.TempDir(), browserFiles()
			files["berth.hcl"] = strings.Replace(browserExperiment, "[agent.oracle, agent.nop, agent.random, agent.visual]", "[agent.oracle]", 1)
			if tt.reached {
				files["berth.hcl"] = strings.Replace(files["berth.hcl"], "slow_mo", "program = \"/usr/local/bin/listening\"\n    slow_mo", 1)
				files["tasks/counter/environment/listening"] = listening
				files["tasks/counter/environment/Dockerfile"] += "COPY --chmod=755 listening /usr/local/bin/listening\n"
			}
			delete(files, "tasks/counter/solution/actions.jsonl")
			files["tasks/counter/solution/solve.sh"] = "#!/bin/bash\nid -u > /logs/artifacts/said\n" + tt.solve
			e2etest.Write(t, dir, files)
			r := berthWith(t, dir, nil, "run", "--json")
			t.Log(r.out, r.stderr)
			said := e2etest.Found(t, 1, dir, "runs", "*", "trials", "*", "attempt-1", "artifacts", "logs", "artifacts", "said")
			text := e2etest.Read(t, filepath.Dir(said[0]), "said")
			if !strings.HasPrefix(text, "0\n") || strings.Contains(text, "reached") != tt.reached || !tt.reached && !strings.Contains(text, "Permission denied") {
				t.Errorf("the agent says %q; want that it is root, and reached %v", text, tt.reached)
			}
		})
	}
}
