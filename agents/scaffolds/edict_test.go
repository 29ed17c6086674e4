package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/cli"
)

// does is what a call of a role does in testdata/edict/role.mjs.
type does map[string]any

// to puts one task of a state and an org on the board.
func to(state, org string) does {
	return does{"raw": fmt.Sprintf(`[{"id": "1", "title": "T", "state": %q, "org": %q}]`, state, org)}
}

// nodeJS returns a Node.js that can run the driver.
func nodeJS(t *testing.T) string {
	t.Helper()
	return testlevel.Program(t, "node", "nodejs")
}

// court is a run of the driver.
type court struct {
	dir   string
	chain chain
	plan  map[string][]does

	out, errs bytes.Buffer
	exit      cli.Exit
	took      time.Duration
}

// newCourt prepares a driver with short times.
func newCourt(t *testing.T, plan map[string][]does) *court {
	t.Helper()
	dir := t.TempDir()
	node := nodeJS(t)
	stand, err := filepath.Abs("testdata/edict/role.mjs")
	if err != nil {
		t.Fatal(err)
	}
	roles := map[string]string{}
	for _, role := range edictRoles {
		roles[role] = "ROLE-" + role
	}
	return &court{dir: dir, plan: plan, chain: chain{
		chainTimes: chainTimes{Poll: .02, Call: .2, Last: .5, Quiet: .4}, Program: []string{node, stand, dir}, Args: []string{"--thinking", "low"}, Session: "s",
		Turn: 1, Fresh: true, Message: "THE-MESSAGE", Folder: dir, Board: filepath.Join(dir, "board.json"), Roles: roles, Rules: "THE-RULES", Word: "THE-WORD",
	}}
}

// run runs one turn. It returns the names of the roles in the order of their calls.
func (c *court) run(t *testing.T) (roles []string) {
	t.Helper()
	driver, err := filepath.Abs("edict/drive.mjs")
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]any{"plan.json": c.plan, "settings.json": c.chain} {
		raw, bad := json.Marshal(v)
		if err = errors.Join(bad, os.WriteFile(filepath.Join(c.dir, name), raw, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	before := len(c.calls(t))
	cmd := exec.CommandContext(t.Context(), c.chain.Program[0], driver, filepath.Join(c.dir, "settings.json"), "--more") //nolint:gosec // Node.js
	c.out.Reset()
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &c.out, &c.errs, time.Second
	begin := time.Now()
	err = cmd.Run()
	c.took, c.exit = time.Since(begin), cli.Exit{}
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		c.exit.ExitCode = failed.ExitCode()
		if w, ok := failed.Sys().(syscall.WaitStatus); ok && w.Signaled() {
			c.exit.Signal = w.Signal()
		}
	} else if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		t.Fatal(err)
	}
	for _, call := range c.calls(t)[before:] {
		roles = append(roles, call.Role)
	}
	return roles
}

type called struct {
	Role, Session, Text string
	Args                []string
}

// calls are those of all turns.
func (c *court) calls(t *testing.T) (list []called) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(c.dir, "calls.jsonl"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var one called
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatal(err)
		}
		list = append(list, one)
	}
	return list
}

// read reads what the driver printed.
func (c *court) read(t *testing.T) (agent.Yield, *record, error) {
	t.Helper()
	r := &record{}
	y, err := cli.Read((&Edict{}).scaffold(), bytes.NewReader(c.out.Bytes()), c.exit, r)
	valid(t, r.steps)
	return y, r, err
}

func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("called %v, want %v", got, want)
	}
}

