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

func (s *surfaceServer) Open(ctx context.Context, r *environmentpb.SurfaceOpenRequest) (*environmentpb.SurfaceOpenReply, error) {
	e, err := s.surface(r.GetPlugin())
	if err != nil {
		return nil, err
	}
	spec, err := surfaceSpecFromProto(r.GetSpec())
	if err != nil {
		return nil, err
	}
	id, err := e.OpenSurface(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &environmentpb.SurfaceOpenReply{Id: id}, nil
}

func (s *surfaceServer) Actions(ctx context.Context, r *environmentpb.ActionsRequest) (*environmentpb.ActionsReply, error) {
	e, err := s.surface(r.GetPlugin())
	if err != nil {
		return nil, err
	}
	actions, err := e.Actions(ctx, r.GetId())
	if err != nil {
		return nil, err
	}
	return &environmentpb.ActionsReply{Actions: wire.Each(actions, actionToProto)}, nil
}

func (s *surfaceServer) Reset(ctx context.Context, r *environmentpb.ResetRequest) (*environmentpb.ResetReply, error) {
	e, err := s.surface(r.GetPlugin())
	if err != nil {
		return nil, err
	}
	o, err := e.Reset(ctx, r.GetId(), r.GetSeed())
	if err != nil {
		return nil, err
	}
	return &environmentpb.ResetReply{Observation: observationToProto(o)}, nil
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
	return &environmentpb.ObserveReply{Observation: observationToProto(o)}, nil
}

func (s *surfaceServer) Act(ctx context.Context, r *environmentpb.ActRequest) (*environmentpb.ActReply, error) {
	e, err := s.surface(r.GetPlugin())
	if err != nil {
		return nil, err
	}
	arguments, err := wire.JSON("arguments", r.GetArgumentsJson())
	if err != nil {
		return nil, err
	}
	step, err := e.Act(ctx, r.GetId(), Call{Name: r.GetName(), Arguments: arguments})
	if err != nil {
		return nil, err
	}
	return &environmentpb.ActReply{Step: stepToProto(step)}, nil
}

func (s *surfaceServer) Capture(ctx context.Context, r *environmentpb.CaptureRequest) (*environmentpb.CaptureReply, error) {
	e, err := s.surface(r.GetPlugin())
	if err != nil {
		return nil, err
	}
	files, err := e.Capture(ctx, r.GetId(), r.GetName(), r.GetFolder())
	if err != nil {
		return nil, err
	}
	return &environmentpb.CaptureReply{Files: wire.Texts(files)}, nil
}

func (s *surfaceServer) Close(ctx context.Context, r *environmentpb.SurfaceCloseRequest) (*environmentpb.SurfaceCloseReply, error) {
	e, err := s.surface(r.GetPlugin())
	if err != nil {
		return nil, err
	}
	return &environmentpb.SurfaceCloseReply{}, e.CloseSurface(ctx, r.GetId())
}

// NewSurfaceClient returns the surface behind conn: the surface of a plugin,
// for the core, or, with an empty name, the surface that the core offers to an
// agent, whose steps have neither reward nor info.
func NewSurfaceClient(conn grpc.ClientConnInterface, plugin string) Surface {
	return &surfaceClient{rpc: environmentpb.NewSurfaceClient(conn), plugin: plugin}
}

type surfaceClient struct {
	rpc    environmentpb.SurfaceClient
	plugin string
}

func (c *surfaceClient) OpenSurface(ctx context.Context, spec SurfaceSpec) (string, error) {
	reply, err := c.rpc.Open(ctx, &environmentpb.SurfaceOpenRequest{Plugin: c.plugin, Spec: surfaceSpecToProto(spec)})
	if err == nil && reply.GetId() == "" {
		err = wire.Invalid("environment %q opened a surface without an id", c.plugin)
	}
	return reply.GetId(), err
}

func (c *surfaceClient) Actions(ctx context.Context, id string) ([]Action, error) {
	reply, err := c.rpc.Actions(ctx, &environmentpb.ActionsRequest{Plugin: c.plugin, Id: id})
	if err != nil {
		return nil, err
	}
	return wire.EachErr(reply.GetActions(), actionFromProto)
}

func (c *surfaceClient) Reset(ctx context.Context, id string, seed int64) (Observation, error) {
	reply, err := c.rpc.Reset(ctx, &environmentpb.ResetRequest{Plugin: c.plugin, Id: id, Seed: seed})
	if err != nil {
		return Observation{}, err
	}
	return observationFromProto(reply.GetObservation())
}

func (c *surfaceClient) Observe(ctx context.Context, id string, want []string) (Observation, error) {
	reply, err := c.rpc.Observe(ctx, &environmentpb.ObserveRequest{Plugin: c.plugin, Id: id, Want: want})
	if err != nil {
		return Observation{}, err
	}
	return observationFromProto(reply.GetObservation())
}

func (c *surfaceClient) Act(ctx context.Context, id string, call Call) (Step, error) {
	reply, err := c.rpc.Act(ctx, &environmentpb.ActRequest{Plugin: c.plugin, Id: id, Name: call.Name, ArgumentsJson: call.Arguments})
	if err != nil {
		return Step{}, err
	}
	return stepFromProto(reply.GetStep())
}

func (c *surfaceClient) Capture(ctx context.Context, id, name, folder string) ([]string, error) {
	reply, err := c.rpc.Capture(ctx, &environmentpb.CaptureRequest{Plugin: c.plugin, Id: id, Name: name, Folder: folder})
	return reply.GetFiles(), err
}

func (c *surfaceClient) CloseSurface(ctx context.Context, id string) error {
	_, err := c.rpc.Close(ctx, &environmentpb.SurfaceCloseRequest{Plugin: c.plugin, Id: id})
	return err
}
