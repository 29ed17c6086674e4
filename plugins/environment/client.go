package environment

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins/internal/wire"
	"github.com/berth-eval/berth/plugins/proto/v1/environmentpb"
)

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
