package scaffolds

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// scaffold is an agent under test.
type scaffold struct {
	name   string
	tool   string            // its shell, as it offers it to the model
	arg    string            // the argument with the command
	more   map[string]string // arguments that it has to have, too
	plugin string            // whose it is, if not its own
	config string            // of the agent block
	model  string            // its name; empty: gpt-5.5
	claims bool              // says what it used
	finish string            // a command that says that it is done; empty: a text does
	refuse record.AgentEnd   // what it makes of a refusal
	// settings are the configuration of the agent block. bundle are the
	// arguments of `agent bundle`, if they are not the name.
	settings map[string]any
	bundle   []string
	kill     string // a command that kills it; empty: its shell is its child
	// background is what it says of a command that takes long if it continues
	// with the model meanwhile; empty: it waits for the command.
	background string
	late       bool   // tells of a call when it has ended
	time       int    // seconds after which its deadline comes; 0: 45
	crash      string // what it says of being killed; empty: the signal
	mute       bool   // tells nothing of what its tools print
	chatty     bool   // asks the model for more than was asked of it
	stops      string // why it says that its model stopped at the end; empty: it does not say it
	// loop are its replies in TestTheClosedLoop; nil: those of one agent.
	loop []string
}

var scaffolds = []scaffold{
	{name: "claude-code", tool: "Bash", arg: "command", claims: true, refuse: record.Refused, time: 15, stops: "end_turn"},
	{name: "codex", tool: "exec_command", arg: "cmd", claims: true, refuse: record.Yielded, time: 15},
	{name: "pi", tool: "bash", arg: "command", claims: true, refuse: record.Refused, time: 15, stops: "stop"},
	{name: "mini-swe-agent", tool: "bash", arg: "command", claims: true, refuse: record.Refused, finish: "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"},
	{name: "nanobot", tool: "exec", arg: "command", claims: true, refuse: record.Refused, background: "timed out", stops: "stop"}, // its own limit for a command is 60 s
	{name: "gemini-cli", tool: "run_shell_command", arg: "command", claims: true, refuse: record.Yielded},
	{name: "opencode", tool: "bash", arg: "command", claims: true, refuse: record.Refused, late: true, time: 120, stops: "stop"},
	{name: "qwen-code", tool: "run_shell_command", arg: "command", claims: true, refuse: record.Crashed, crash: "exit code 1"},
	{
		name: "openhands", tool: "terminal", arg: "command", more: map[string]string{"security_risk": "LOW"}, claims: true, refuse: record.Refused, time: 120,
		background: "has no new output",
	},
	{
		name: "openclaw", tool: "exec", arg: "command", claims: true, refuse: record.Refused, time: 200, background: "still running", stops: "stop",
		kill: killOpenClaw,
	},
	{
		name: "edict", plugin: "edict", bundle: []string{"openclaw"}, tool: "exec", arg: "command", claims: true, refuse: record.Refused, time: 200,
		background: "still running|your time was over", kill: killOpenClaw, loop: court(),
	},
}

// killOpenClaw kills OpenClaw, which does not start commands itself.
const killOpenClaw = `for p in /proc/[0-9]*; do case $(tr "\\0" " " <$p/cmdline) in openclaw*) kill -9 ${p#/proc/} ;; esac; done; sleep 60`

// call is a reply that runs a command with the scaffold's shell.
func (s scaffold) call(text, command string) string {
	given := map[string]string{s.arg: command}
	maps.Copy(given, s.more)
	args, err := json.Marshal(given)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("text: %q, tools: [{name: %s, arguments: %s}]", text, s.tool, args)
}

// ending is a task for one way of ending, and the expected result.
type ending struct {
	replies []string
	verify  string // a shell command that must succeed; empty: nothing is asked
	toml    string
	outcome record.Outcome
	end     record.AgentEnd
	says    string // looked for in the yield's reason and the error
}

// usage is part of every reply, so that counts can be compared.
const usage = "usage: {input: 100, cached: 60, output: 10}"

// nothingOfTheBundle fails if a process runs a file of the bundle.
const nothingOfTheBundle = `for p in /proc/[0-9]*; do case $(readlink "$p/exe") in /opt/berth/agent/*) exit 1 ;; esac; done`

