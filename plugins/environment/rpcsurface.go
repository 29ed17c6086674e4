package environment

import (
	"context"

	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins/internal/wire"
	"github.com/berth-eval/berth/plugins/proto/v1/environmentpb"
)

// NewSurfaceServer returns the gRPC service of the environments' surfaces, by
// name. A plugin serves it next to NewServer.
func NewSurfaceServer(environments map[string]Environment) environmentpb.SurfaceServer {
	return &surfaceServer{environments: environments}
}

type surfaceServer struct {
	environmentpb.UnimplementedSurfaceServer
	environments map[string]Environment
}

func (s *surfaceServer) surface(name string) (Surface, error) {
	return lookup[Surface](s.environments, name, "surface")
}

func (s *surfaceServer) Needs(ctx context.Context, r *environmentpb.SurfaceNeedsRequest) (*environmentpb.SurfaceNeedsReply, error) {
	e, err := s.surface(r.GetPlugin())
	if err != nil {
		return nil, err
	}
	q, err := wire.Decode[SurfaceRequest](r)
	if err != nil {
		return nil, err
	}
	n, err := e.Needs(ctx, q)
	if err != nil {
		return nil, err
	}
	return &environmentpb.SurfaceNeedsReply{Needs: wire.Encode(&environmentpb.SurfaceNeeds{}, n)}, nil
}