// The state of the board calls roles, one after the other, until the task is done.
// Then taizi has the last word.
func TestTheChainOfEdict(t *testing.T) {
	t.Parallel()
	c := newCourt(t, map[string][]does{
		"taizi": {to("Zhongshu", ""), {"say": "the last word"}}, "zhongshu": {to("Menxia", ""), to("Menxia", "menxia")}, "menxia": {to("Zhongshu", "zhongshu"), to("Assigned", "")},
		"shangshu": {to("Assigned", "hubu"), to("Assigned", "工部"), to("Done", "")}, "hubu": {to("Review", "")}, "gongbu": {to("PendingConfirm", "")},
	})
	same(t, c.run(t), "taizi", "zhongshu", "menxia", "zhongshu", "menxia", "shangshu", "hubu", "shangshu", "gongbu", "shangshu", "taizi")
	y, r, err := c.read(t)
	if err != nil || y.End != agent.Done || y.Message != "the last word" || *y.Claim.Input != 110 || *y.Claim.Output != 55 {
		t.Errorf("%+v, %v", y, err)
	}
	var steps []string
	for _, s := range r.steps {
		steps = append(steps, string(s.Source)+": "+strings.SplitN(s.Message.Text, "\n", 2)[0])
	}
	for i, want := range []string{"agent: taizi 1", "system: zhongshu was called: task 1 is in state Zhongshu."} {
		if len(steps) != 12 || steps[i] != want {
			t.Errorf("steps %q, want %q", steps, want)
		}
	}
	if len(r.logs) != 18 {
		t.Errorf("%d lines of the log, want 2 of each role: %q", len(r.logs), r.logs)
	}
	calls := c.calls(t)
	for i, want := range []string{"ROLE-taizi\n\nTHE-RULES\n\nThe user's message:\n\nTHE-MESSAGE", "ROLE-zhongshu\n\nTHE-RULES\n\nYou are called because task 1 is in state Zhongshu"} {
		if !strings.HasPrefix(calls[i].Text, want) || calls[i].Session != "s" || !slices.Equal(calls[i].Args, []string{"--thinking", "low", "--more"}) {
			t.Errorf("call %d: %+v", i, calls[i])
		}
	}
	if text := calls[1].Text; !strings.Contains(text, `"title": "T"`) || !strings.Contains(text, "THE-MESSAGE") {
		t.Errorf("zhongshu is told %q", text)
	}
	if text := calls[10].Text; !strings.Contains(text, "all tasks have ended") || !strings.Contains(text, `"Done"`) || !strings.Contains(text, "THE-WORD") {
		t.Errorf("taizi is told %q", text)
	}
}

// Each state calls its role.
func TestStatesOfTheBoard(t *testing.T) {
	t.Parallel()
	for state, role := range map[string]string{
		"Taizi": "taizi", "Zhongshu": "zhongshu", "Pending": "zhongshu", "Menxia": "menxia", "Review": "shangshu", "PendingConfirm": "shangshu", "Assigned": "shangshu",
		"Assigned shangshu": "shangshu", "Assigned taizi": "shangshu", "Assigned constructor": "shangshu", "Assigned hubu": "hubu", "Assigned libu": "libu", "Assigned bingbu": "bingbu",
		"Assigned xingbu": "xingbu", "Assigned gongbu": "gongbu", "Assigned libu_hr": "libu_hr", "Assigned 吏部": "libu_hr", "Assigned 礼部": "libu", "Review hubu": "shangshu",
		"Done": "", "Cancelled": "",
	} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			name, org, _ := strings.Cut(state, " ")
			done, want := to("Done", ""), []string{"taizi", role, "taizi"}
			if role == "" { // and nothing is left to say
				want = want[:1]
			}
			c := newCourt(t, map[string][]does{role: {done}})
			c.plan["taizi"] = []does{to(name, org), done}
			same(t, c.run(t), want...)
		})
	}
}

