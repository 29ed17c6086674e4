package scaffolds

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/relay"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// bench is one sandbox with an agent's bundle, and a model that can be reached
// from inside.
type bench struct {
	agent agent.Agent
	setup agent.Setup
	relay *relay.Relay
	box   *host.Sandbox

	folder string // where the gateway keeps what it was asked

	mu    sync.Mutex
	asked []time.Time
	sent  []gateway.Exchange
}

// set prepares a bench for a scaffold with a scripted model.
func set(t *testing.T, s scaffold, script string) *bench {
	t.Helper()
	dir, err := os.MkdirTemp(testlevel.Tmp(), "bst")
	e2etest.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx := t.Context()
	b := &bench{}
	var h *plugin.Host
	b.agent, h = s.serve(t)
	var block []byte
	if s.settings != nil {
		block, err = json.Marshal(s.settings)
		e2etest.Must(t, err)
	}
	env, _, err := h.Environment(ctx, "local")
	e2etest.Must(t, err)
	needs, err := b.agent.Check(ctx, agent.CheckRequest{Role: agent.RoleAgent, Config: block})
	e2etest.Must(t, err)
	b.folder = dir
	if s.dialect != "" {
		needs.Dialects = []model.Dialect{s.dialect}
	}
	if len(needs.Refusals) > 0 {
		t.Fatal(needs.Refusals)
	}
	var mounts []environment.Mount
	for _, m := range needs.Bundles {
		mounts = append(mounts, environment.Mount{Source: m.Source, Target: m.Target})
	}
	installed, _, err := host.Install(filepath.Join(dir, "bin"), filepath.Join(tree.Root, "bin", "berth-sandboxd"))
	e2etest.Must(t, err)
	folder, err := host.NewFolder(filepath.Join(dir, "c"), installed)
	e2etest.Must(t, err)
	t.Cleanup(func() { _ = folder.Close() })
	e2etest.Must(t, errors.Join(os.Mkdir(filepath.Join(dir, "s"), 0o700), os.Mkdir(filepath.Join(dir, "v"), 0o700), os.Mkdir(filepath.Join(dir, "o"), 0o700)))
	made, err := env.Create(ctx, environment.Spec{
		Labels:  environment.Labels{Owner: filepath.Base(dir), Trial: "t", Attempt: 1},
		Network: environment.Network{Mode: environment.NetworkNone}, Workdir: "/app", Mounts: mounts, Control: folder.Path, Lease: time.Minute,
		Scratch: filepath.Join(dir, "s"),
	})
	e2etest.Must(t, err)
	t.Cleanup(func() { _, _ = env.Destroy(context.WithoutCancel(ctx), made.ID) })
	b.box, err = host.Connect(ctx, folder, made.PID, time.Minute)
	e2etest.Must(t, err)
	t.Cleanup(func() { _ = b.box.Close() })
	b.relay, err = relay.New(filepath.Join(dir, "r"), relay.Of(b.box, host.Session{ID: "s", Dir: "/app"}))
	e2etest.Must(t, err)
	t.Cleanup(func() { _ = b.relay.Shut(context.WithoutCancel(ctx)) })
	e2etest.Must(t, b.relay.Open(ctx))
	b.setup = agent.Setup{
		Session: "s", Role: agent.RoleAgent, View: filepath.Join(dir, "v"), Scratch: filepath.Join(dir, "o"), Shell: b.relay.Address(), Workdir: "/app", Config: block,
		Models: b.models(t, dir, script, cmp.Or(s.model, "gpt-5.5"), needs.Dialects),
	}
	return b
}

// serve starts the plugins of the tree and returns the scaffold's.
func (s scaffold) serve(t *testing.T) (agent.Agent, *plugin.Host) {
	t.Helper()
	h, err := plugin.New(plugin.Options{Dirs: []string{filepath.Join(tree.Root, "bin", "plugins")}, Env: []string{"BERTH_BUNDLES=" + bundles}})
	e2etest.Must(t, err)
	t.Cleanup(h.Stop)
	a, _, err := h.Agent(t.Context(), cmp.Or(s.plugin, s.name))
	e2etest.Must(t, err)
	return a, h
}

