package plugins

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/internal/wire"
	"github.com/berth-eval/berth/plugins/proto/v1/pluginpb"
)

// Describe asks the binary behind conn what it serves, and refuses an answer that
// makes no sense. speaks is its protocol number, which may be one that this
// version does not know: it is the number of the handshake or, if protocol is 0
// because there was none, what the binary says. conn decodes errors (fault.Client).
func Describe(ctx context.Context, conn grpc.ClientConnInterface, protocol int) (list []Description, speaks int, err error) {
	reply, err := pluginpb.NewPluginClient(conn).Describe(ctx, &pluginpb.DescribeRequest{})
	if err != nil {
		return nil, protocol, fmt.Errorf("describe: %w", err)
	}
	if protocol == 0 {
		protocol = cmp.Or(int(reply.GetProtocol()), OldestProtocol)
	}
	list, err = described(reply, protocol)
	if err != nil {
		return nil, protocol, fmt.Errorf("describe: %w", err)
	}
	return list, protocol, nil
}

// described checks what a binary says about itself.
func described(reply *pluginpb.DescribeReply, protocol int) ([]Description, error) {
	var list []Description
	for _, p := range reply.GetPlugins() {
		if unknown := config.UnknownKeys(p.GetConfigSchemaJson()); unknown != nil && protocol >= 2 {
			return nil, wire.Invalid("plugin %q: %s", p.GetName(), unknown)
		}
		d, err := DescriptionFromProto(p)
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	if len(list) == 0 {
		return nil, wire.Invalid("the binary says that it serves no plugin")
	}
	seen := map[string]bool{}
	for _, d := range list {
		id := string(d.Kind) + " " + d.Name
		if seen[id] {
			return nil, wire.Invalid("the binary serves %s twice", id)
		}
		seen[id] = true
	}
	return list, nil
}

// Validate asks the binary behind conn about a configuration; none means that
// it is good.
func Validate(ctx context.Context, conn grpc.ClientConnInterface, kind Kind, name string, conf json.RawMessage) ([]config.Problem, error) {
	reply, err := pluginpb.NewPluginClient(conn).Validate(ctx, &pluginpb.ValidateRequest{Kind: wire.Number[pluginpb.PluginKind](kind), Plugin: name, ConfigJson: conf})
	if err != nil {
		return nil, fmt.Errorf("validate the configuration of %s %q: %w", kind, name, err)
	}
	return wire.DecodeAll[config.Problem](reply.GetProblems())
}
