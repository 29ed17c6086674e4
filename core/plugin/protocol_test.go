package plugin

import (
	"context"
	"strings"
	"testing"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/proto/v1/pluginpb"
)

// playMisspelled plays a plugin that was written without our SDK, speaks one
// protocol number, and has a typing error in its schema.
func playMisspelled(protocol int) {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig:  goplugin.HandshakeConfig{MagicCookieKey: plugins.CookieKey, MagicCookieValue: plugins.CookieValue},
		VersionedPlugins: map[int]goplugin.PluginSet{protocol: {plugins.SetName: &misspelled{}}},
		GRPCServer:       goplugin.DefaultGRPCServer,
	})
}

type misspelled struct {
	goplugin.NetRPCUnsupportedPlugin
	pluginpb.UnimplementedPluginServer
}

func (m *misspelled) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	pluginpb.RegisterPluginServer(s, m)
	return nil
}

func (*misspelled) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, nil
}

func (*misspelled) Describe(context.Context, *pluginpb.DescribeRequest) (*pluginpb.DescribeReply, error) {
	schema := `{"fields":[{"name":"limit","type":"block","fields":[{"name":"size","type":"int","requried":true}]}]}`
	return &pluginpb.DescribeReply{Plugins: []*pluginpb.PluginDescription{
		{Kind: pluginpb.PluginKind_PLUGIN_KIND_AGENT, Name: "misspelled", ConfigSchemaJson: []byte(schema)},
	}}, nil
}

func TestPluginsOfOlderProtocolsAreServed(t *testing.T) {
	t.Parallel()
	h, _ := newHost(t, Options{Dirs: []string{write(t, "older", "older"), write(t, "odd", "odd")}})
	list, err := h.List(t.Context())
	if err != nil || len(list) != 4 || list[0].Protocol != plugins.OldestProtocol || list[2].Protocol != plugins.Protocol || plugins.OldestProtocol == plugins.Protocol {
		t.Fatalf("List = %+v, %v; want a plugin of protocol %d, and one of %d", list, err, plugins.OldestProtocol, plugins.Protocol)
	}
	if y := turn(t, open(t, h), "step forward"); y.Message != "did step" { // the older one is the first by that name
		t.Errorf("turn = %+v", y)
	}
}

// An unknown key in a schema is an error since protocol 2. A plugin that was
// written before may have one.
func TestAnUnknownKeyInASchemaIsAnError(t *testing.T) {
	t.Parallel()
	h, _ := newHost(t, Options{Dirs: []string{write(t, "misspelled-1", "older"), write(t, "misspelled-2", "newer")}})
	list, err := h.List(t.Context())
	if err != nil || len(list) != 2 {
		t.Fatalf("List = %+v, %v", list, err)
	}
	if e := list[0]; e.Error != "" || e.Name != "misspelled" || e.Protocol != 1 {
		t.Errorf("protocol 1: %+v; want that the plugin is served", e)
	}
	if want := `schema: unknown key "requried" of field "limit.size": did you mean "required"?`; !strings.Contains(list[1].Error, want) {
		t.Errorf("protocol 2: %+v; want the error %s", list[1], want)
	}
}
