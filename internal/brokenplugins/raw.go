package main

import (
	"context"
	"fmt"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/proto/v1/agentpb"
	"github.com/berth-eval/berth/plugins/proto/v1/environmentpb"
	"github.com/berth-eval/berth/plugins/proto/v1/pluginpb"
	"github.com/berth-eval/berth/plugins/proto/v1/verifierpb"
	"github.com/berth-eval/berth/plugins/verifier"
)

// described are plugins with a bad description.
var described = table{
	"nameless": {"says neither its version nor what it is for", func(i plugins.Info) plugins.Plugin {
		return plugins.Verifier(plugins.Info{Name: i.Name}, nil, none, verify(verifiersFail))
	}},
	"moody": {"finds another problem in a configuration each time", func(i plugins.Info) plugins.Plugin {
		return plugins.Verifier(i, moody{}, none, verify(verifiersFail))
	}},
}

func verifiersFail(context.Context, verifier.Request) (verifier.Verdict, error) { return failed, nil }

type moody struct{}

func (moody) Validate() []config.Problem {
	if n := asked.Add(1); n > 1 { // the kit itself asks once
		return []config.Problem{{Summary: fmt.Sprint("problem ", n)}}
	}
	return nil
}

// raw are plugins without this module's server: an author who uses another
// language has only the .proto files, and nothing refuses bad input for him.
var raw = map[string]func(plugins.Info){
	"lax-agent":    func(i plugins.Info) { serveRaw(i, pluginpb.PluginKind_PLUGIN_KIND_AGENT) },
	"lax-verifier": func(i plugins.Info) { serveRaw(i, pluginpb.PluginKind_PLUGIN_KIND_VERIFIER) },
	"lax-box":      func(i plugins.Info) { serveRaw(i, pluginpb.PluginKind_PLUGIN_KIND_ENVIRONMENT) },
	"undecided":    func(i plugins.Info) { serveRaw(i, pluginpb.PluginKind_PLUGIN_KIND_VERIFIER) },
	"twice":        func(i plugins.Info) { serveRaw(i, pluginpb.PluginKind_PLUGIN_KIND_VERIFIER) },
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
	environmentpb.RegisterEnvironmentServer(s, laxBox{})
	verifierpb.RegisterVerifierServer(s, laxVerifier{name: l.info.Name})
	return nil
}

func (*lax) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, nil //nolint:nilnil // never asked
}

func (l *lax) Describe(context.Context, *pluginpb.DescribeRequest) (*pluginpb.DescribeReply, error) {
	d := &pluginpb.PluginDescription{Kind: l.kind, Name: l.info.Name, Version: l.info.Version, Doc: l.info.Doc}
	if l.kind == pluginpb.PluginKind_PLUGIN_KIND_VERIFIER {
		d.Verifier = verifier.TraitsToProto(none)
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

type laxBox struct {
	environmentpb.UnimplementedEnvironmentServer
}

func (laxBox) Check(context.Context, *environmentpb.EnvironmentCheckRequest) (*environmentpb.EnvironmentCheckReply, error) {
	return &environmentpb.EnvironmentCheckReply{}, nil
}

func (laxBox) List(context.Context, *environmentpb.ListRequest) (*environmentpb.ListReply, error) {
	return &environmentpb.ListReply{}, nil
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
	if v.name == "twice" {
		if err := s.Send(&verifierpb.VerifyEvent{Event: &verifierpb.VerifyEvent_Verdict{Verdict: verdict}}); err != nil {
			return err
		}
	}
	return s.Send(&verifierpb.VerifyEvent{Event: &verifierpb.VerifyEvent_Verdict{Verdict: verdict}})
}
