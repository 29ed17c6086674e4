package trial_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/surface"
	"github.com/berth-eval/berth/plugins/surface/counter"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// game is a counter whose calls a test may change.
type game struct {
	counter.Game

	spec    environment.SurfaceSpec
	act     func(context.Context, *environment.Step) error
	observe func(*environment.Observation) error
	opened  int
	closed  bool
}

func (g *game) OpenSurface(ctx context.Context, s environment.SurfaceSpec) (string, error) {
	g.spec = s
	g.opened++
	return g.Game.OpenSurface(ctx, s)
}

func (g *game) Observe(ctx context.Context, id string, want []string) (environment.Observation, error) {
	o, err := g.Game.Observe(ctx, id, want)
	if g.observe != nil {
		err = errors.Join(err, g.observe(&o))
	}
	return o, err
}

func (g *game) Act(ctx context.Context, id string, c environment.Call, want []string) (environment.Step, error) {
	s, err := g.Game.Act(ctx, id, c, want)
	if s.Info != nil {
		s.Info = json.RawMessage(`{"left":"MARK-info"}`)
	}
	if g.act != nil {
		err = errors.Join(err, g.act(ctx, &s))
	}
	return s, err
}

func (g *game) CloseSurface(ctx context.Context, id string) error {
	g.closed = true
	return g.Game.CloseSurface(ctx, id)
}

// plays is an agent whose only turn works on the surface.
func plays(turn func(ctx context.Context, s *surface.Client, a *actor) error) *scripted {
	return &scripted{
		needs: agent.Needs{Surface: true},
		turn: func(ctx context.Context, a *actor, _ agent.Message) (agent.Yield, error) {
			s, err := surface.Dial(a.setup.Surface)
			if err != nil {
				return agent.Yield{}, err
			}
			defer s.Close()
			if err = turn(ctx, s, a); err != nil {
				return agent.Yield{}, err
			}
			return agent.Yield{End: agent.Done, Message: "did it"}, nil
		},
	}
}

// add adds a number on the surface.
func add(ctx context.Context, s *surface.Client, n string) (environment.Step, error) {
	return s.Act(ctx, environment.Call{Name: "add", Arguments: json.RawMessage(`{"n":` + n + `}`)}, nil)
}

// played is a bench with a task on a game.
func played(t *testing.T, g *game, a *scripted, j *judge) *bench {
	t.Helper()
	b := newBench(t, a, j)
	b.surface = environment.SurfaceOnly(g)
	b.cell.Environment.Surface = "game"
	b.task.Stages[0].Surface = &task.Surface{Level: "2"}
	b.task.Stages[0].Captures = []task.Capture{{Name: "export"}}
	return b
}

// surfaceLines returns the lines of surface.jsonl in a folder.
func surfaceLines(t *testing.T, dir string) (all []surface.Line) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, record.SurfaceFile))
	testlevel.Must(t, err)
	s := bufio.NewScanner(bytes.NewReader(data))
	for s.Scan() {
		var l surface.Line
		testlevel.Must(t, json.Unmarshal(s.Bytes(), &l))
		all = append(all, l)
	}
	return all
}

// A capture that holds a secret is judged as it was, and kept without it.
func TestACaptureIsJudgedAsItWas(t *testing.T) {
	t.Parallel()
	a := plays(func(ctx context.Context, s *surface.Client, _ *actor) error {
		_, err := add(ctx, s, "3")
		return err
	})
	const file, text = "captures/export/export.json", `{"number":6}`
	b := played(t, &game{}, a, looks(func(r verifierRequest) bool {
		data, err := os.ReadFile(filepath.Join(r.View, "attempt", file))
		if err != nil || string(data) != text {
			t.Errorf("the capture is %q, %v", data, err)
		}
		return true
	}))
	b.cell.Secrets = []string{text}
	want(t, b.run(t.Context(), t), record.Passed, record.Yielded, record.Checked)
	if kept, err := os.ReadFile(filepath.Join(b.dir, file)); err != nil || string(kept) != strings.Repeat("*", len(text)) {
		t.Errorf("kept is %q, %v", kept, err)
	}
}

