package conform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/agenttest"
	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/sandbox/host"
)

// replies are the fixed replies of the kit's model. They do what the kit asks
// for, in the formats that agent loops commonly read, and report that the work
// is done. A loop with another format gets replies that it does not understand.
const replies = `replies:
  - when: {}
    text: |
      I write the number into the file, and am done.

      ` + "```" + `bash
      echo 42 > answer.txt
      ` + "```" + `

      {"analysis": "A number is wanted in a file.", "plan": "Write it.",
       "commands": [{"keystrokes": "echo 42 > answer.txt\n", "duration": 0.1}], "task_complete": true}
`

// modelLabel is the name of the kit's model.
const modelLabel = "scripted"

// withModels gives the subject a scripted model through its own gateway, if the
// agent speaks any dialect. done stops the gateway.
func (b *bench) withModels(ctx context.Context, s *agenttest.Subject) (done func() error, err error) {
	done = func() error { return nil }
	needs, err := s.Agent.Check(ctx, agent.CheckRequest{
		Config: s.Config, Role: agent.RoleAgent, Models: map[string]model.Info{"default": {Dialect: model.DialectScript, Name: modelLabel}},
	})
	if err != nil || len(needs.Dialects) == 0 {
		return done, nil //nolint:nilerr // the kit's clauses about Check will say so
	}
	script := filepath.Join(b.dir, "replies.yaml")
	if err = os.WriteFile(script, []byte(replies), 0o600); err != nil {
		return done, fmt.Errorf("write the replies of a model: %w", err)
	}
	m := &cell.Model{Label: modelLabel, Provider: string(model.DialectScript), Name: modelLabel, Script: script}
	g, err := gateway.New(gateway.Options{Dialects: dialects.All, Dir: filepath.Join(b.dir, "g"), Models: []*cell.Model{m}, Log: b.o.Log})
	if err != nil {
		return done, err
	}
	spec := models.Spec{
		Trial: "test", Attempt: 1, Role: string(agent.RoleAgent), Dialects: needs.Dialects,
		Models: map[string]*cell.Model{"default": m},
	}
	session, err := g.Session(ctx, spec)
	if err == nil {
		err = session.Allow(ctx)
	}
	if err != nil {
		return done, errors.Join(err, g.Close())
	}
	s.Models = session.Endpoints()
	s.Inside = func(ctx context.Context, t *conformance.T, shell string) map[string]model.Endpoint {
		v, _ := b.lab.boxes.Load(shell)
		box, ok := v.(*host.Sandbox)
		if !ok {
			t.Fatalf("the sandbox of %s is gone", shell)
		}
		in := spec
		in.Inside = box.Listen
		return reach(ctx, t, g, in)
	}
	return func() error { return errors.Join(session.Close(context.WithoutCancel(ctx)), g.Close()) }, nil
}

// reach makes models reachable from inside a sandbox, as long as t runs.
func reach(ctx context.Context, t *conformance.T, g *gateway.Gateway, spec models.Spec) map[string]model.Endpoint {
	session, err := g.Session(ctx, spec)
	if err == nil {
		err = session.Allow(ctx)
	}
	if err != nil {
		t.Fatalf("reach a model from inside a sandbox: %v", err)
	}
	t.Cleanup(func() { _ = session.Close(context.WithoutCancel(ctx)) })
	return session.Endpoints()
}

// mounts returns the bundles that an agent asks for.
func mounts(ctx context.Context, s *agenttest.Subject) (out []environment.Mount) {
	infos := map[string]model.Info{}
	for name, e := range s.Models {
		infos[name] = model.Info{Dialect: e.Dialect, Name: e.Name}
	}
	needs, err := s.Agent.Check(ctx, agent.CheckRequest{Config: s.Config, Role: agent.RoleAgent, Models: infos})
	if err != nil {
		return nil // the kit's clauses about Check report it
	}
	for _, b := range needs.Bundles {
		out = append(out, environment.Mount{Source: b.Source, Target: b.Target})
	}
	return out
}