func (s *surfaceServer) Open(ctx context.Context, r *environmentpb.SurfaceOpenRequest) (*environmentpb.SurfaceOpenReply, error) {
	e, err := s.surface(r.GetPlugin())
	if err != nil {
		return nil, err
	}
	spec, err := wire.Decode[SurfaceSpec](r.GetSpec())
	if err != nil {
		return nil, err
	}
	id, err := e.OpenSurface(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &environmentpb.SurfaceOpenReply{Id: id}, nil
}

func (s *surfaceServer) Reset(ctx context.Context, r *environmentpb.ResetRequest) (*environmentpb.ResetReply, error) {
	e, err := s.surface(r.GetPlugin())
	if err != nil {
		return nil, err
	}
	start, err := wire.Decode[Start](r)
	if err != nil {
		return nil, err
	}
	o, err := e.Reset(ctx, r.GetId(), start)
	if err != nil {
		return nil, err
	}
	return &environmentpb.ResetReply{Observation: wire.Encode(&environmentpb.SurfaceObservation{}, o)}, nil
}

func (s *surfaceServer) Observe(ctx context.Context, r *environmentpb.ObserveRequest) (*environmentpb.ObserveReply, error) {
	e, err := s.surface(r.GetPlugin())
	if err != nil {
		return nil, err
	}
	o, err := e.Observe(ctx, r.GetId(), r.GetWant())
	if err != nil {
		return nil, err
	}
	return &environmentpb.ObserveReply{Observation: wire.Encode(&environmentpb.SurfaceObservation{}, o)}, nil
}

func (s *surfaceServer) Act(ctx context.Context, r *environmentpb.ActRequest) (*environmentpb.ActReply, error) {
	e, err := s.surface(r.GetPlugin())
	if err != nil {
		return nil, err
	}
	call, err := wire.Decode[Call](r)
	if err != nil {
		return nil, err
	}
	step, err := e.Act(ctx, r.GetId(), call, r.GetWant())
	if err != nil {
		return nil, err
	}
	return &environmentpb.ActReply{Step: wire.Encode(&environmentpb.SurfaceStep{}, step)}, nil
}

func (s *surfaceServer) Capture(ctx context.Context, r *environmentpb.CaptureRequest) (*environmentpb.CaptureReply, error) {
	e, err := s.surface(r.GetPlugin())
	if err != nil {
		return nil, err
	}
	want, err := wire.Decode[Capture](r)
	if err != nil {
		return nil, err
	}
	files, err := e.Capture(ctx, r.GetId(), want)
	if err != nil {
		return nil, err
	}
	return wire.Encode(&environmentpb.CaptureReply{}, struct {
		Files []string `json:"files"`
	}{files}), nil
}

func (s *surfaceServer) Close(ctx context.Context, r *environmentpb.SurfaceCloseRequest) (*environmentpb.SurfaceCloseReply, error) {
	e, err := s.surface(r.GetPlugin())
	if err != nil {
		return nil, err
	}
	return &environmentpb.SurfaceCloseReply{}, e.CloseSurface(ctx, r.GetId())
}

// Offer is what a surface lets an agent do in a stage.
type Offer struct {
	Actions      []Action `json:"actions"`
	Observations []string `json:"observations"`    // the kinds that Observe returns
	Steps        int64    `json:"steps,omitempty"` // how many actions the stage allows; 0: no bound
}

// Session is the surface that the core serves to one session of an agent, and
// what an agent sees of it.
type Session interface {
	// Actions returns what the agent can do.
	Actions(ctx context.Context) (Offer, error)
	// Observe returns the current observation, of the kinds of want; empty: all
	// of the task.
	Observe(ctx context.Context, want []string) (Observation, error)
	// Act performs one action. The step has neither reward nor info.
	Act(ctx context.Context, call Call, want []string) (Step, error)
}

// NewSessionServer returns the gRPC service of a session.
func NewSessionServer(s Session) environmentpb.SurfaceServer { return &sessionServer{session: s} }

type sessionServer struct {
	environmentpb.UnimplementedSurfaceServer
	session Session
}

func (s *sessionServer) Actions(ctx context.Context, _ *environmentpb.ActionsRequest) (*environmentpb.ActionsReply, error) {
	o, err := s.session.Actions(ctx)
	if err != nil {
		return nil, err
	}
	return wire.Encode(&environmentpb.ActionsReply{}, o), nil
}

func (s *sessionServer) Observe(ctx context.Context, r *environmentpb.ObserveRequest) (*environmentpb.ObserveReply, error) {
	o, err := s.session.Observe(ctx, r.GetWant())
	if err != nil {
		return nil, err
	}
	return &environmentpb.ObserveReply{Observation: wire.Encode(&environmentpb.SurfaceObservation{}, o)}, nil
}

func (s *sessionServer) Act(ctx context.Context, r *environmentpb.ActRequest) (*environmentpb.ActReply, error) {
	// Arguments that are not JSON are the agent's mistake, and a step like others.
	step, err := s.session.Act(ctx, Call{Name: r.GetName(), Arguments: r.GetArgumentsJson(), More: r.GetMore()}, r.GetWant())
	if err != nil {
		return nil, err
	}
	return &environmentpb.ActReply{Step: wire.Encode(&environmentpb.SurfaceStep{}, step)}, nil
}

// NewSession returns the surface of a session behind conn.
func NewSession(conn grpc.ClientConnInterface) Session {
	return sessionClient{environmentpb.NewSurfaceClient(conn)}
}

type sessionClient struct{ rpc environmentpb.SurfaceClient }

func (c sessionClient) Actions(ctx context.Context) (Offer, error) {
	reply, err := c.rpc.Actions(ctx, &environmentpb.ActionsRequest{})
	if err != nil {
		return Offer{}, err
	}
	return wire.Decode[Offer](reply)
}

func (c sessionClient) Observe(ctx context.Context, want []string) (Observation, error) {
	reply, err := c.rpc.Observe(ctx, &environmentpb.ObserveRequest{Want: want})
	if err != nil {
		return Observation{}, err
	}
	return wire.Decode[Observation](reply.GetObservation())
}

func (c sessionClient) Act(ctx context.Context, call Call, want []string) (Step, error) {
	reply, err := c.rpc.Act(ctx, wire.Encode(&environmentpb.ActRequest{Want: want}, call))
	if err != nil {
		return Step{}, err
	}
	return wire.Decode[Step](reply.GetStep())
}

// newSurfaceClient returns the surface of a plugin, for the core.
func newSurfaceClient(conn grpc.ClientConnInterface, plugin string) Surface {
	return &surfaceClient{rpc: environmentpb.NewSurfaceClient(conn), plugin: plugin}
}

type surfaceClient struct {
	rpc    environmentpb.SurfaceClient
	plugin string
}

func (c *surfaceClient) Needs(ctx context.Context, r SurfaceRequest) (SurfaceNeeds, error) {
	reply, err := c.rpc.Needs(ctx, wire.Encode(&environmentpb.SurfaceNeedsRequest{Plugin: c.plugin}, r))
	if err != nil {
		return SurfaceNeeds{}, err
	}
	return wire.Decode[SurfaceNeeds](reply.GetNeeds())
}

func (c *surfaceClient) OpenSurface(ctx context.Context, spec SurfaceSpec) (string, error) {
	reply, err := c.rpc.Open(ctx, &environmentpb.SurfaceOpenRequest{Plugin: c.plugin, Spec: wire.Encode(&environmentpb.SurfaceSpec{}, spec)})
	if err == nil && reply.GetId() == "" {
		err = wire.Invalid("environment %q opened a surface without an id", c.plugin)
	}
	return reply.GetId(), err
}

func (c *surfaceClient) Reset(ctx context.Context, id string, start Start) (Observation, error) {
	reply, err := c.rpc.Reset(ctx, wire.Encode(&environmentpb.ResetRequest{Plugin: c.plugin, Id: id}, start))
	if err != nil {
		return Observation{}, err
	}
	return wire.Decode[Observation](reply.GetObservation())
}

func (c *surfaceClient) Observe(ctx context.Context, id string, want []string) (Observation, error) {
	reply, err := c.rpc.Observe(ctx, &environmentpb.ObserveRequest{Plugin: c.plugin, Id: id, Want: want})
	if err != nil {
		return Observation{}, err
	}
	return wire.Decode[Observation](reply.GetObservation())
}

func (c *surfaceClient) Act(ctx context.Context, id string, call Call, want []string) (Step, error) {
	reply, err := c.rpc.Act(ctx, wire.Encode(&environmentpb.ActRequest{Plugin: c.plugin, Id: id, Want: want}, call))
	if err != nil {
		return Step{}, err
	}
	return wire.Decode[Step](reply.GetStep())
}

func (c *surfaceClient) Capture(ctx context.Context, id string, w Capture) ([]string, error) {
	reply, err := c.rpc.Capture(ctx, wire.Encode(&environmentpb.CaptureRequest{Plugin: c.plugin, Id: id}, w))
	return reply.GetFiles(), err
}

func (c *surfaceClient) CloseSurface(ctx context.Context, id string) error {
	_, err := c.rpc.Close(ctx, &environmentpb.SurfaceCloseRequest{Plugin: c.plugin, Id: id})
	return err
}