func (s scaffold) trials() map[string]ending {
	mark := func(name string) string { return "MARK-" + name }
	at := func(name string, turn int, reply string) string {
		return fmt.Sprintf("  - {when: {turn: %d, last: %q}, %s, %s}\n", turn, mark(name), reply, usage)
	}
	always := func(name, reply string) string {
		return fmt.Sprintf("  - {when: {last: %q}, %s, %s}\n", mark(name), reply, usage)
	}
	done := func(name string) string {
		if s.finish != "" {
			return at(name, 1, s.call("finished "+name, s.finish))
		}
		return at(name, 1, fmt.Sprintf("text: %q", "finished "+name))
	}
	// This is the time in which it must have called its tool, also on a busy
	// machine.
	wait := time.Duration(cmp.Or(s.time, 45)) * time.Second
	wait = max(wait, min(conformance.Patience(wait), 80*time.Second)) // the run is cut off after it: the CLI has to have called by then
	words := "last words: I wait."
	if s.late {
		words = "cut off"
	}
	fails := func(name string, status int) string {
		return fmt.Sprintf("  - {when: {last: %q}, error: {status: %d, message: scripted trouble}}\n", mark(name), status)
	}
	kill := s.kill
	if kill == "" {
		kill = "kill -9 $PPID; sleep 60"
	}
	forever := []string{always("deadline", s.call("I wait.", "echo MARK-deadline; touch /app/begun; sleep 3000"))}
	if s.background != "" {
		forever = append([]string{fmt.Sprintf("  - {when: {last: %q}, text: never, delay: 3000s}\n", s.background)}, forever...)
	}
	ts := map[string]ending{
		"solve": {
			replies: []string{at("solve", 0, s.call("I write it.", "echo MARK-solve | tee /app/done; exit 3")), done("solve")},
			verify:  "[ -s /app/done ] && " + nothingOfTheBundle, outcome: record.Passed, end: record.Yielded,
		},
		"refuse": {
			replies: []string{
				always("refuse", "text: I will not do that., stop: refused"),
				"  - {when: {last: safety classifier}, text: I still will not., stop: refused, " + usage + "}\n",               // asked once more
				"  - {when: {last: did not include a function call}, text: I still will not., stop: refused, " + usage + "}\n", // again and again
			},
			outcome: record.Passed, end: s.refuse,
		},
		"crash": {
			replies: []string{at("crash", 0, s.call("I go.", kill)), done("crash")},
			outcome: record.Passed, end: record.Crashed, says: cmp.Or(s.crash, "signal 9"),
		},
		"deadline": {
			replies: forever,
			verify:  "[ -e /app/begun ] && " + nothingOfTheBundle, toml: fmt.Sprintf("[agent]\ntimeout_sec = %.0f\n", wait.Seconds()), outcome: record.Passed, end: record.Timeout,
			says: words,
		},
		"down": {replies: []string{fails("down", 503)}, outcome: record.ModelError, end: record.Crashed, says: "scripted trouble"},
		"bad":  {replies: []string{fails("bad", 400)}, outcome: record.ModelError, end: record.Crashed, says: "scripted trouble"},
	}
	if os.Getuid() == 0 { // whose sandboxes have users
		ts["nobody"] = ending{
			replies: []string{at("nobody", 0, s.call("I look.", "id -un; echo MARK-nobody; touch /tmp/done")), done("nobody")},
			verify:  "[ $(stat -c %U /tmp/done) = nobody ]", toml: "[agent]\ntimeout_sec = 600\nuser = \"nobody\"\n", outcome: record.Passed, end: record.Yielded,
		}
	}
	return ts
}