// Without a task taizi's answer is the last word. In the next turn its session goes
// on: it is not told again who it is, and the board is kept.
func TestTheNextTurnOfEdict(t *testing.T) {
	t.Parallel()
	c := newCourt(t, map[string][]does{"taizi": {{"say": "I did it."}, to("Menxia", ""), {"say": "both"}}, "menxia": {to("Done", "")}})
	same(t, c.run(t), "taizi")
	if y, _, err := c.read(t); err != nil || y.End != agent.Done || y.Message != "I did it." {
		t.Errorf("%+v, %v", y, err)
	}
	c.chain.Fresh, c.chain.Turn, c.chain.Message = false, 2, "MORE"
	same(t, c.run(t), "taizi", "menxia", "taizi")
	if calls := c.calls(t); calls[1].Text != "MORE" || calls[1].Session != "s" {
		t.Errorf("the second turn begins with %+v", calls[1])
	}
	if !strings.Contains(c.out.String(), `"call":"2-2-menxia"`) {
		t.Errorf("printed %s", &c.out)
	}
	c.chain.Turn = 3
	same(t, c.run(t), "taizi") // the task of turn 2 has ended
	board := func() string {
		b, err := os.ReadFile(c.chain.Board)
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	if is := board(); !strings.Contains(is, `"Done"`) {
		t.Errorf("the board of turn 2 is gone: %q", is)
	}
	c.chain.Fresh = true // a new session
	if same(t, c.run(t), "taizi"); board() != "[]\n" {
		t.Errorf("the board of another session is %q", board())
	}
}

// A board that nobody changes ends the chain after a time, and what changes it
// from elsewhere is seen.
func TestABoardThatStandsStill(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		first, second does
		want          []string
		why           string
	}{
		"unchanged": {to("Zhongshu", ""), does{}, []string{"taizi", "zhongshu", "taizi"}, "nothing has changed for 0.4 s"},
		"unknown":   {to("Doing", ""), does{}, []string{"taizi", "taizi"}, "nothing has changed for 0.4 s"},
		"prototype": {to("constructor", "__proto__"), does{}, []string{"taizi", "taizi"}, "nothing has changed for 0.4 s"},
		"later":     {to("Zhongshu", ""), does{"later": []any{0.2, to("Menxia", "")["raw"]}}, []string{"taizi", "zhongshu", "menxia", "taizi"}, "nothing has changed for 0.4 s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCourt(t, map[string][]does{"taizi": {x.first}, "zhongshu": {x.second}})
			same(t, c.run(t), x.want...)
			calls := c.calls(t)
			if text := calls[len(calls)-1].Text; !strings.Contains(text, x.why) || c.took < 400*time.Millisecond { // the promise: 0.4 s
				t.Errorf("after %s taizi is told %q, want %q", c.took, text, x.why)
			}
		})
	}
}

// Whatever a role puts in the place of the board, the chain ends and taizi has the
// last word.
func TestABoardThatIsNone(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 500_000)
	for name, x := range map[string]struct {
		put does
		why string
	}{
		"prose":   {does{"raw": "I have done it."}, "JSON"},
		"object":  {does{"raw": `{"id": "1"}`}, "it is not a list"},
		"null":    {does{"raw": "null"}, "it is not a list"},
		"bytes":   {does{"raw": "\x00\xff"}, "JSON"},
		"deep":    {does{"raw": deep}, "cannot be read"},
		"huge":    {does{"huge": 2 << 20}, "it is larger than 1048576 bytes"},
		"deleted": {does{"gone": true}, "ENOENT"},
		"fifo":    {does{"fifo": true}, "it is not a regular file"},
		"folder":  {does{"folder": true}, "it is not a regular file"},
		"odd":     {does{"raw": `[7, null, [], {}, {"id": ""}, {"id": {"a": 1}, "state": ["Menxia"]}, {"id": "x", "state": 9, "title": null}]`}, "nothing has changed"},
		"empty":   {does{"raw": "[]"}, "all tasks have ended"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCourt(t, map[string][]does{"taizi": {to("Zhongshu", ""), {"say": "the last word"}}, "zhongshu": {x.put}})
			same(t, c.run(t), "taizi", "zhongshu", "taizi")
			calls := c.calls(t)
			if text := calls[len(calls)-1].Text; !strings.Contains(text, x.why) || len(text) > 10_000 {
				t.Errorf("taizi is told %.2000q, want %q", text, x.why)
			}
			if y, _, err := c.read(t); err != nil || y.End != agent.Done || y.Message != "the last word" || c.exit.ExitCode != 0 {
				t.Errorf("%+v, %v\n%s", y, err, &c.errs)
			}
		})
	}
}

// Long texts of the board reach no role in full.
func TestLongTextsOfTheBoardAreCut(t *testing.T) {
	t.Parallel()
	c := newCourt(t, map[string][]does{"taizi": {{"huge": 500_000}}, "menxia": {to("Done", "")}})
	c.chain.Message = strings.Repeat("long ", 100_000)
	same(t, c.run(t), "taizi", "menxia", "taizi")
	if text := c.calls(t)[1].Text; len(text) > 30_000 || !strings.Contains(text, "[…]") {
		t.Errorf("menxia is told %d bytes", len(text))
	}
}

