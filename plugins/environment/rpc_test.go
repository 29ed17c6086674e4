package environment_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/internal/servetest"
	"github.com/berth-eval/berth/plugins/proto/v1/environmentpb"
)

// mock makes sandboxes of nothing.
type mock struct {
	mu        sync.Mutex
	alive     []string
	destroyed []string
	create    func(context.Context, environment.Spec) (environment.Sandbox, error)
}

func (m *mock) Check(_ context.Context, s environment.Spec) (environment.Report, error) {
	return environment.Report{Refusals: []environment.Problem{{Summary: s.Workdir, Detail: string(s.Network.Mode)}}}, nil
}

func (m *mock) Create(ctx context.Context, s environment.Spec) (environment.Sandbox, error) {
	if m.create != nil {
		return m.create(ctx, s)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	id := fmt.Sprintf("%s-%d", s.Labels.Owner, len(m.alive))
	m.alive = append(m.alive, id)
	return environment.Sandbox{ID: id, Granted: environment.Granted{CPU: environment.GrantEnforced}}, nil
}

func (m *mock) Destroy(_ context.Context, id string) (environment.Remains, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.destroyed = append(m.destroyed, id)
	return environment.Remains{OOMKills: 3}, nil
}

func (m *mock) List(context.Context, string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.alive), nil
}

func (m *mock) gone() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.destroyed)
}

// The optional abilities.
type (
	images  struct{}
	keeper  struct{}
	surface struct{}
)

func (images) Prepare(_ context.Context, i environment.Image, config json.RawMessage, log func(string)) (environment.Image, error) {
	log("pulling with " + string(config))
	i.Digest = "sha256:made"
	return i, nil
}

// kept are images with and without what need not be known.
var kept = []environment.KeptImage{{Ref: "a", SizeMiB: 3, Used: time.UnixMilli(1_700_000_000_123).UTC(), InUse: true}, {Ref: "b"}}

func (keeper) Kept(context.Context) ([]environment.KeptImage, error) { return kept, nil }

func (keeper) Drop(_ context.Context, ref string) (bool, error) { return ref == "b", nil }

func (surface) OpenSurface(_ context.Context, s environment.SurfaceSpec) (string, error) {
	return "on-" + s.Sandbox, nil
}

func (surface) Needs(_ context.Context, r environment.SurfaceRequest) (environment.SurfaceNeeds, error) {
	return environment.SurfaceNeeds{Observations: []string{r.Level}, Actions: []environment.Action{{Name: "click", Schema: r.Settings}}}, nil
}

func (surface) Reset(_ context.Context, _ string, s environment.Start) (environment.Observation, error) {
	return environment.Observation{Text: fmt.Sprint(s.Level, " seed ", s.Seed, s.Want)}, nil
}

func (surface) Observe(_ context.Context, _ string, want []string) (environment.Observation, error) {
	return environment.Observation{Text: fmt.Sprint(want)}, nil
}

func (surface) Act(_ context.Context, _ string, c environment.Call, want []string) (environment.Step, error) {
	zero := 0.0
	return environment.Step{Observation: environment.Observation{Text: c.Name + string(c.Arguments) + fmt.Sprint(want)}, Reward: &zero, Done: true}, nil
}

func (surface) Capture(_ context.Context, _ string, c environment.Capture) ([]string, error) {
	return []string{c.Folder, c.Name, string(c.Settings)}, nil
}

func (surface) CloseSurface(context.Context, string) error { return nil }

func connect(t *testing.T, e environment.Environment) environment.Environment {
	t.Helper()
	conn := servetest.Dial(t, func(s *grpc.Server) {
		list := map[string]environment.Environment{"it": e}
		environmentpb.RegisterEnvironmentServer(s, environment.NewServer(list))
		environmentpb.RegisterSurfaceServer(s, environment.NewSurfaceServer(list))
	})
	return environment.NewClient(conn, "it")
}

func spec() environment.Spec {
	return environment.Spec{
		Labels: environment.Labels{Owner: "run"}, Workdir: "/app", Network: environment.Network{Mode: environment.NetworkNone},
	}
}

func TestTheRequiredCalls(t *testing.T) {
	t.Parallel()
	m := &mock{}
	e := connect(t, m)
	report, err := e.Check(t.Context(), spec())
	if err != nil || len(report.Refusals) != 1 || report.Refusals[0] != (environment.Problem{Summary: "/app", Detail: "none"}) {
		t.Errorf("Check = %+v, %v", report, err)
	}
	made, err := e.Create(t.Context(), spec())
	if err != nil || made.ID != "run-0" || made.Granted.CPU != environment.GrantEnforced || len(m.gone()) != 0 {
		t.Fatalf("Create = %+v, %v, destroyed %v", made, err, m.gone())
	}
	if ids, bad := e.List(t.Context(), "run"); bad != nil || !slices.Equal(ids, []string{"run-0"}) {
		t.Errorf("List = %v, %v", ids, bad)
	}
	if remains, bad := e.Destroy(t.Context(), made.ID); bad != nil || remains.OOMKills != 3 {
		t.Errorf("Destroy = %+v, %v", remains, bad)
	}
	if _, err = e.Check(t.Context(), environment.Spec{}); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("Check without a network mode = %v, want ErrInvalid", err)
	}
}

