package environment

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/internal/wire"
	"github.com/berth-eval/berth/plugins/proto/v1/environmentpb"
)

// Capabilities returns the capabilities of e, sorted by name: those whose
// methods it has, and those that its author declares.
func Capabilities(e Environment, declared ...string) []string {
	list := slices.Clone(declared)
	if _, ok := e.(Preparer); ok {
		list = append(list, CapabilityImages)
	}
	if _, ok := e.(Keeper); ok {
		list = append(list, CapabilityImageGC)
	}
	if _, ok := e.(Surface); ok {
		list = append(list, CapabilitySurface)
	}
	if _, ok := e.(surfaceOnly); ok {
		list = append(list, CapabilityNoSandboxes)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// NewServer returns the gRPC service of the environments, by name. An
// interceptor must encode the errors that its methods return; plugins.Serve
// installs it.
func NewServer(environments map[string]Environment) environmentpb.EnvironmentServer {
	return &server{environments: environments}
}

type server struct {
	environmentpb.UnimplementedEnvironmentServer
	environments map[string]Environment
}

// lookup returns the environment of that name as a T, the interface of an
// optional capability.
func lookup[T any](environments map[string]Environment, name, what string) (T, error) {
	var none T
	e, ok := environments[name]
	if !ok {
		return none, fmt.Errorf("environment %q: %w", name, fault.ErrUnknownPlugin)
	}
	t, ok := e.(T)
	if !ok {
		return none, fmt.Errorf("environment %q: %s: %w", name, what, ErrUnsupported)
	}
	return t, nil
}

// ask answers one call of a plugin: do gets the environment of that name as a T, and
// what the message holds.
func ask[T, In, Out any](environments map[string]Environment, name, what string, m proto.Message, do func(T, In) (Out, error)) (out Out, err error) {
	e, err := lookup[T](environments, name, what)
	if err != nil {
		return out, err
	}
	in, err := wire.Decode[In](m)
	if err != nil {
		return out, err
	}
	return do(e, in)
}

func (s *server) Check(ctx context.Context, r *environmentpb.EnvironmentCheckRequest) (*environmentpb.EnvironmentCheckReply, error) {
	report, err := ask(s.environments, r.GetPlugin(), "check", r.GetSpec(), func(e Environment, spec Spec) (Report, error) { return e.Check(ctx, spec) })
	return wire.Encode(&environmentpb.EnvironmentCheckReply{}, report), err
}

func (s *server) Create(stream grpc.BidiStreamingServer[environmentpb.CreateRequest, environmentpb.CreateReply]) (err error) {
	ctx := stream.Context()
	r, err := stream.Recv()
	if err != nil {
		return err
	}
	e, err := lookup[Environment](s.environments, r.GetPlugin(), "create")
	if err != nil {
		return err
	}
	spec, err := wire.Decode[Spec](r.GetSpec())
	if err != nil {
		return err
	}
	made, err := e.Create(ctx, spec)
	if err != nil {
		return err
	}
	if made.ID == "" {
		return fmt.Errorf("%w: environment %q made a sandbox without an id", fault.ErrPanic, r.GetPlugin())
	}
	err = stream.Send(&environmentpb.CreateReply{Sandbox: wire.Encode(&environmentpb.SandboxMade{}, made)})
	if err == nil {
		// A cancel may cross with this answer. Only a confirmation from the
		// core says that it has the sandbox.
		r, err = stream.Recv()
	}
	if err == nil && r.GetTaken() {
		return nil
	}
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTime)
	defer cancel()
	_, gone := e.Destroy(cleanup, made.ID)
	return errors.Join(fmt.Errorf("the core did not confirm sandbox %q: %w", made.ID, cmp.Or(err, context.Canceled)), gone)
}

// abandonTime bounds the removal of a sandbox that the core did not confirm.
const abandonTime = 30 * time.Second

func (s *server) Destroy(ctx context.Context, r *environmentpb.DestroyRequest) (*environmentpb.DestroyReply, error) {
	e, err := lookup[Environment](s.environments, r.GetPlugin(), "destroy")
	if err != nil {
		return nil, err
	}
	remains, err := e.Destroy(ctx, r.GetId())
	return wire.Encode(&environmentpb.DestroyReply{}, remains), err
}

func (s *server) List(ctx context.Context, r *environmentpb.ListRequest) (*environmentpb.ListReply, error) {
	e, err := lookup[Environment](s.environments, r.GetPlugin(), "list")
	if err != nil {
		return nil, err
	}
	ids, err := e.List(ctx, r.GetOwner())
	return &environmentpb.ListReply{Ids: ids}, err
}

// prepared is what a request of Prepare has.
type prepared struct {
	Image  Image           `json:"image"`
	Config json.RawMessage `json:"config"`
}

func (s *server) Prepare(r *environmentpb.PrepareRequest, stream grpc.ServerStreamingServer[environmentpb.PrepareEvent]) error {
	e, err := lookup[Preparer](s.environments, r.GetPlugin(), "prepare")
	if err != nil {
		return err
	}
	in, err := wire.Decode[prepared](r)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	closed := false
	image, err := e.Prepare(stream.Context(), in.Image, in.Config, func(line string) {
		mu.Lock()
		defer mu.Unlock()
		for _, piece := range wire.Lines(line) {
			if closed || stream.Send(&environmentpb.PrepareEvent{Event: &environmentpb.PrepareEvent_Log{Log: piece}}) != nil {
				return // the caller is gone; Prepare sees that its context ended
			}
		}
	})
	mu.Lock()
	closed = true
	mu.Unlock()
	if err != nil {
		return err
	}
	return stream.Send(&environmentpb.PrepareEvent{Event: &environmentpb.PrepareEvent_Image{Image: wire.Encode(&environmentpb.SandboxImage{}, image)}})
}

func (s *server) Kept(ctx context.Context, r *environmentpb.KeptRequest) (*environmentpb.KeptReply, error) {
	e, err := lookup[Keeper](s.environments, r.GetPlugin(), "kept")
	if err != nil {
		return nil, err
	}
	images, err := e.Kept(ctx)
	reply := &environmentpb.KeptReply{}
	for _, im := range images {
		reply.Images = append(reply.Images, wire.Encode(&environmentpb.KeptImage{}, im))
	}
	return reply, err
}

func (s *server) Drop(ctx context.Context, r *environmentpb.DropRequest) (*environmentpb.DropReply, error) {
	e, err := lookup[Keeper](s.environments, r.GetPlugin(), "drop")
	if err != nil {
		return nil, err
	}
	dropped, err := e.Drop(ctx, r.GetRef())
	return &environmentpb.DropReply{Dropped: dropped}, err
}