// lay writes an experiment with one task for each trial.
func (s scaffold) lay(t *testing.T, dir string, trials map[string]ending) {
	t.Helper()
	replies, late := "replies:\n", ""
	for name, tr := range trials {
		// What a scaffold says of a command that takes long may be said of any, on a
		// busy machine. So the replies to it come last.
		if name == "deadline" {
			late = strings.Join(tr.replies, "")
		} else {
			replies += strings.Join(tr.replies, "")
		}
		toml := tr.toml
		if toml == "" {
			toml = "[agent]\ntimeout_sec = 600\n"
		}
		verify := tr.verify
		if verify == "" {
			verify = "true"
		}
		e2etest.Write(t, filepath.Join(dir, "tasks", name), map[string]string{
			"task.toml": fmt.Sprintf("schema_version = \"1.4\"\n[task]\nname = \"e2e/%s\"\n%s[verifier]\ntimeout_sec = 60\n[environment]\nnetwork_mode = \"no-network\"\nworkdir = \"/app\"\n",
				name, toml),
			"instruction.md":         "Do what is asked: MARK-" + name + "\n",
			"environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
			"tests/test.sh":          "#!/bin/sh\nif (" + verify + "); then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n",
		})
	}
	replies += late
	if s.chatty { // it may ask for a title after its last message
		replies += "  - {when: {turn: 2}, text: A title, " + usage + "}\n"
	}
	plugin := s.plugin
	if plugin == "" {
		plugin = s.name
	}
	model := s.model
	if model == "" {
		model = "gpt-5.5"
	}
	e2etest.Write(t, dir, map[string]string{"replies.yaml": replies, "berth.hcl": fmt.Sprintf(`experiment "e2e" {
  datasets    = [dataset.tasks]
  environment = environment.local
  agent       = agent.one
  model       = model.m
  limits {
    in_flight = 3
  }
}
dataset "tasks" {
  format = "harbor"
  path   = "./tasks"
}
environment "local" {
  plugin = "local"
}
agent "one" {
  plugin = %q
  config {
%s
  }
}
model "m" {
  provider = "script"
  name     = %q
  script   = "replies.yaml"
}
`, plugin, hcl(t, s.settings)+s.config, model)})
}

// With the real program, each way of ending has its own outcome and its own
// agent end.
func TestEveryWayOfEnding(t *testing.T) {
	t.Parallel()
	for _, s := range scaffolds {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			needs(t, s)
			if s.name == "pi" && !testlevel.All() {
				t.Skip("it takes long: run make test-scaffolds BERTH_TEST=all")
			}
			dir := t.TempDir()
			trials := s.trials()
			s.lay(t, dir, trials)
			s.run(t, dir, trials)
		})
	}
}

// run runs the experiment in dir and checks each trial.
func (s scaffold) run(t *testing.T, dir string, trials map[string]ending) {
	t.Helper()
	code, _, stderr := tree.Berth(t, dir, "run", "--json")
	if code != 0 && code != 1 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	_, out, _ := tree.Berth(t, dir, "show", "last", "--json")
	var show output.ShowRun
	e2etest.Must(t, json.Unmarshal([]byte(out), &show))
	if len(show.Trials) != len(trials) {
		t.Fatalf("%d trials, want %d", len(show.Trials), len(trials))
	}
	for _, tr := range show.Trials {
		name := strings.TrimPrefix(tr.Task, "e2e/")
		t.Run(name, func(t *testing.T) { s.judge(t, name, trials[name], tr.Attempts[0].Dir) })
	}
}

// marked returns a reply for a task with another name.
func (s scaffold) marked(reply, from, to string) string {
	return strings.ReplaceAll(reply, "MARK-"+from, "MARK-"+to)
}

// recordTo is the folder to which the output of the CLIs is copied. It is the
// input of tests in agents/scaffolds/testdata.
var recordTo = flag.String("record", "", "folder to copy what the CLIs print to")

func (s scaffold) keep(t *testing.T, name, dir string) {
	t.Helper()
	if *recordTo == "" {
		return
	}
	folder := filepath.Join(*recordTo, s.plugin)
	e2etest.Must(t, os.MkdirAll(folder, 0o755))
	var kept []string
	for line := range strings.Lines(e2etest.Read(t, dir, "agent/stdout.jsonl")) {
		if !strings.Contains(line, "available_commands_update") { // long, and of no use
			kept = append(kept, line)
		}
	}
	e2etest.Must(t, os.WriteFile(filepath.Join(folder, s.name+"."+name+".jsonl"), []byte(strings.Join(kept, "")), 0o644))
}