func TestCapabilitiesAreThoseOfTheTypeAndThoseDeclared(t *testing.T) {
	t.Parallel()
	m := &mock{}
	for _, tt := range []struct {
		e        environment.Environment
		declared []string
		want     []string
	}{
		{e: m},
		{e: m, declared: []string{"sidecars"}, want: []string{"sidecars"}},
		{e: struct {
			*mock
			images
		}{m, images{}}, declared: []string{"sidecars"}, want: []string{"images", "sidecars"}},
		{e: struct {
			*mock
			images
			keeper
			surface
		}{m, images{}, keeper{}, surface{}}, declared: []string{"images"}, want: []string{"image_gc", "images", "surface"}},
	} {
		if got := environment.Capabilities(tt.e, tt.declared...); !slices.Equal(got, tt.want) {
			t.Errorf("a %T that declares %v has %v, want %v", tt.e, tt.declared, got, tt.want)
		}
	}
}

func TestACapabilityThatIsNotThereIsUnsupported(t *testing.T) {
	t.Parallel()
	conn := servetest.Dial(t, func(s *grpc.Server) {
		list := map[string]environment.Environment{"it": &mock{}}
		environmentpb.RegisterEnvironmentServer(s, environment.NewServer(list))
		environmentpb.RegisterSurfaceServer(s, environment.NewSurfaceServer(list))
	})
	liar, ok := environment.NewClient(conn, "it").(interface {
		environment.Preparer
		environment.Keeper
		environment.Surface
	})
	if !ok {
		t.Fatal("an announced capability is not there")
	}
	_, prepare := liar.Prepare(t.Context(), environment.Image{}, nil, nil)
	_, list := liar.Kept(t.Context())
	_, drop := liar.Drop(t.Context(), "x")
	_, act := liar.Act(t.Context(), "x", environment.Call{}, nil)
	for what, err := range map[string]error{"prepare": prepare, "kept": list, "drop": drop, "act": act} {
		if !errors.Is(err, environment.ErrUnsupported) {
			t.Errorf("%s = %v, want ErrUnsupported", what, err)
		}
	}
}

func TestImagesArePrepared(t *testing.T) {
	t.Parallel()
	e, ok := connect(t, struct {
		*mock
		images
	}{&mock{}, images{}}).(interface {
		environment.Preparer
	})
	if !ok {
		t.Fatal("a capability is lost")
	}
	var logs []string
	image, err := e.Prepare(t.Context(), environment.Image{Ref: "r"}, json.RawMessage(`{}`), func(line string) { logs = append(logs, line) })
	if err != nil || !reflect.DeepEqual(image, environment.Image{Ref: "r", Digest: "sha256:made"}) || !slices.Equal(logs, []string{"pulling with {}"}) {
		t.Errorf("Prepare = %+v, %v with logs %q", image, err, logs)
	}
}

func TestKeptImages(t *testing.T) {
	t.Parallel()
	e, ok := connect(t, struct {
		*mock
		images
		keeper
	}{&mock{}, images{}, keeper{}}).(environment.Keeper)
	if !ok {
		t.Fatal("the capability image_gc is lost")
	}
	if got, err := e.Kept(t.Context()); err != nil || !slices.Equal(got, kept) {
		t.Errorf("Kept = %+v, %v; want %+v", got, err, kept)
	}
	for ref, want := range map[string]bool{"a": false, "b": true} {
		if got, err := e.Drop(t.Context(), ref); err != nil || got != want {
			t.Errorf("Drop of %s = %v, %v; want %v", ref, got, err, want)
		}
	}
}

