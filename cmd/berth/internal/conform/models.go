package conform

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/agenttest"
	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/verifier"
	"github.com/berth-eval/berth/plugins/verifier/verifiertest"
)

// modelLabel is the name of the kit's model.
const modelLabel = "kit"

// room is a gateway where the models of one plugin under test answer.
type room struct {
	*gateway.Gateway

	session []models.Session // open as long as the room

	mu     sync.Mutex
	inside []models.Session // of sandboxes, which end before
	bodies [][]byte         // of the requests to the kit's model
}

func (r *room) see(body []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bodies = append(r.bodies, bytes.Clone(body))
}

// seen reports whether a request to the kit's model had a text.
func (r *room) seen(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.bodies, func(b []byte) bool { return bytes.Contains(b, []byte(text)) })
}

// asked returns how many requests all sessions have got.
func (r *room) asked() (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range slices.Concat(r.session, r.inside) {
		for _, u := range s.Usage() {
			n += u.Requests
		}
	}
	return n
}

// room opens a gateway with one model, which answers from a script; empty: the
// kit's model.
func (b *bench) room(name, script string) (*room, *cell.Model, error) {
	if script == "" {
		script = kitScript
	}
	m := &cell.Model{Label: modelLabel, Provider: string(model.DialectScript), Name: modelLabel, Script: script}
	r := &room{}
	var err error
	r.Gateway, err = gateway.New(gateway.Options{Dialects: known(r.see), Dir: filepath.Join(b.dir, name), Models: []*cell.Model{m}, Log: b.o.Log})
	return r, m, err
}

func (r *room) close(ctx context.Context) error {
	var errs []error
	for _, s := range r.session {
		errs = append(errs, s.Close(context.WithoutCancel(ctx)))
	}
	return errors.Join(append(errs, r.Close())...)
}

// open opens models for as long as the room.
func (r *room) open(ctx context.Context, spec models.Spec) (map[string]model.Endpoint, error) {
	s, err := r.Session(ctx, spec)
	if err != nil {
		return nil, err
	}
	r.session = append(r.session, s)
	return s.Endpoints(), s.Allow(ctx)
}

// withModels gives the subject a model through its own gateway, if it
// speaks any dialect. done ends it.
func (b *bench) withModels(ctx context.Context, s *agenttest.Subject) (done func() error, err error) {
	done = func() error { return nil }
	needs, err := s.Agent.Check(ctx, agent.CheckRequest{
		Config: s.Config, Role: agent.RoleAgent, Models: map[string]model.Info{"default": {Dialect: model.DialectScript, Name: modelLabel}},
	})
	if err != nil || len(needs.Dialects) == 0 {
		return done, nil //nolint:nilerr // the kit's clauses about Check will say so
	}
	r, m, err := b.room("g", b.o.Replies)
	if err != nil {
		return done, err
	}
	spec := models.Spec{
		Trial: "test", Attempt: 1, Role: string(agent.RoleAgent), Dialects: needs.Dialects,
		Models: map[string]*cell.Model{"default": m},
	}
	if s.Models, err = r.open(ctx, spec); err != nil {
		return done, errors.Join(err, r.close(ctx))
	}
	s.Inside = func(ctx context.Context, t *conformance.T, shell string) map[string]model.Endpoint {
		v, _ := b.sandboxes.boxes.Load(shell)
		box, ok := v.(*host.Sandbox)
		if !ok {
			t.Fatalf("the sandbox of %s is gone", shell)
		}
		in := spec
		in.Inside = box.Listen
		session, endpoints := reach(ctx, t, r.Gateway, in)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.inside = append(r.inside, session)
		return endpoints
	}
	if s.Asked = r.asked; b.o.Replies == "" { // replies of the user's own are not the kit's model
		s.Seen = r.seen
	}
	return func() error { return r.close(ctx) }, nil
}

// judgeModels gives a verifier the models that it announces: to each case that
// has replies of its own a model that answers with them, to all others the
// kit's. done ends them.
func (b *bench) judgeModels(ctx context.Context, s *verifiertest.Subject) (done func() error, err error) {
	var rooms []*room
	done = func() error {
		var errs []error
		for _, r := range rooms {
			errs = append(errs, r.close(ctx))
		}
		return errors.Join(errs...)
	}
	open := func(name, script string) (map[string]model.Endpoint, error) {
		r, m, e := b.room(name, script)
		if e != nil {
			return nil, e
		}
		rooms = append(rooms, r)
		spec := models.Spec{Trial: "test", Attempt: 1, Role: "judge", Models: map[string]*cell.Model{}}
		for _, n := range s.Traits.Models {
			spec.Models[n] = m
		}
		return r.open(ctx, spec)
	}
	if len(s.Traits.Models) == 0 {
		return done, nil
	}
	if s.Models, err = open("g", b.o.Replies); err != nil {
		return done, errors.Join(err, done())
	}
	for i := range s.Cases {
		script := filepath.Join(s.Cases[i].Dir, verifiertest.CaseReplies)
		if _, e := os.Stat(script); e != nil {
			continue
		}
		if s.Cases[i].Request.Models, err = open(fmt.Sprint("g", i), script); err != nil {
			return done, errors.Join(err, done())
		}
	}
	return done, nil
}

// reach makes models reachable from inside a sandbox, as long as t runs.
func reach(ctx context.Context, t *conformance.T, g *gateway.Gateway, spec models.Spec) (models.Session, map[string]model.Endpoint) {
	session, err := g.Session(ctx, spec)
	if err == nil {
		err = session.Allow(ctx)
	}
	if err != nil {
		t.Fatalf("reach a model from inside a sandbox: %v", err)
	}
	t.Cleanup(func() { _ = session.Close(context.WithoutCancel(ctx)) })
	return session, session.Endpoints()
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

// verifierSubject is what the kit of verifiers is tried with.
func (b *bench) verifierSubject(ctx context.Context, name string, capabilities []string) (s verifiertest.Subject, err error) {
	v, traits, _, err := b.host.Verifier(ctx, name)
	if err != nil {
		return s, err
	}
	traits = traits.With(b.o.Config)
	// It starts here, so that clauses that cancel a call do not cancel its start. What it
	// says of its configuration is a matter of the clauses.
	_, _ = b.host.Validate(ctx, plugins.KindVerifier, name, b.o.Config)
	s = verifiertest.Subject{Verifier: v, Traits: traits, Capabilities: capabilities, Config: b.o.Config, Load: b.load}
	for _, dir := range b.o.Cases {
		cases, e := verifiertest.LoadCases(dir)
		if e != nil {
			return s, e
		}
		for _, c := range cases {
			if c.Verifier == "" || c.Verifier == name {
				s.Cases = append(s.Cases, c)
			}
		}
	}
	sandboxes, err := b.shells(ctx)
	// A verifier of the view can be tried without a sandbox.
	if err != nil && (traits.Needs != verifier.NeedsNone || !errors.Is(err, environment.ErrRefused)) {
		return s, err
	}
	if sandboxes != nil {
		s.Shell = func(ctx context.Context, t *conformance.T) string {
			a, _ := sandboxes.shell(ctx, t, order{grading: true})
			return a
		}
	}
	return s, nil
}

// checkTime is how long a Check outside of a clause may take.
const checkTime = 10 * time.Second
