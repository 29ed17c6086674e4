package agent

import (
	"github.com/berth-eval/berth/plugins/internal/wire"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/proto/v1/agentpb"
)

var roles = wire.Enum[Role, agentpb.AgentRole]{Name: "role", Pairs: []wire.Pair[Role, agentpb.AgentRole]{
	{Word: RoleAgent, Number: agentpb.AgentRole_AGENT_ROLE_AGENT},
	{Word: RoleUser, Number: agentpb.AgentRole_AGENT_ROLE_USER},
	{Word: RoleOracle, Number: agentpb.AgentRole_AGENT_ROLE_ORACLE},
}}

var ends = wire.Enum[End, agentpb.AgentEnd]{Name: "end of the turn", Pairs: []wire.Pair[End, agentpb.AgentEnd]{
	{Word: Done, Number: agentpb.AgentEnd_AGENT_END_DONE},
	{Word: Asked, Number: agentpb.AgentEnd_AGENT_END_ASKED},
	{Word: MaxSteps, Number: agentpb.AgentEnd_AGENT_END_MAX_STEPS},
	{Word: Refused, Number: agentpb.AgentEnd_AGENT_END_REFUSED},
	{Word: Crashed, Number: agentpb.AgentEnd_AGENT_END_CRASHED},
}}

func checkToProto(plugin string, r CheckRequest) *agentpb.AgentCheckRequest {
	return &agentpb.AgentCheckRequest{
		Plugin: plugin, ConfigJson: r.Config, Models: wire.Values(r.Models, model.InfoToProto), Role: roles.To(r.Role),
	}
}

func checkFromProto(p *agentpb.AgentCheckRequest) (r CheckRequest, err error) {
	if r.Role, err = roles.From(p.GetRole()); err != nil {
		return r, err
	}
	if r.Models, err = wire.ValuesErr(p.GetModels(), model.InfoFromProto); err != nil {
		return r, err
	}
	r.Config, err = wire.JSON("config", p.GetConfigJson())
	return r, err
}

func needsToProto(n Needs) *agentpb.AgentNeeds {
	return &agentpb.AgentNeeds{
		Shell: n.Shell, Surface: n.Surface, Terminal: n.Terminal,
		Dialects: wire.Each(n.Dialects, func(d model.Dialect) string { return string(d) }),
		Bundles: wire.Each(n.Bundles, func(b Bundle) *agentpb.AgentBundle {
			return &agentpb.AgentBundle{Source: b.Source, Target: b.Target, Digest: b.Digest, Name: wire.Text(b.Name)}
		}),
		Logs: wire.Texts(n.Logs), Refusals: wire.Texts(n.Refusals), KeepsSession: n.KeepsSession, TakesPrior: n.TakesPrior,
		Skills: n.Skills, Mcp: wire.Texts(n.MCP),
	}
}

func needsFromProto(p *agentpb.AgentNeeds) (Needs, error) {
	return Needs{
		Shell: p.GetShell(), Surface: p.GetSurface(), Terminal: p.GetTerminal(),
		Dialects: wire.Each(p.GetDialects(), func(d string) model.Dialect { return model.Dialect(d) }),
		Bundles: wire.Each(p.GetBundles(), func(b *agentpb.AgentBundle) Bundle {
			return Bundle{Source: b.GetSource(), Target: b.GetTarget(), Digest: b.GetDigest(), Name: b.GetName()}
		}),
		Logs: p.GetLogs(), Refusals: p.GetRefusals(), KeepsSession: p.GetKeepsSession(), TakesPrior: p.GetTakesPrior(),
		Skills: p.GetSkills(), MCP: p.GetMcp(),
	}, nil
}

func setupToProto(s Setup) *agentpb.SessionSetup {
	p := &agentpb.SessionSetup{
		Session: s.Session, Role: roles.To(s.Role), View: s.View, Shell: s.Shell, Surface: s.Surface,
		Models: wire.Values(s.Models, model.EndpointToProto), Prior: s.Prior, Servers: wire.Each(s.Servers, serverToProto),
		Skills:  wire.Texts(s.Skills),
		Limits:  &agentpb.AgentLimits{TimeMs: wire.Millis(s.Limits.Time), MaxSteps: s.Limits.MaxSteps},
		Scratch: s.Scratch, ConfigJson: s.Config, Workdir: s.Workdir, User: s.User, Seed: s.Seed,
	}
	if r := s.Reference; r != nil {
		p.Reference = &agentpb.AgentReference{
			Folder: r.Folder, Place: r.Place, Argv: wire.Texts(r.Argv), Env: wire.TextMap(r.Env),
		}
	}
	return p
}

