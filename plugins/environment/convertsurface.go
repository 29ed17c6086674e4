package environment

import (
	"github.com/berth-eval/berth/plugins/internal/wire"
	"github.com/berth-eval/berth/plugins/proto/v1/environmentpb"
)

func needsToProto(n SurfaceNeeds) *environmentpb.SurfaceNeeds {
	p := &environmentpb.SurfaceNeeds{
		Mounts: wire.Each(n.Mounts, mountToProto), ShmMib: n.ShmMiB, MemoryMib: n.MemoryMiB, Shell: n.Shell, ResetMs: wire.Millis(n.ResetTime),
		Actions: wire.Each(n.Actions, actionToProto), Observations: wire.Texts(n.Observations), Refusals: wire.Texts(n.Refusals), Pictures: wire.Texts(n.Pictures),
	}
	if n.Ports != nil {
		p.Ports = map[string]int64{}
	}
	for name, port := range n.Ports {
		p.Ports[wire.Text(name)] = int64(port)
	}
	return p
}

func needsFromProto(p *environmentpb.SurfaceNeeds) (n SurfaceNeeds, err error) {
	n = SurfaceNeeds{
		Mounts: wire.Each(p.GetMounts(), mountFromProto), ShmMiB: p.GetShmMib(), MemoryMiB: p.GetMemoryMib(), Shell: p.GetShell(),
		ResetTime:    wire.Duration(p.GetResetMs()),
		Observations: p.GetObservations(), Refusals: p.GetRefusals(), Pictures: p.GetPictures(),
	}
	if p.GetPorts() != nil {
		n.Ports = map[string]int{}
	}
	for name, port := range p.GetPorts() {
		n.Ports[name] = int(port)
	}
	n.Actions, err = wire.EachErr(p.GetActions(), actionFromProto)
	return n, err
}

func mountToProto(m Mount) *environmentpb.SandboxMount {
	return &environmentpb.SandboxMount{Source: m.Source, Target: m.Target}
}

func mountFromProto(m *environmentpb.SandboxMount) Mount {
	return Mount{Source: m.GetSource(), Target: m.GetTarget()}
}

func surfaceSpecToProto(s SurfaceSpec) *environmentpb.SurfaceSpec {
	return &environmentpb.SurfaceSpec{
		Sandbox: s.Sandbox, Shell: s.Shell, Ports: wire.TextMap(s.Ports), ConfigJson: s.Config, SettingsJson: s.Settings, Frames: s.Frames,
		Files: s.Files, Scratch: s.Scratch, User: s.User, Workdir: s.Workdir, Proxy: s.Proxy,
	}
}

func surfaceSpecFromProto(p *environmentpb.SurfaceSpec) (s SurfaceSpec, err error) {
	s = SurfaceSpec{
		Sandbox: p.GetSandbox(), Shell: p.GetShell(), Ports: p.GetPorts(), Frames: p.GetFrames(),
		Files: p.GetFiles(), Scratch: p.GetScratch(), User: p.GetUser(), Workdir: p.GetWorkdir(), Proxy: p.GetProxy(),
	}
	if s.Config, err = wire.JSON("config", p.GetConfigJson()); err != nil {
		return s, err
	}
	s.Settings, err = wire.JSON("settings", p.GetSettingsJson())
	return s, err
}

func actionToProto(a Action) *environmentpb.SurfaceAction {
	return &environmentpb.SurfaceAction{Name: a.Name, Doc: wire.Text(a.Doc), SchemaJson: a.Schema}
}

func actionFromProto(p *environmentpb.SurfaceAction) (a Action, err error) {
	a = Action{Name: p.GetName(), Doc: p.GetDoc()}
	a.Schema, err = wire.JSON("schema of action "+a.Name, p.GetSchemaJson())
	return a, err
}

func observationToProto(o Observation) *environmentpb.SurfaceObservation {
	return &environmentpb.SurfaceObservation{
		Text: wire.Text(o.Text), StructureJson: o.JSON,
		Frames: wire.Each(o.Frames, func(f Frame) *environmentpb.SurfaceFrame {
			return &environmentpb.SurfaceFrame{Name: wire.Text(f.Name), MediaType: f.MediaType, Data: f.Data, Path: f.Path}
		}),
	}
}

func observationFromProto(p *environmentpb.SurfaceObservation) (o Observation, err error) {
	o = Observation{
		Text: p.GetText(),
		Frames: wire.Each(p.GetFrames(), func(f *environmentpb.SurfaceFrame) Frame {
			return Frame{Name: f.GetName(), MediaType: f.GetMediaType(), Data: f.GetData(), Path: f.GetPath()}
		}),
	}
	o.JSON, err = wire.JSON("observation", p.GetStructureJson())
	return o, err
}

func stepToProto(s Step) *environmentpb.SurfaceStep {
	return &environmentpb.SurfaceStep{
		Observation: observationToProto(s.Observation), Reward: s.Reward, Done: s.Done, Truncated: s.Truncated, Error: wire.Text(s.Error),
		InfoJson: s.Info,
	}
}

func stepFromProto(p *environmentpb.SurfaceStep) (s Step, err error) {
	s = Step{Done: p.GetDone(), Truncated: p.GetTruncated(), Error: p.GetError()}
	if p != nil {
		s.Reward = p.Reward
	}
	if s.Observation, err = observationFromProto(p.GetObservation()); err != nil {
		return s, err
	}
	s.Info, err = wire.JSON("info", p.GetInfoJson())
	return s, err
}
