package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/cli"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// The program for the board adds and changes tasks, and says what is wrong.
func TestTheBoardProgram(t *testing.T) {
	t.Parallel()
	node, dir := nodeJS(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "board.mjs"), []byte(edictText("board.mjs")), 0o600); err != nil {
		t.Fatal(err)
	}
	board := func(args ...string) (string, bool) {
		out, err := exec.CommandContext(t.Context(), node, append([]string{filepath.Join(dir, "board.mjs")}, args...)...).CombinedOutput() //nolint:gosec // Node.js
		return string(out), err == nil
	}
	for _, x := range []struct {
		args []string
		ok   bool
		says string
	}{
		{[]string{"list"}, true, "[]"},
		{[]string{"add", "Write it"}, true, `"state": "Zhongshu"`},
		{[]string{"add", "Another", "state=Taizi"}, true, `"id": "2"`},
		{[]string{"set", "1", "state=Assigned", "org=hubu", "now=a=b"}, true, `"now": "a=b"`},
		{[]string{"set", "1", "state=Doing"}, false, `there is no state "Doing"`},
		{[]string{"set", "1", "id=7"}, false, "write KEY=VALUE"},
		{[]string{"set", "9", "state=Done"}, false, `no task "9"`},
		{[]string{"remove", "1"}, false, "write: list"},
		{[]string{"list"}, true, `"org": "hubu"`},
	} {
		if out, ok := board(x.args...); ok != x.ok || !strings.Contains(out, x.says) {
			t.Errorf("%q: %v, %s; want %q", x.args, ok, out, x.says)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "board.json"), []byte("gone wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, ok := board("set", "1", "state=Done"); ok || !strings.Contains(out, "the board cannot be read") {
		t.Errorf("%v, %s", ok, out)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.lock")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// A start has the texts of all roles, those of the experiment in place of Berth's,
// and what the driver and OpenClaw need.
func TestEdictStarts(t *testing.T) {
	t.Parallel()
	c := &Edict{Roles: map[string]string{"menxia": "MY-MENXIA"}}
	r := &cli.Run{Settings: &cli.Settings{ReasoningEffort: "high"}, Message: "-do it", Turn: 2, Session: "the-session", Workdir: "/w", URL: "http://127.0.0.1:1", Time: 90 * time.Second}
	r.Model.Token, r.Model.Name, r.Model.Dialect = "the-token", "the-model", c.scaffold().Dialects[0]
	start, err := c.start(r)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range start.Files {
		files[f.Path] = f.Data
	}
	var got chain
	if err = json.Unmarshal([]byte(files["edict/settings.json"]), &got); err != nil {
		t.Fatal(err)
	}
	if got.Message != "-do it" || got.Session != "the-session" || got.Fresh || got.Turn != 2 || got.Time != 90 || got.chainTimes != (chainTimes{Poll: 3, Call: 45, Last: 120, Quiet: 30}) {
		t.Errorf("settings %+v", got)
	}
	if !slices.Equal(slices.Sorted(maps.Keys(got.Roles)), slices.Sorted(slices.Values(edictRoles))) || got.Roles["menxia"] != "MY-MENXIA" || !strings.HasPrefix(got.Roles["libu_hr"], "You are libu_hr") {
		t.Errorf("roles %+v", got.Roles)
	}
	if !strings.Contains(got.Rules, cli.Bundle+"/bin/node "+cli.Home+"/edict/board.mjs list") || strings.Contains(got.Rules, "COMMAND") {
		t.Errorf("rules %s", got.Rules)
	}
	if !strings.Contains(files["openclaw/openclaw.json"], `"libu_hr":{"workspace":"/w"}`) || files["edict/board.mjs"] == "" || files["openclaw/drive.mjs"] == "" {
		t.Errorf("files %v", slices.Sorted(maps.Keys(files)))
	}
	r.Session = ""
	if start, err = c.start(r); err != nil || !strings.Contains(fmt.Sprint(start.Files), `"fresh":true`) {
		t.Errorf("a new session: %v, %v", err, start.Files)
	}
}

// Instructions are for roles that exist, and say something.
func TestRolesOfEdict(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"roles": {"taizi": "You are the first."}}`: "", `{"roles": {"emperor": "x"}}`: "no such role", `{"roles": {"hubu": " "}}`: "a role without instructions",
		`{"max_turns": -1}`: "max_turns: Number is negative",
	} {
		var c Edict
		ps := config.Validate(json.RawMessage(raw), &c)
		if got := fmt.Sprint(ps); (want == "") != (len(ps) == 0) || !strings.Contains(got, want) {
			t.Errorf("%s: %s", raw, got)
		}
	}
}

// What the driver cannot have printed loses nothing else.
func TestOddLinesOfEdict(t *testing.T) {
	t.Parallel()
	lines := []string{
		`{"type":"role"}`, `{"type":"role","call":"1-1-hubu","event":7}`, `{"type":"called"}`, `{"type":"called","call":"1-9-libu","text":"x"}`, `{"type":"failed","call":"other"}`,
		`{"type":"role","call":"1-1-hubu","event":{"type":"message","message":{"role":"assistant","content":[{"type":"text","text":"half"}]}}}`,
		`{"type":"message","message":{"role":"assistant","content":[{"type":"text","text":"done"}],"stopReason":"stop"}}`,
	}
	r := &record{}
	y, err := cli.Read((&Edict{}).scaffold(), strings.NewReader(strings.Join(lines, "\n")), cli.Exit{}, r)
	if valid(t, r.steps); err != nil || y.End != agent.Done || y.Message != "done" {
		t.Errorf("%+v, %v", y, err)
	}
	if !slices.ContainsFunc(r.steps, func(s trajectory.Step) bool { return s.Message.Text == "done" }) {
		t.Errorf("steps %+v", r.steps)
	}
}