func (b *bench) models(t *testing.T, dir, script, name string, speaks []model.Dialect) map[string]model.Endpoint {
	t.Helper()
	file := filepath.Join(dir, "replies.yaml")
	e2etest.Must(t, os.WriteFile(file, []byte(script), 0o600))
	m := &cell.Model{Label: "m", Provider: "script", Name: name, Script: file}
	g, err := gateway.New(gateway.Options{Dialects: dialects.All, Dir: filepath.Join(dir, "g"), Models: []*cell.Model{m}})
	e2etest.Must(t, err)
	t.Cleanup(func() { _ = g.Close() })
	session, err := g.Session(t.Context(), models.Spec{
		Trial: "t", Attempt: 1, Role: "agent", Dialects: speaks, Dir: dir, Inside: b.box.Listen,
		Append: func(_ string, record any) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.asked = append(b.asked, time.Now())
			if x, ok := record.(*gateway.Exchange); ok {
				b.sent = append(b.sent, *x)
			}
		},
		Models: map[string]*cell.Model{"default": m},
	})
	e2etest.Must(t, err)
	e2etest.Must(t, session.Allow(t.Context()))
	t.Cleanup(func() { _ = session.Close(context.Background()) })
	return session.Endpoints()
}

// recorder keeps steps.
type recorder struct {
	mu    sync.Mutex
	steps []trajectory.Step
}

func (r *recorder) Step(s trajectory.Step) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, s)
	return nil
}
func (r *recorder) Log(string) error      { return nil }
func (r *recorder) Artifact(string) error { return nil }

// A second message continues the session: the model sees what was said before.
func TestASecondMessageGoesOnWithTheSession(t *testing.T) {
	t.Parallel()
	for _, s := range scaffolds {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			needs(t, s)
			if s.config != "" {
				s.settings = s.resolved(t)
			}
			b := set(t, s, fmt.Sprintf(`replies:
  - {when: {turn: 0, last: first-message}, %s}
  - {when: {turn: 1, last: OUT-one}, %s}
  - {when: {turn: 2, last: second-message}, %s}
  - {when: {turn: 3, last: OUT-two}, %s}
`, s.call("one", "echo OUT-one"), s.last("one is done"), s.call("two", "echo OUT-two"), s.last("two is done")))
			session, err := b.agent.Open(t.Context(), b.setup)
			e2etest.Must(t, err)
			r := &recorder{}
			for i, text := range []string{"first-message", "second-message"} {
				y, err := session.Turn(t.Context(), agent.Message{Turn: i + 1, Text: text}, r)
				if err != nil || y.End != agent.Done || !strings.Contains(y.Message, []string{"one is done", "two is done"}[i]) {
					t.Fatalf("turn %d: %+v, %v\n%s", i+1, y, err, last(b.setup.Scratch))
				}
				e2etest.Must(t, b.relay.Close(t.Context()))
				e2etest.Must(t, b.relay.Open(t.Context()))
			}
			e2etest.Must(t, session.Close(t.Context(), "", r))
			if len(r.steps) != 4 {
				t.Fatalf("%d steps: %+v", len(r.steps), r.steps)
			}
		})
	}
}

// last is a reply after which the agent is done.
func (s scaffold) last(text string) string {
	if s.finish != "" {
		return s.call(text, s.finish)
	}
	return fmt.Sprintf("text: %q", text)
}

// last returns what the CLI printed on its standard error.
func last(scratch string) string {
	files, _ := filepath.Glob(filepath.Join(scratch, "*stderr.txt"))
	var all strings.Builder
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil {
			all.Write(b)
		}
	}
	return all.String()
}
