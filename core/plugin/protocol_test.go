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

// playMisspelled plays a plugin that was written without our SDK and has a typing
// error in its schema.
func playMisspelled() {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig:  goplugin.HandshakeConfig{MagicCookieKey: plugins.CookieKey, MagicCookieValue: plugins.CookieValue},
		VersionedPlugins: map[int]goplugin.PluginSet{plugins.Protocol: {plugins.SetName: &misspelled{}}},
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

func TestAnUnknownKeyInASchemaIsAnError(t *testing.T) {
	t.Parallel()
	h, _ := newHost(t, Options{Dirs: []string{write(t, "misspelled", "misspelled")}})
	list, err := h.List(t.Context())
	want := `unknown field "requried"`
	if err != nil || len(list) != 1 || !strings.Contains(list[0].Error, want) {
		t.Errorf("List = %+v, %v; want the error %s", list, err, want)
	}
}