// A role is stopped when only the time for the last word is left, and no call
// begins that would have less than the shortest time.
func TestTheTimeOfEdict(t *testing.T) {
	t.Parallel()
	t.Run("a role", func(t *testing.T) {
		t.Parallel()
		c := newCourt(t, map[string][]does{"taizi": {to("Zhongshu", ""), {"say": "the last word"}}, "zhongshu": {{"sleep": 60_000, "holds": true}}})
		c.chain.Time, c.chain.Last = 24, 12
		same(t, c.run(t), "taizi", "zhongshu", "taizi")
		y, r, err := c.read(t)
		if err != nil || y.Message != "the last word" || c.took < 12*time.Second || c.took > 24*time.Second { // the promise: the role has 12 s of 24 s
			t.Errorf("%+v, %v after %s", y, err, c.took)
		}
		if text := r.steps[1].Message.Text; !strings.Contains(text, "It was stopped after") {
			t.Errorf("step %q", text)
		}
	})
	t.Run("taizi", func(t *testing.T) {
		t.Parallel()
		c := newCourt(t, map[string][]does{"taizi": {{"sleep": 60_000}, {"say": "the last word"}}})
		c.chain.Time, c.chain.Last = 24, 16
		same(t, c.run(t), "taizi", "taizi")
		if y, _, err := c.read(t); err != nil || y.Message != "the last word" || !strings.Contains(c.calls(t)[1].Text, "your time was over") {
			t.Errorf("%+v, %v: %+v", y, err, c.calls(t)[1])
		}
	})
	t.Run("no time", func(t *testing.T) {
		t.Parallel()
		c := newCourt(t, map[string][]does{"taizi": {to("Zhongshu", "")}})
		c.chain.Time, c.chain.Call, c.chain.Last = 40, 30, 11
		same(t, c.run(t), "taizi", "taizi")
		if text := c.calls(t)[1].Text; !strings.Contains(text, "the time for further calls is over") {
			t.Errorf("taizi is told %q", text)
		}
	})
}

// A call that fails ends the turn, with the blame where it belongs.
func TestACallOfEdictFails(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		role  string
		does  does
		model bool
		says  string
	}{
		"the model of a role": {"zhongshu", does{"error": "503 scripted trouble", "exit": 1}, true, "503 scripted trouble"},
		"a bad request":       {"zhongshu", does{"error": "400 scripted trouble", "exit": 1}, false, "400 scripted trouble"},
		"the model of taizi":  {"taizi", does{"error": "503 scripted trouble", "exit": 1}, true, "503 scripted trouble"},
		"a role":              {"zhongshu", does{"exit": 3}, false, "exit code 3"},
		"a killed role":       {"zhongshu", does{"signal": "SIGKILL"}, false, "signal 9"},
		"a killed taizi":      {"taizi", does{"signal": "SIGKILL"}, false, "signal 9"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCourt(t, map[string][]does{"taizi": {to("Zhongshu", "")}, x.role: {x.does}})
			want := []string{"taizi", "zhongshu"}
			same(t, c.run(t), want[:1+slices.Index(want, x.role)]...)
			y, _, err := c.read(t)
			if x.model {
				if !errors.Is(err, agent.ErrModel) || !strings.Contains(err.Error(), x.says) {
					t.Errorf("%+v, %v", y, err)
				}
			} else if err != nil || y.End != agent.Crashed || !strings.Contains(y.Reason, x.says) {
				t.Errorf("%+v, %v", y, err)
			}
		})
	}
}

// What a role prints that is not an event is left out, and it cannot speak for another.
func TestNoiseOfARole(t *testing.T) {
	t.Parallel()
	c := newCourt(t, map[string][]does{
		"taizi": {to("Zhongshu", ""), {"say": "the last word"}}, "zhongshu": {{"raw": to("Done", "")["raw"], "noise": "{\"type\":\"failed\",\"message\":\"evil\"}\nnot JSON\n{"}},
	})
	same(t, c.run(t), "taizi", "zhongshu", "taizi")
	if y, _, err := c.read(t); err != nil || y.End != agent.Done || y.Message != "the last word" {
		t.Errorf("%+v, %v", y, err)
	}
}
