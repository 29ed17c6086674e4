package environment

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// NewClient returns the environment of that name behind conn. An interceptor of
// conn must decode the errors. The value always implements Preparer, Keeper,
// and Surface. capabilities are those that Describe announced, for
// Has; the methods of other capabilities fail with ErrUnsupported.
func NewClient(conn grpc.ClientConnInterface, plugin string, capabilities ...string) Environment {
	return &client{
		Surface: newSurfaceClient(conn, plugin), rpc: environmentpb.NewEnvironmentClient(conn), plugin: plugin, capabilities: capabilities,
	}
}

// Has reports whether an environment has a capability: its plugin announced it,
// or, for one that is not a client, its type has the methods.
func Has(e Environment, capability string) bool {
	if c, ok := e.(*client); ok {
		return slices.Contains(c.capabilities, capability)
	}
	return slices.Contains(Capabilities(e), capability)
}

type client struct {
	Surface

	rpc          environmentpb.EnvironmentClient
	plugin       string
	capabilities []string
}

var (
	_ Preparer = (*client)(nil)
	_ Keeper   = (*client)(nil)
)

func (c *client) Check(ctx context.Context, spec Spec) (Report, error) {
	return wire.Reply[Report](c.rpc.Check(ctx, &environmentpb.EnvironmentCheckRequest{Plugin: c.plugin, Spec: wire.Encode(&environmentpb.SandboxSpec{}, spec)}))
}

func (c *client) Create(ctx context.Context, spec Spec) (Sandbox, error) {
	call, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	stream, err := c.rpc.Create(call)
	if err != nil {
		return Sandbox{}, err
	}
	if err = stream.Send(&environmentpb.CreateRequest{Plugin: c.plugin, Spec: wire.Encode(&environmentpb.SandboxSpec{}, spec)}); err != nil && !errors.Is(err, io.EOF) { // on EOF, Recv returns the reason
		return Sandbox{}, err
	}
	reply, err := stream.Recv()
	if err != nil {
		return Sandbox{}, err
	}
	if !stop() { // ctx has ended: the caller no longer wants the sandbox
		return Sandbox{}, fmt.Errorf("create: %w", context.Cause(ctx))
	}
	if err = stream.Send(&environmentpb.CreateRequest{Taken: true}); err != nil && !errors.Is(err, io.EOF) {
		return Sandbox{}, err
	}
	// The end of the stream confirms that the plugin received the message.
	if _, err = stream.Recv(); !errors.Is(err, io.EOF) {
		return Sandbox{}, cmp.Or(err, fmt.Errorf("environment %q sent two answers", c.plugin))
	}
	made, err := wire.Decode[Sandbox](reply.GetSandbox())
	if err == nil && made.ID == "" {
		err = wire.Invalid("the sandbox has no id")
	}
	if err != nil {
		return made, fmt.Errorf("sandbox of environment %q: %w", c.plugin, err)
	}
	return made, nil
}

func (c *client) Destroy(ctx context.Context, id string) (Remains, error) {
	return wire.Reply[Remains](c.rpc.Destroy(ctx, &environmentpb.DestroyRequest{Plugin: c.plugin, Id: id}))
}

func (c *client) List(ctx context.Context, owner string) ([]string, error) {
	reply, err := c.rpc.List(ctx, &environmentpb.ListRequest{Plugin: c.plugin, Owner: owner})
	return reply.GetIds(), err
}

func (c *client) Prepare(ctx context.Context, image Image, config json.RawMessage, log func(line string)) (Image, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the stream on every return
	defer cancel()
	stream, err := c.rpc.Prepare(ctx, &environmentpb.PrepareRequest{Plugin: c.plugin, Image: wire.Encode(&environmentpb.SandboxImage{}, image), ConfigJson: config})
	if err != nil {
		return Image{}, err
	}
	var made *environmentpb.SandboxImage
	for {
		e, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Image{}, err
		}
		switch e := e.GetEvent().(type) {
		case *environmentpb.PrepareEvent_Log:
			if log != nil {
				log(e.Log)
			}
		case *environmentpb.PrepareEvent_Image:
			made = e.Image
		default: // an event of a later version
		}
	}
	if made == nil {
		return Image{}, wire.Invalid("environment %q returned no image from Prepare", c.plugin)
	}
	return wire.Decode[Image](made)
}

func (c *client) Kept(ctx context.Context) ([]KeptImage, error) {
	reply, err := c.rpc.Kept(ctx, &environmentpb.KeptRequest{Plugin: c.plugin})
	if err != nil {
		return nil, err
	}
	return wire.DecodeAll[KeptImage](reply.GetImages())
}

func (c *client) Drop(ctx context.Context, ref string) (bool, error) {
	reply, err := c.rpc.Drop(ctx, &environmentpb.DropRequest{Plugin: c.plugin, Ref: ref})
	return reply.GetDropped(), err
}