func TestAnAgentPlaysOnASurface(t *testing.T) {
	t.Parallel()
	g := &game{}
	var address string
	a := plays(func(ctx context.Context, s *surface.Client, a *actor) error {
		address = a.setup.Surface
		for range 2 {
			step, err := add(ctx, s, "3")
			if err != nil || step.Reward != nil || step.Info != nil {
				return errors.Join(err, errors.New("the agent got a reward, info or an error"))
			}
		}
		return a.Step(trajectory.Step{Source: trajectory.Model, Message: trajectory.Text("I add."), ToolCalls: []trajectory.ToolCall{
			{ID: "1", Name: "add", Arguments: json.RawMessage(`{}`)},
			{ID: "2", Name: "add", Arguments: json.RawMessage(`{}`)},
			{ID: "3", Name: "clear", Arguments: json.RawMessage(`{}`)},
		}})
	})
	open := true
	b := played(t, g, a, looks(func(r verifierRequest) bool {
		open = !g.closed
		all := surfaceLines(t, filepath.Join(r.View, "attempt"))
		data, err := os.ReadFile(filepath.Join(r.View, "attempt/captures/export/export.json"))
		if err != nil || string(data) != `{"number":9}` {
			t.Errorf("the capture is %q, %v", data, err)
		}
		if len(all) != 3 || *all[2].Reward != 3 || len(all[2].Frames) != 1 {
			t.Fatalf("the verifier sees %+v", all)
		}
		if _, err = os.Stat(filepath.Join(r.View, "attempt/frames", all[2].Frames[0].File)); err != nil {
			t.Error(err)
		}
		return strings.Contains(string(all[2].Info), "MARK-info")
	}))
	r := b.run(t.Context(), t)
	want(t, r, record.Passed, record.Yielded, record.Checked)
	if !open || !g.closed {
		t.Errorf("at the verification it was open: %v; at the end closed: %v", open, g.closed)
	}
	if g.spec.Frames == "" || g.spec.Scratch == "" || g.spec.Workdir != "/app" || g.spec.Sandbox != "" || g.spec.Shell != "" {
		t.Errorf("it was opened with %+v", g.spec)
	}
	if s, err := surface.Dial(address); err == nil {
		_, err = s.Observe(t.Context(), nil)
		if err == nil {
			t.Error("the address still answers")
		}
		_ = s.Close()
	}
	names := map[string]bool{}
	for _, p := range r.Plugins {
		names[p.Name] = true
	}
	if !names["game"] {
		t.Errorf("the plugin with the surface is not among %+v", r.Plugins)
	}
}

// A surface that lacks something is not the agent's fault, and another attempt would end
// in the same way. An agent with a shell may have removed it.
func TestASurfaceThatRefuses(t *testing.T) {
	t.Parallel()
	lacks := fmt.Errorf("%w: there is no browser", environment.ErrRefused)
	for name, tt := range map[string]struct {
		before  string // a number that is added while nothing is missing
		command string // that the agent runs before
		outcome record.Outcome
	}{
		"the first action":       {outcome: record.EnvironmentError},
		"after an action":        {before: "1", outcome: record.AgentError},
		"after a command before": {command: "true", outcome: record.AgentError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := plays(func(ctx context.Context, s *surface.Client, a *actor) (err error) {
				if tt.command != "" {
					err = a.sh(ctx, tt.command)
				}
				if err == nil && tt.before != "" {
					_, err = add(ctx, s, tt.before)
				}
				if err == nil {
					_, err = add(ctx, s, "2")
				}
				return err
			})
			a.needs.Shell = tt.command != ""
			g, calls := &game{}, 0
			g.act = func(context.Context, *environment.Step) error {
				if calls++; tt.before != "" && calls == 1 {
					return nil
				}
				return lacks
			}
			r := played(t, g, a, looks(func(verifierRequest) bool { return true })).run(t.Context(), t)
			if r.Outcome != tt.outcome || r.Error == nil || r.Error.Retry || !strings.Contains(r.Error.Message, "there is no browser") {
				t.Errorf("got %s: %s; want %s", r.Outcome, pretty(r.Error), tt.outcome)
			}
		})
	}
}

