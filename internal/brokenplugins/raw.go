package main

import (
	"context"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/proto/v1/agentpb"
	"github.com/berth-eval/berth/plugins/proto/v1/pluginpb"
	"github.com/berth-eval/berth/plugins/proto/v1/verifierpb"
)

// raw are plugins without this module's server: an author who uses another
// language has only the .proto files, and nothing refuses bad input for him.
var raw = map[string]pluginpb.PluginKind{
	"lax-agent":    pluginpb.PluginKind_PLUGIN_KIND_AGENT,
	"lax-verifier": pluginpb.PluginKind_PLUGIN_KIND_VERIFIER,
	"undecided":    pluginpb.PluginKind_PLUGIN_KIND_VERIFIER,
}

func serveRaw(i plugins.Info, kind pluginpb.PluginKind) {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: goplugin.HandshakeConfig{MagicCookieKey: plugins.CookieKey, MagicCookieValue: plugins.CookieValue, ProtocolVersion: plugins.Protocol},
		Plugins:         goplugin.PluginSet{plugins.SetName: &lax{info: i, kind: kind}},
		GRPCServer:      goplugin.DefaultGRPCServer,
	})
}

// lax accepts every request.
type lax struct {
	goplugin.NetRPCUnsupportedPlugin
	pluginpb.UnimplementedPluginServer

	info plugins.Info
	kind pluginpb.PluginKind
}

func (l *lax) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	pluginpb.RegisterPluginServer(s, l)
	agentpb.RegisterAgentServer(s, laxAgent{})
	verifierpb.RegisterVerifierServer(s, laxVerifier{name: l.info.Name})
	return nil
}

func (*lax) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, nil //nolint:nilnil // never asked
}

func (l *lax) Describe(context.Context, *pluginpb.DescribeRequest) (*pluginpb.DescribeReply, error) {
	d := &pluginpb.PluginDescription{Kind: l.kind, Name: l.info.Name, Version: l.info.Version, Doc: l.info.Doc}
	if l.kind == pluginpb.PluginKind_PLUGIN_KIND_VERIFIER {
		d.Verifier = &pluginpb.VerifierTraits{Needs: pluginpb.VerifierNeeds_VERIFIER_NEEDS_NONE}
	}
	return &pluginpb.DescribeReply{Plugins: []*pluginpb.PluginDescription{d}}, nil
}

func (*lax) Validate(context.Context, *pluginpb.ValidateRequest) (*pluginpb.ValidateReply, error) {
	return &pluginpb.ValidateReply{}, nil
}

type laxAgent struct {
	agentpb.UnimplementedAgentServer
}

func (laxAgent) Check(context.Context, *agentpb.AgentCheckRequest) (*agentpb.AgentCheckReply, error) {
	return &agentpb.AgentCheckReply{}, nil
}

type laxVerifier struct {
	verifierpb.UnimplementedVerifierServer

	name string
}

func (v laxVerifier) Verify(_ *verifierpb.VerifyRequest, s grpc.ServerStreamingServer[verifierpb.VerifyEvent]) error {
	verdict := &verifierpb.Verdict{Decision: verifierpb.VerdictDecision_VERDICT_DECISION_PASS}
	if v.name == "undecided" {
		verdict.Decision = 9
	}
	return s.Send(&verifierpb.VerifyEvent{Event: &verifierpb.VerifyEvent_Verdict{Verdict: verdict}})
}
