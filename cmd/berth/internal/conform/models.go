package conform

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/agenttest"
	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/verifier/verifiertest"
)

// modelLabel is the name of the kit's model.
const modelLabel = "kit"

// room is a gateway where the models of one plugin under test answer.
type room struct {
	gateway *gateway.Gateway
	spec    models.Spec

	mu     sync.Mutex
	bodies [][]byte // of all requests
}

func (r *room) see(body []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bodies = append(r.bodies, bytes.Clone(body))
}

// seen reports whether a request had a text.
func (r *room) seen(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.bodies, func(b []byte) bool { return bytes.Contains(b, []byte(text)) })
}

// asked returns how many requests there were.
func (r *room) asked() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return int64(len(r.bodies))
}

// open opens a session of the room's models.
func (r *room) open(ctx context.Context, spec models.Spec) (models.Session, error) {
	s, err := r.gateway.Session(ctx, spec)
	if err != nil {
		return nil, err
	}
	s.Allow(ctx)
	return s, nil
}

// room opens a gateway whose models, under these names, answer from a script; empty:
// the kit's model. It is closed at the end.
func (b *bench) room(ctx context.Context, spec models.Spec, names []string, script string) (*room, map[string]model.Endpoint, error) {
	m := &cell.Model{Label: modelLabel, Provider: string(model.DialectScript), Name: modelLabel, Script: cmp.Or(script, kitScript)}
	r := &room{spec: spec}
	r.spec.Trial, r.spec.Attempt, r.spec.Models = "test", 1, map[string]*cell.Model{}
	for _, n := range names {
		r.spec.Models[n] = m
	}
	b.rooms++
	var err error
	r.gateway, err = gateway.New(gateway.Options{Dialects: known(r.see), Dir: filepath.Join(b.dir, fmt.Sprint("g", b.rooms)), Models: []*cell.Model{m}, Log: b.o.Log})
	if err != nil {
		return nil, nil, err
	}
	b.atEnd = append(b.atEnd, r.gateway.Close)
	s, err := r.open(ctx, r.spec)
	if err != nil {
		return nil, nil, err
	}
	b.atEnd = append(b.atEnd, func() error { return s.Close(context.WithoutCancel(ctx)) })
	return r, s.Endpoints(), nil
}

// agentModels gives an agent a model through its own gateway, if it speaks any
// dialect.
func (b *bench) agentModels(ctx context.Context, s *agenttest.Subject) error {
	needs, err := s.Agent.Check(ctx, agent.CheckRequest{
		Config: s.Config, Role: agent.RoleAgent, Models: map[string]model.Info{"default": {Dialect: model.DialectScript, Name: modelLabel}},
	})
	if err != nil || len(needs.Dialects) == 0 {
		return nil //nolint:nilerr // the kit's clauses about Check will say so
	}
	r, endpoints, err := b.room(ctx, models.Spec{Role: string(agent.RoleAgent), Dialects: needs.Dialects}, []string{"default"}, b.o.Replies)
	if err != nil {
		return err
	}
	s.Models = endpoints
	s.Inside = func(t *conformance.T, shell string) map[string]model.Endpoint { //nolint:contextcheck // a clause has its own
		v, _ := b.sandboxes.boxes.Load(shell)
		box, ok := v.(*host.Sandbox)
		if !ok {
			t.Fatalf("the sandbox of %s is gone", shell)
		}
		inside := r.spec
		inside.Inside = box.Listen
		session, err := r.open(t.Context(), inside)
		t.Must("reach a model from inside a sandbox", err)
		t.Cleanup(func(ctx context.Context) { _ = session.Close(ctx) })
		return session.Endpoints()
	}
	if s.Asked = r.asked; b.o.Replies == "" { // replies of the user's own are not the kit's model
		s.Seen = r.seen
	}
	return nil
}

// judgeModels gives a verifier the models that it announces: to each case that
// has replies of its own a model that answers with them, to all others the
// kit's.
func (b *bench) judgeModels(ctx context.Context, s *verifiertest.Subject) (err error) {
	if len(s.Traits.Models) == 0 {
		return nil
	}
	spec := models.Spec{Role: "judge"}
	if _, s.Models, err = b.room(ctx, spec, s.Traits.Models, b.o.Replies); err != nil {
		return err
	}
	for i := range s.Cases {
		script := filepath.Join(s.Cases[i].Dir, verifiertest.CaseReplies)
		if _, missing := os.Stat(script); missing != nil {
			continue
		}
		if _, s.Cases[i].Request.Models, err = b.room(ctx, spec, s.Traits.Models, script); err != nil {
			return err
		}
	}
	return nil
}