// A surface that dies is a fault of the environment until the agent has acted.
func TestASurfaceThatDies(t *testing.T) {
	t.Parallel()
	dies := errors.New("the page has crashed")
	for name, tt := range map[string]struct {
		g       *game
		acts    bool
		outcome record.Outcome
		end     record.AgentEnd
	}{
		"before the agent acts": {g: &game{observe: func(*environment.Observation) error { return dies }}, outcome: record.EnvironmentError},
		"after it has acted":    {g: &game{observe: func(*environment.Observation) error { return dies }}, acts: true, outcome: record.AgentError, end: record.SandboxLost},
		"by its own fault": {g: &game{observe: func(o *environment.Observation) error {
			o.Frames[0].MediaType = "text/html"
			return nil
		}}, acts: true, outcome: record.EnvironmentError},
		"with its process": {g: &game{observe: func(*environment.Observation) error { return plugin.ErrPluginGone }}, acts: true, outcome: record.PluginCrashed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := plays(func(ctx context.Context, s *surface.Client, _ *actor) error {
				if tt.acts {
					if _, err := add(ctx, s, "1"); err != nil {
						return err
					}
				}
				_, err := s.Observe(ctx, nil)
				return err
			})
			r := played(t, tt.g, a, looks(func(verifierRequest) bool { return true })).run(t.Context(), t)
			if r.Outcome != tt.outcome || r.AgentEnd != tt.end || r.Error == nil {
				t.Errorf("got %s / %s: %s; want %s / %s", r.Outcome, r.AgentEnd, pretty(r.Error), tt.outcome, tt.end)
			}
		})
	}
}

func TestACaptureThatFailsIsAFinding(t *testing.T) {
	t.Parallel()
	a := plays(func(context.Context, *surface.Client, *actor) error { return nil })
	b := played(t, &game{}, a, looks(func(r verifierRequest) bool {
		_, err := os.Stat(filepath.Join(r.View, "attempt/captures/export/export.json"))
		return err == nil
	}))
	b.task.Stages[0].Captures = append(b.task.Stages[0].Captures, task.Capture{Name: "nothing"})
	r := b.run(t.Context(), t)
	want(t, r, record.Passed, record.Yielded, record.Checked)
	if !found(r, "capture_failed") {
		t.Errorf("no finding: %s", pretty(r.Findings))
	}
}

func TestWhatHasNoSurfaceIsRefused(t *testing.T) {
	t.Parallel()
	a := plays(func(context.Context, *surface.Client, *actor) error { return nil })
	for name, tt := range map[string]struct {
		change func(*bench)
		want   string
	}{
		"an environment":    {func(b *bench) { b.cell.Environment.Surface = "" }, "has no surface"},
		"a task":            {func(b *bench) { b.task.Stages[0].Surface, b.task.Stages[0].Captures = nil, nil }, "needs a surface"},
		"an unknown action": {func(b *bench) { b.task.Stages[0].Surface.Actions = []string{"ad"} }, `Did you mean "add"?`},
		"a level":           {func(b *bench) { b.task.Stages[0].Surface.Level = "hard" }, "is not a number"},
		"a sandbox of it":   {func(b *bench) { b.cell.Environment.Plugin, b.cell.Environment.Surface = "game", "" }, "makes no sandboxes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := played(t, &game{}, a, nil)
			tt.change(b)
			r := b.run(t.Context(), t)
			if r.Error == nil || !strings.Contains(r.Error.Message, tt.want) {
				t.Errorf("got %s: %s; want %q", r.Outcome, pretty(r.Error), tt.want)
			}
		})
	}
}

