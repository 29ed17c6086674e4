package environment

import (
	"github.com/berth-eval/berth/plugins/internal/wire"
	"github.com/berth-eval/berth/plugins/proto/v1/environmentpb"
)

func surfaceSpecToProto(s SurfaceSpec) *environmentpb.SurfaceSpec {
	return &environmentpb.SurfaceSpec{
		Sandbox: s.Sandbox, Shell: s.Shell, Ports: wire.TextMap(s.Ports), ConfigJson: s.Config, SettingsJson: s.Settings, Frames: s.Frames,
	}
}

func surfaceSpecFromProto(p *environmentpb.SurfaceSpec) (s SurfaceSpec, err error) {
	s = SurfaceSpec{Sandbox: p.GetSandbox(), Shell: p.GetShell(), Ports: p.GetPorts(), Frames: p.GetFrames()}
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
			return &environmentpb.SurfaceFrame{MediaType: f.MediaType, Data: f.Data, Path: f.Path}
		}),
	}
}

func observationFromProto(p *environmentpb.SurfaceObservation) (o Observation, err error) {
	o = Observation{
		Text: p.GetText(),
		Frames: wire.Each(p.GetFrames(), func(f *environmentpb.SurfaceFrame) Frame {
			return Frame{MediaType: f.GetMediaType(), Data: f.GetData(), Path: f.GetPath()}
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