func (s scaffold) judge(t *testing.T, name string, want ending, dir string) {
	r := e2etest.Result(t, dir)
	if r.Outcome != want.outcome || r.AgentEnd != want.end {
		t.Errorf("%s / %s, want %s / %s; error %+v\nturns: %s\nstderr: %s", r.Outcome, r.AgentEnd, want.outcome, want.end, r.Error,
			e2etest.Read(t, dir, "turns.jsonl"), e2etest.Read(t, dir, "agent/stderr.txt"))
	}
	said := e2etest.Read(t, dir, "turns.jsonl")
	if r.Error != nil {
		said += r.Error.Message
	}
	if !strings.Contains(said, want.says) {
		t.Errorf("nothing says %q: %s", want.says, said)
	}
	if len(r.Bundles) != 1 || s.plugin == "" && (!strings.HasPrefix(r.Bundles[0].Name, s.name+"@") || !strings.HasPrefix(r.Bundles[0].Digest, "sha256:")) {
		t.Errorf("bundles %+v", r.Bundles)
	}
	for _, f := range r.Findings {
		if f.Code == "trajectory" || f.Code == "usage_differs" && !s.chatty || f.Code == "other_model" {
			t.Errorf("finding %s: %s", f.Code, f.Text)
		}
	}
	if name == "refuse" && !strings.Contains(e2etest.Read(t, dir, "trajectory.json"), `"source": "agent"`) {
		t.Errorf("the refusal is not in the trajectory: %s", e2etest.Read(t, dir, "trajectory.json"))
	}
	s.keep(t, name, dir)
	if name == "deadline" && !s.late && !strings.Contains(e2etest.Read(t, dir, "trajectory.json"), "sleep 3000") {
		t.Errorf("the call that was under way is not in the trajectory: %s\nprinted: %s\nevents: %s", e2etest.Read(t, dir, "trajectory.json"),
			e2etest.Read(t, dir, "agent/stdout.jsonl"), e2etest.Read(t, dir, record.EventsFile))
	}
	if name == "solve" {
		s.solved(t, r, dir)
	}
}

// solved checks the record of a trial with one call and a final message.
func (s scaffold) solved(t *testing.T, r *record.Result, dir string) {
	if !s.chatty && (len(r.Usage) != 1 || r.Usage[0].Requests != 2 || r.Usage[0].InputTokens != 200 || r.Usage[0].OutputTokens != 20 || r.Usage[0].CachedTokens != 120) {
		t.Errorf("usage %+v; want what the script counts", r.Usage)
	}
	if s.claims && (len(r.Claimed) != 1 || *r.Claimed[0].Input != 200 || *r.Claimed[0].Output != 20) {
		t.Errorf("claimed %+v", r.Claimed)
	}
	raw := []byte(e2etest.Read(t, dir, "trajectory.json"))
	for _, v := range trajectory.Validate(raw) {
		t.Errorf("trajectory: %s", v)
	}
	var tr trajectory.Trajectory
	e2etest.Must(t, json.Unmarshal(raw, &tr))
	if _, version, _ := strings.Cut(r.Bundles[0].Name, "@"); tr.Agent.Version != version {
		t.Errorf("the agent is %+v, want the version of %s", tr.Agent, r.Bundles[0].Name)
	}
	s.called(t, tr.Steps)
	if f := tr.FinalMetrics; !s.chatty && (f == nil || *f.PromptTokens != 200 || *f.CompletionTokens != 20) {
		t.Errorf("final metrics %+v", f)
	}
}

// called checks the steps of a trial with one call and a final message.
func (s scaffold) called(t *testing.T, steps []trajectory.Step) {
	t.Helper()
	var calls int
	for _, step := range steps {
		for _, c := range step.ToolCalls {
			if s.finish != "" && strings.Contains(string(c.Arguments), s.finish) {
				continue
			}
			calls++
			if !strings.Contains(string(c.Arguments), "/app/done") {
				t.Errorf("call %+v", c)
			}
			if step.Message.Text != "I write it." || step.Observation == nil || !s.mute && !strings.Contains(step.Observation.Results[0].Content.Text, "MARK-solve") {
				t.Errorf("step %+v", step)
			}
		}
	}
	if last := steps[len(steps)-1]; calls != 1 || last.Message.Text != "finished solve" {
		t.Errorf("%d calls, last step %+v", calls, last)
	} else if s.stops != "" && !strings.Contains(string(last.Extra), strconv.Quote(s.stops)) {
		t.Errorf("the last step has %s, want that the model stopped because of %q", last.Extra, s.stops)
	}
}

// In the example, agents that differ by one word solve the same task without a
// network.
func TestTheExample(t *testing.T) {
	t.Parallel()
	for _, s := range scaffolds {
		if slices.Contains(always, s.name) {
			needs(t, s)
		}
	}
	code, out, stderr := tree.Berth(t, t.TempDir(), "run", filepath.Join(tree.Root, "examples", "scaffolds"), "--json", "--require", "passed = planned")
	if code != 0 {
		t.Errorf("exit code %d\n%s\n%s", code, out, stderr)
	}
	var a output.Run
	if err := json.Unmarshal([]byte(out), &a); err != nil || a.Summary.Planned != 4 {
		t.Errorf("%v: %+v", err, a.Summary)
	}
}