func TestSurface(t *testing.T) {
	t.Parallel()
	s, ok := connect(t, struct {
		*mock
		surface
	}{&mock{}, surface{}}).(environment.Surface)
	if !ok {
		t.Fatal("the capability surface is lost")
	}
	id, err := s.OpenSurface(t.Context(), environment.SurfaceSpec{Sandbox: "box"})
	if err != nil || id != "on-box" {
		t.Fatalf("OpenSurface = %q, %v", id, err)
	}
	n, bad := s.Needs(t.Context(), environment.SurfaceRequest{Level: "hard", Settings: json.RawMessage(`{"a":1}`)})
	if bad != nil || len(n.Actions) != 1 || string(n.Actions[0].Schema) != `{"a":1}` || !slices.Equal(n.Observations, []string{"hard"}) {
		t.Errorf("Needs = %+v, %v", n, bad)
	}
	if _, bad = s.Needs(t.Context(), environment.SurfaceRequest{Config: json.RawMessage(`{`)}); !errors.Is(bad, fault.ErrInvalid) {
		t.Errorf("Needs of broken JSON = %v, want ErrInvalid", bad)
	}
	if o, bad := s.Reset(t.Context(), id, environment.Start{Level: "hard", Seed: 4, Want: []string{"tree"}}); bad != nil || o.Text != "hard seed 4 [tree]" {
		t.Errorf("Reset = %+v, %v", o, bad)
	}
	if o, bad := s.Observe(t.Context(), id, []string{"tree"}); bad != nil || o.Text != "[tree]" {
		t.Errorf("Observe = %+v, %v", o, bad)
	}
	step, err := s.Act(t.Context(), id, environment.Call{Name: "click", Arguments: json.RawMessage(`{"x":1}`)}, []string{"tree"})
	if err != nil || step.Observation.Text != `click{"x":1}[tree]` || step.Reward == nil || *step.Reward != 0 || !step.Done {
		t.Errorf("Act = %+v, %v; want a reward of 0, which is not none", step, err)
	}
	if _, err = s.Act(t.Context(), id, environment.Call{Name: "click", Arguments: json.RawMessage(`{`)}, nil); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("Act with broken arguments = %v, want ErrInvalid", err)
	}
	if files, bad := s.Capture(t.Context(), id, environment.Capture{Name: "page", Folder: "/to", Settings: json.RawMessage(`{}`)}); bad != nil || !slices.Equal(files, []string{"/to", "page", "{}"}) {
		t.Errorf("Capture = %v, %v", files, bad)
	}
	if err = s.CloseSurface(t.Context(), id); err != nil {
		t.Errorf("CloseSurface = %v", err)
	}
}

// A sandbox that was made while the caller gave up must not live on unknown.
func TestASandboxThatNobodyTakesIsDestroyed(t *testing.T) {
	t.Parallel()
	m, begun := &mock{}, make(chan struct{})
	m.create = func(ctx context.Context, _ environment.Spec) (environment.Sandbox, error) {
		close(begun)
		<-ctx.Done() // made all the same
		return environment.Sandbox{ID: "orphan"}, nil
	}
	e := connect(t, m)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := e.Create(ctx, spec())
		ended <- err
	}()
	<-begun
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Create = %v, want context.Canceled", err)
	}
	testlevel.Eventually(t, "a sandbox is destroyed", func() bool { return len(m.gone()) > 0 })
	if got := m.gone(); !slices.Equal(got, []string{"orphan"}) {
		t.Errorf("destroyed %v, want the orphan", got)
	}
}

func TestErrorsOfCreateKeepTheirMeaning(t *testing.T) {
	t.Parallel()
	m := &mock{create: func(context.Context, environment.Spec) (environment.Sandbox, error) {
		return environment.Sandbox{}, fmt.Errorf("32 run already: %w", environment.ErrNoCapacity)
	}}
	if _, err := connect(t, m).Create(t.Context(), spec()); !errors.Is(err, environment.ErrNoCapacity) {
		t.Errorf("Create = %v, want ErrNoCapacity", err)
	}
	m.create = func(context.Context, environment.Spec) (environment.Sandbox, error) {
		return environment.Sandbox{}, nil
	}
	if _, err := connect(t, m).Create(t.Context(), spec()); !errors.Is(err, fault.ErrPanic) {
		t.Errorf("Create without an id = %v, want ErrPanic", err)
	}
}

// A plugin may have a surface and make no sandboxes.
func TestAPluginWithASurfaceOnly(t *testing.T) {
	t.Parallel()
	e := environment.SurfaceOnly(surface{})
	if got, want := environment.Capabilities(e), []string{"no_sandboxes", "surface"}; !slices.Equal(got, want) {
		t.Errorf("its capabilities are %q, want %q", got, want)
	}
	c := connect(t, e)
	report, err := c.Check(t.Context(), spec())
	if err != nil || len(report.Refusals) != 1 {
		t.Errorf("Check = %+v, %v; want a refusal", report, err)
	}
	if _, err = c.Create(t.Context(), spec()); !errors.Is(err, environment.ErrRefused) {
		t.Errorf("Create = %v, want ErrRefused", err)
	}
	if ids, err := c.List(t.Context(), ""); err != nil || len(ids) > 0 {
		t.Errorf("List = %q, %v; want nothing", ids, err)
	}
}
