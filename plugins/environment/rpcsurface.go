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

func (s *surfaceServer) Needs(ctx context.Context, r *environmentpb.SurfaceNeedsRequest) (*environmentpb.SurfaceNeedsReply, error) {
	n, err := ask(s.environments, r.GetPlugin(), "surface", r, func(e Surface, q SurfaceRequest) (SurfaceNeeds, error) { return e.Needs(ctx, q) })
	return &environmentpb.SurfaceNeedsReply{Needs: wire.Encode(&environmentpb.SurfaceNeeds{}, n)}, err
}

func (s *surfaceServer) Open(ctx context.Context, r *environmentpb.SurfaceOpenRequest) (*environmentpb.SurfaceOpenReply, error) {
	id, err := ask(s.environments, r.GetPlugin(), "surface", r.GetSpec(), func(e Surface, spec SurfaceSpec) (string, error) { return e.OpenSurface(ctx, spec) })
	return &environmentpb.SurfaceOpenReply{Id: id}, err
}

func (s *surfaceServer) Reset(ctx context.Context, r *environmentpb.ResetRequest) (*environmentpb.ResetReply, error) {
	o, err := ask(s.environments, r.GetPlugin(), "surface", r, func(e Surface, start Start) (Observation, error) { return e.Reset(ctx, r.GetId(), start) })
	return &environmentpb.ResetReply{Observation: wire.Encode(&environmentpb.SurfaceObservation{}, o)}, err
}

func (s *surfaceServer) Observe(ctx context.Context, r *environmentpb.ObserveRequest) (*environmentpb.ObserveReply, error) {
	e, err := lookup[Surface](s.environments, r.GetPlugin(), "surface")
	if err != nil {
		return nil, err
	}
	o, err := e.Observe(ctx, r.GetId(), r.GetWant())
	return &environmentpb.ObserveReply{Observation: wire.Encode(&environmentpb.SurfaceObservation{}, o)}, err
}

func (s *surfaceServer) Act(ctx context.Context, r *environmentpb.ActRequest) (*environmentpb.ActReply, error) {
	step, err := ask(s.environments, r.GetPlugin(), "surface", r, func(e Surface, call Call) (Step, error) { return e.Act(ctx, r.GetId(), call, r.GetWant()) })
	return &environmentpb.ActReply{Step: wire.Encode(&environmentpb.SurfaceStep{}, step)}, err
}

func (s *surfaceServer) Capture(ctx context.Context, r *environmentpb.CaptureRequest) (*environmentpb.CaptureReply, error) {
	type captured struct {
		Files []string `json:"files"`
	}
	files, err := ask(s.environments, r.GetPlugin(), "surface", r, func(e Surface, want Capture) ([]string, error) { return e.Capture(ctx, r.GetId(), want) })
	return wire.Encode(&environmentpb.CaptureReply{}, captured{files}), err
}

func (s *surfaceServer) Close(ctx context.Context, r *environmentpb.SurfaceCloseRequest) (*environmentpb.SurfaceCloseReply, error) {
	e, err := lookup[Surface](s.environments, r.GetPlugin(), "surface")
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
	return wire.Encode(&environmentpb.ActionsReply{}, o), err
}

func (s *sessionServer) Observe(ctx context.Context, r *environmentpb.ObserveRequest) (*environmentpb.ObserveReply, error) {
	o, err := s.session.Observe(ctx, r.GetWant())
	return &environmentpb.ObserveReply{Observation: wire.Encode(&environmentpb.SurfaceObservation{}, o)}, err
}

func (s *sessionServer) Act(ctx context.Context, r *environmentpb.ActRequest) (*environmentpb.ActReply, error) {
	// Arguments that are not JSON are the agent's mistake, and a step like others.
	step, err := s.session.Act(ctx, Call{Name: r.GetName(), Arguments: r.GetArgumentsJson(), More: r.GetMore()}, r.GetWant())
	return &environmentpb.ActReply{Step: wire.Encode(&environmentpb.SurfaceStep{}, step)}, err
}

// NewSession returns the surface of a session behind conn.
func NewSession(conn grpc.ClientConnInterface) Session {
	return sessionClient{surfaceClient{rpc: environmentpb.NewSurfaceClient(conn)}}
}

// sessionClient is the client of a surface that has no name and no id.
type sessionClient struct{ surface surfaceClient }

func (c sessionClient) Actions(ctx context.Context) (Offer, error) {
	return wire.Reply[Offer](c.surface.rpc.Actions(ctx, &environmentpb.ActionsRequest{}))
}

func (c sessionClient) Observe(ctx context.Context, want []string) (Observation, error) {
	return c.surface.Observe(ctx, "", want)
}

func (c sessionClient) Act(ctx context.Context, call Call, want []string) (Step, error) {
	return c.surface.Act(ctx, "", call, want)
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
	return wire.Reply[SurfaceNeeds](reply.GetNeeds(), err)
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
	return wire.Reply[Observation](reply.GetObservation(), err)
}

func (c *surfaceClient) Observe(ctx context.Context, id string, want []string) (Observation, error) {
	reply, err := c.rpc.Observe(ctx, &environmentpb.ObserveRequest{Plugin: c.plugin, Id: id, Want: want})
	return wire.Reply[Observation](reply.GetObservation(), err)
}

func (c *surfaceClient) Act(ctx context.Context, id string, call Call, want []string) (Step, error) {
	reply, err := c.rpc.Act(ctx, wire.Encode(&environmentpb.ActRequest{Plugin: c.plugin, Id: id, Want: want}, call))
	return wire.Reply[Step](reply.GetStep(), err)
}

func (c *surfaceClient) Capture(ctx context.Context, id string, w Capture) ([]string, error) {
	reply, err := c.rpc.Capture(ctx, wire.Encode(&environmentpb.CaptureRequest{Plugin: c.plugin, Id: id}, w))
	return reply.GetFiles(), err
}

func (c *surfaceClient) CloseSurface(ctx context.Context, id string) error {
	_, err := c.rpc.Close(ctx, &environmentpb.SurfaceCloseRequest{Plugin: c.plugin, Id: id})
	return err
}
