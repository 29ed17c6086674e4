package plugins

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/internal/wire"
	"github.com/berth-eval/berth/plugins/proto/v1/pluginpb"
)

// Describe asks the binary behind conn what it serves, and refuses an answer that
// makes no sense. conn decodes errors (fault.Client).
func Describe(ctx context.Context, conn grpc.ClientConnInterface) ([]Description, error) {
	reply, err := pluginpb.NewPluginClient(conn).Describe(ctx, &pluginpb.DescribeRequest{})
	if err != nil {
		return nil, fmt.Errorf("describe: %w", err)
	}
	var list []Description
	seen := map[string]bool{}
	for _, p := range reply.GetPlugins() {
		d, err := DescriptionFromProto(p)
		if err != nil {
			return nil, fmt.Errorf("describe: %w", err)
		}
		id := string(d.Kind) + " " + d.Name
		if seen[id] {
			return nil, fmt.Errorf("describe: %w", wire.Invalid("the binary serves %s twice", id))
		}
		seen[id] = true
		list = append(list, d)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("describe: %w", wire.Invalid("the binary says that it serves no plugin"))
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