// What a surface ran has ended between two stages that are verified in restarted. It
// is opened again, also for a session that goes on. In another mode it stays open.
func TestASurfaceIsOpenedAgainAfterARestart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		mode task.Mode
		same bool
		open int
	}{{task.ModeRestarted, false, 2}, {task.ModeRestarted, true, 2}, {task.ModeLive, false, 1}} {
		g := &game{}
		a := plays(func(ctx context.Context, s *surface.Client, _ *actor) error {
			_, err := add(ctx, s, "1")
			return err
		})
		a.needs.KeepsSession = true
		b := played(t, g, a, looks(func(verifierRequest) bool { return true }))
		second := b.task.Stages[0]
		second.Name, second.SameSession = "second", tt.same
		b.task.Stages, b.task.Mode = append(b.task.Stages, second), tt.mode
		r := b.run(t.Context(), t)
		want(t, r, record.Passed, record.Yielded, record.Checked)
		acted := 0
		for _, l := range surfaceLines(t, b.dir) {
			if l.Kind == surface.KindAct && l.Error == "" {
				acted++
			}
		}
		if g.opened != tt.open || acted != 2 {
			t.Errorf("%s, same session %v: opened %d times, %d actions; want %d and 2", tt.mode, tt.same, g.opened, acted, tt.open)
		}
	}
}

// post is a program in the sandbox that calls a tool: it sends one request of the
// protocol, and prints the answer.
const post = `#!/bin/bash
exec 3<>/dev/tcp/127.0.0.1/$1
body='{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"'$2'","arguments":'$3'}}'
printf 'POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s' ${#body} "$body" >&3
cat <&3
`

// A program in the sandbox acts on the surface by its tools, and is recorded as
// other agents are. What it left behind gets no answer when the turn is over.
func TestAProgramInTheSandboxActsOnTheSurface(t *testing.T) {
	t.Parallel()
	a := &scripted{
		needs: agent.Needs{Shell: true},
		turn: func(ctx context.Context, a *actor, _ agent.Message) (agent.Yield, error) {
			if len(a.setup.Servers) != 1 || a.setup.Servers[0].Name != "surface" || a.setup.Servers[0].Transport != "streamable-http" {
				return agent.Yield{}, fmt.Errorf("servers %+v", a.setup.Servers)
			}
			port := strings.TrimSuffix(strings.TrimPrefix(a.setup.Servers[0].URL, "http://127.0.0.1:"), "/mcp")
			return agent.Yield{End: agent.Done}, a.sh(ctx, "cat >/tmp/post <<'END'\n"+post+"END\nchmod +x /tmp/post\n"+
				"/tmp/post "+port+` add '{"n":3}' >/app/first; /tmp/post `+port+` observe '{}' >/app/seen
setsid sh -c 'while /tmp/post `+port+` add "{\"n\":100}" | grep "^HTTP/1.1 200" >>/app/late; do sleep 0.01; done; echo over >>/app/late' >/dev/null 2>&1 &
until [ -s /app/late ]; do sleep 0.01; done`)
		},
	}
	g := &game{}
	b := played(t, g, a, tests(`grep -q 'The number is 6' /app/first && grep -q 'The number is 6' /app/seen && ! grep -q reward /app/first /app/seen && until grep -q over /app/late; do sleep 0.01; done`))
	b.task.Mode = "live"
	b.task.Stages[0].Surface.Steps = 1
	r := b.run(t.Context(), t)
	if r.Outcome != record.Passed || r.AgentEnd != record.MaxSteps {
		t.Errorf("%s, %s, %+v", r.Outcome, r.AgentEnd, r.Error)
	}
	acted := 0
	for _, l := range surfaceLines(t, b.dir) {
		if l.Kind == surface.KindAct && l.Error == "" {
			acted++
		}
		if strings.Contains(string(l.Arguments), "100") && l.Error == "" {
			t.Errorf("an action after the last step: %+v", l)
		}
	}
	if acted != 1 {
		t.Errorf("%d actions in the record, want 1", acted)
	}
}