func setupFromProto(p *agentpb.SessionSetup) (s Setup, err error) {
	s = Setup{
		Session: p.GetSession(), View: p.GetView(), Shell: p.GetShell(), Surface: p.GetSurface(), Prior: p.GetPrior(),
		Servers: wire.Each(p.GetServers(), serverFromProto), Skills: p.GetSkills(),
		Limits:  Limits{Time: wire.Duration(p.GetLimits().GetTimeMs()), MaxSteps: p.GetLimits().GetMaxSteps()},
		Scratch: p.GetScratch(), Workdir: p.GetWorkdir(), User: p.GetUser(), Seed: p.GetSeed(),
	}
	if r := p.GetReference(); r != nil {
		s.Reference = &Reference{Folder: r.GetFolder(), Place: r.GetPlace(), Argv: r.GetArgv(), Env: r.GetEnv()}
	}
	if s.Role, err = roles.From(p.GetRole()); err != nil {
		return s, err
	}
	if s.Models, err = wire.ValuesErr(p.GetModels(), model.EndpointFromProto); err != nil {
		return s, err
	}
	s.Config, err = wire.JSON("config", p.GetConfigJson())
	return s, err
}

func serverToProto(s Server) *agentpb.AgentMcpServer {
	return &agentpb.AgentMcpServer{
		Name: s.Name, Transport: s.Transport, Url: s.URL, Headers: wire.TextMap(s.Headers), Command: s.Command, Args: wire.Texts(s.Args), Env: wire.TextMap(s.Env),
	}
}

func serverFromProto(p *agentpb.AgentMcpServer) Server {
	return Server{
		Name: p.GetName(), Transport: p.GetTransport(), URL: p.GetUrl(), Headers: p.GetHeaders(), Command: p.GetCommand(), Args: p.GetArgs(), Env: p.GetEnv(),
	}
}

func messageToProto(m Message) *agentpb.TurnMessage {
	return &agentpb.TurnMessage{Stage: m.Stage, Turn: int64(m.Turn), Text: wire.Text(m.Text), Files: wire.Texts(m.Files), TimeMs: wire.Millis(m.Time)}
}

func messageFromProto(p *agentpb.TurnMessage) (Message, error) {
	return Message{Stage: p.GetStage(), Turn: int(p.GetTurn()), Text: p.GetText(), Files: p.GetFiles(), Time: wire.Duration(p.GetTimeMs())}, nil
}

func yieldToProto(y Yield) *agentpb.AgentYield {
	p := &agentpb.AgentYield{
		End: ends.To(y.End), Message: wire.Text(y.Message), ExitCode: int64(y.ExitCode), Reason: wire.Text(y.Reason),
	}
	if c := y.Claim; c != nil {
		p.Claim = &agentpb.AgentClaim{InputTokens: c.Input, CachedTokens: c.Cached, OutputTokens: c.Output, CostUsd: c.Cost}
	}
	return p
}

// maxCost is more than any turn costs, in USD, and so little that the sum over turns
// stays a number that JSON can hold.
const maxCost = 1e12

func yieldFromProto(p *agentpb.AgentYield) (y Yield, err error) {
	y = Yield{Message: p.GetMessage(), ExitCode: int(p.GetExitCode()), Reason: p.GetReason()}
	if c := p.GetClaim(); c != nil {
		y.Claim = &Claim{Input: c.InputTokens, Cached: c.CachedTokens, Output: c.OutputTokens, Cost: c.CostUsd}
		if c.CostUsd != nil && !(*c.CostUsd >= 0 && *c.CostUsd <= maxCost) { // or NaN: it is not known then
			y.Claim.Cost = nil
		}
	}
	y.End, err = ends.From(p.GetEnd())
	return y, err
}
