package environment

import (
	"time"

	"github.com/berth-eval/berth/plugins/internal/wire"
	"github.com/berth-eval/berth/plugins/proto/v1/environmentpb"
)

var networkModes = wire.Enum[NetworkMode, environmentpb.NetworkMode]{Name: "network mode", Pairs: []wire.Pair[NetworkMode, environmentpb.NetworkMode]{
	{Word: NetworkNone, Number: environmentpb.NetworkMode_NETWORK_MODE_NONE},
	{Word: NetworkAllow, Number: environmentpb.NetworkMode_NETWORK_MODE_ALLOW},
	{Word: NetworkPublic, Number: environmentpb.NetworkMode_NETWORK_MODE_PUBLIC},
}}

var grants = wire.Enum[Grant, environmentpb.SandboxGrant]{Name: "grant", Pairs: []wire.Pair[Grant, environmentpb.SandboxGrant]{
	{Word: "", Number: environmentpb.SandboxGrant_SANDBOX_GRANT_UNSPECIFIED}, // no limit was requested
	{Word: GrantEnforced, Number: environmentpb.SandboxGrant_SANDBOX_GRANT_ENFORCED},
	{Word: GrantBestEffort, Number: environmentpb.SandboxGrant_SANDBOX_GRANT_BEST_EFFORT},
	{Word: GrantNo, Number: environmentpb.SandboxGrant_SANDBOX_GRANT_NO},
}}

func specToProto(s Spec) *environmentpb.SandboxSpec {
	return &environmentpb.SandboxSpec{
		Labels:     &environmentpb.SandboxLabels{Owner: s.Labels.Owner, Trial: s.Labels.Trial, Attempt: int64(s.Labels.Attempt)},
		ConfigJson: s.Config, Image: imageToProto(s.Image), Workdir: s.Workdir, Env: wire.TextMap(s.Env), Users: wire.Texts(s.Users),
		Limits:   limitsToProto(s.Limits),
		Network:  &environmentpb.SandboxNetwork{Mode: networkModes.To(s.Network.Mode), Allow: wire.Texts(s.Network.Allow)},
		Mounts:   wire.Each(s.Mounts, mountToProto),
		Services: wire.Each(s.Services, serviceToProto), Sidecars: wire.Each(s.Sidecars, sidecarToProto),
		Volumes: wire.Each(s.Volumes, volumeToProto),
		Control: s.Control, Address: s.Address, LeaseMs: wire.Millis(s.Lease), Files: s.Files, SettingsJson: s.Settings, Scratch: s.Scratch,
		Hostname: s.Hostname, Aliases: wire.Texts(s.Aliases),
	}
}

func specFromProto(p *environmentpb.SandboxSpec) (s Spec, err error) {
	s = Spec{
		Labels: Labels{
			Owner: p.GetLabels().GetOwner(), Trial: p.GetLabels().GetTrial(), Attempt: int(p.GetLabels().GetAttempt()),
		},
		Image: imageFromProto(p.GetImage()), Workdir: p.GetWorkdir(), Env: p.GetEnv(), Users: p.GetUsers(),
		Limits: limitsFromProto(p.GetLimits()), Network: Network{Allow: p.GetNetwork().GetAllow()},
		Mounts:   wire.Each(p.GetMounts(), mountFromProto),
		Services: wire.Each(p.GetServices(), serviceFromProto), Sidecars: wire.Each(p.GetSidecars(), sidecarFromProto),
		Volumes: wire.Each(p.GetVolumes(), volumeFromProto),
		Control: p.GetControl(), Address: p.GetAddress(), Lease: wire.Duration(p.GetLeaseMs()), Files: p.GetFiles(), Scratch: p.GetScratch(),
		Hostname: p.GetHostname(), Aliases: p.GetAliases(),
	}
	if s.Network.Mode, err = networkModes.From(p.GetNetwork().GetMode()); err != nil {
		return s, err
	}
	if s.Config, err = wire.JSON("config", p.GetConfigJson()); err != nil {
		return s, err
	}
	s.Settings, err = wire.JSON("settings", p.GetSettingsJson())
	return s, err
}

func imageToProto(i Image) *environmentpb.SandboxImage {
	return &environmentpb.SandboxImage{Ref: i.Ref, Build: i.Build, File: i.File, Digest: i.Digest, TimeoutMs: wire.Millis(i.Timeout), Target: i.Target, Args: i.Args, Exclude: i.Exclude, Files: i.Files}
}

func imageFromProto(p *environmentpb.SandboxImage) Image {
	return Image{Ref: p.GetRef(), Build: p.GetBuild(), File: p.GetFile(), Digest: p.GetDigest(), Timeout: wire.Duration(p.GetTimeoutMs()), Target: p.GetTarget(), Args: p.GetArgs(), Exclude: p.GetExclude(), Files: p.GetFiles()}
}

func limitsToProto(l Limits) *environmentpb.SandboxLimits {
	return &environmentpb.SandboxLimits{
		CpuMilli: l.CPUMilli, MemoryMib: l.MemoryMiB, StorageMib: l.StorageMiB, ShmMib: l.ShmMiB, Pids: l.Pids, Gpus: l.GPUs,
		GpuTypes: wire.Texts(l.GPUTypes),
	}
}

func limitsFromProto(p *environmentpb.SandboxLimits) Limits {
	return Limits{
		CPUMilli: p.GetCpuMilli(), MemoryMiB: p.GetMemoryMib(), StorageMiB: p.GetStorageMib(), ShmMiB: p.GetShmMib(),
		Pids: p.GetPids(), GPUs: p.GetGpus(), GPUTypes: p.GetGpuTypes(),
	}
}

func serviceToProto(s Service) *environmentpb.SandboxService {
	return &environmentpb.SandboxService{
		Name: s.Name, Argv: wire.Texts(s.Argv), Env: wire.TextMap(s.Env), User: s.User, Workdir: s.Workdir, Oneshot: s.Oneshot,
		Ready: wire.Texts(s.Ready), TimeoutMs: wire.Millis(s.Timeout),
	}
}

func serviceFromProto(p *environmentpb.SandboxService) Service {
	return Service{
		Name: p.GetName(), Argv: p.GetArgv(), Env: p.GetEnv(), User: p.GetUser(), Workdir: p.GetWorkdir(), Oneshot: p.GetOneshot(),
		Ready: p.GetReady(), Timeout: wire.Duration(p.GetTimeoutMs()),
	}
}

func sidecarToProto(s Sidecar) *environmentpb.SandboxSidecar {
	return &environmentpb.SandboxSidecar{
		Name: s.Name, Image: imageToProto(s.Image), Argv: wire.Texts(s.Argv), Env: wire.TextMap(s.Env), User: s.User, Workdir: s.Workdir,
		Limits: limitsToProto(s.Limits), Volumes: wire.Each(s.Volumes, volumeToProto), Control: s.Control, Address: s.Address,
		Hostname: s.Hostname, Aliases: wire.Texts(s.Aliases),
	}
}

func sidecarFromProto(p *environmentpb.SandboxSidecar) Sidecar {
	return Sidecar{
		Name: p.GetName(), Image: imageFromProto(p.GetImage()), Argv: p.GetArgv(), Env: p.GetEnv(), User: p.GetUser(),
		Workdir: p.GetWorkdir(), Limits: limitsFromProto(p.GetLimits()),
		Volumes: wire.Each(p.GetVolumes(), volumeFromProto), Control: p.GetControl(), Address: p.GetAddress(),
		Hostname: p.GetHostname(), Aliases: p.GetAliases(),
	}
}

func volumeToProto(v Volume) *environmentpb.SandboxVolume {
	return &environmentpb.SandboxVolume{Name: v.Name, Target: v.Target, ReadOnly: v.ReadOnly}
}

func volumeFromProto(p *environmentpb.SandboxVolume) Volume {
	return Volume{Name: p.GetName(), Target: p.GetTarget(), ReadOnly: p.GetReadOnly()}
}

func reportToProto(r Report) *environmentpb.EnvironmentCheckReply {
	problem := func(p Problem) *environmentpb.SpecProblem {
		return &environmentpb.SpecProblem{Summary: wire.Text(p.Summary), Detail: wire.Text(p.Detail)}
	}
	return &environmentpb.EnvironmentCheckReply{
		Refusals: wire.Each(r.Refusals, problem), Degraded: wire.Each(r.Degraded, problem), About: wire.Text(r.About),
		Machine: wire.Each(r.Machine, func(c MachineCheck) *environmentpb.MachineCheck {
			return &environmentpb.MachineCheck{Name: wire.Text(c.Name), Text: wire.Text(c.Text), Remedy: wire.Text(c.Remedy)}
		}),
	}
}

func reportFromProto(p *environmentpb.EnvironmentCheckReply) (Report, error) {
	problem := func(p *environmentpb.SpecProblem) Problem {
		return Problem{Summary: p.GetSummary(), Detail: p.GetDetail()}
	}
	return Report{
		Refusals: wire.Each(p.GetRefusals(), problem), Degraded: wire.Each(p.GetDegraded(), problem), About: p.GetAbout(),
		Machine: wire.Each(p.GetMachine(), func(c *environmentpb.MachineCheck) MachineCheck {
			return MachineCheck{Name: c.GetName(), Text: c.GetText(), Remedy: c.GetRemedy()}
		}),
	}, nil
}

func sandboxToProto(s Sandbox) *environmentpb.SandboxMade {
	return &environmentpb.SandboxMade{
		Id: s.ID, Stream: s.Stream, Pid: int64(s.PID), Granted: grantedToProto(s.Granted), Image: factsToProto(s.Image),
		Sidecars: wire.Each(s.Sidecars, func(c SidecarSandbox) *environmentpb.SidecarMade {
			return &environmentpb.SidecarMade{Name: c.Name, Stream: c.Stream, Pid: int64(c.PID), Image: factsToProto(c.Image)}
		}),
		Findings: wire.Texts(s.Findings),
	}
}

func sandboxFromProto(p *environmentpb.SandboxMade) (s Sandbox, err error) {
	s = Sandbox{
		ID: p.GetId(), Stream: p.GetStream(), PID: int(p.GetPid()), Image: factsFromProto(p.GetImage()),
		Sidecars: wire.Each(p.GetSidecars(), func(c *environmentpb.SidecarMade) SidecarSandbox {
			return SidecarSandbox{Name: c.GetName(), Stream: c.GetStream(), PID: int(c.GetPid()), Image: factsFromProto(c.GetImage())}
		}),
		Findings: p.GetFindings(),
	}
	if s.ID == "" {
		return s, wire.Invalid("the sandbox has no id")
	}
	s.Granted, err = grantedFromProto(p.GetGranted())
	return s, err
}

func grantedToProto(g Granted) *environmentpb.SandboxGranted {
	return &environmentpb.SandboxGranted{
		Cpu: grants.To(g.CPU), Memory: grants.To(g.Memory), Pids: grants.To(g.Pids), Disk: grants.To(g.Disk),
		Network: grants.To(g.Network), Gpu: grants.To(g.GPU), How: wire.Text(g.How),
	}
}

func grantedFromProto(p *environmentpb.SandboxGranted) (Granted, error) {
	g := Granted{How: p.GetHow()}
	for _, f := range []struct {
		to   *Grant
		from environmentpb.SandboxGrant
	}{
		{&g.CPU, p.GetCpu()},
		{&g.Memory, p.GetMemory()},
		{&g.Pids, p.GetPids()},
		{&g.Disk, p.GetDisk()},
		{&g.Network, p.GetNetwork()},
		{&g.GPU, p.GetGpu()},
	} {
		var err error
		if *f.to, err = grants.From(f.from); err != nil {
			return g, err
		}
	}
	return g, nil
}

func factsToProto(f ImageFacts) *environmentpb.ImageFacts {
	return &environmentpb.ImageFacts{
		Ref: f.Ref, Digest: f.Digest, Base: f.Base, Entrypoint: wire.Texts(f.Entrypoint), Cmd: wire.Texts(f.Cmd),
		Env: wire.TextMap(f.Env), User: wire.Text(f.User), Workdir: wire.Text(f.Workdir), Shell: wire.Texts(f.Shell),
		Volumes: wire.Texts(f.Volumes),
	}
}

func factsFromProto(p *environmentpb.ImageFacts) ImageFacts {
	return ImageFacts{
		Ref: p.GetRef(), Digest: p.GetDigest(), Base: p.GetBase(), Entrypoint: p.GetEntrypoint(), Cmd: p.GetCmd(), Env: p.GetEnv(),
		User: p.GetUser(), Workdir: p.GetWorkdir(), Shell: p.GetShell(), Volumes: p.GetVolumes(),
	}
}

func remainsToProto(r Remains) *environmentpb.DestroyReply {
	return &environmentpb.DestroyReply{
		OomKills: r.OOMKills, PeakMemoryMib: r.PeakMemoryMiB, CpuMs: wire.Millis(r.CPU), ThrottledMs: wire.Millis(r.Throttled),
		Findings: wire.Texts(r.Findings),
	}
}

func remainsFromProto(p *environmentpb.DestroyReply) (Remains, error) {
	return Remains{
		OOMKills: p.GetOomKills(), PeakMemoryMiB: p.GetPeakMemoryMib(), CPU: wire.Duration(p.GetCpuMs()),
		Throttled: wire.Duration(p.GetThrottledMs()), Findings: p.GetFindings(),
	}, nil
}

func keptToProto(im KeptImage) *environmentpb.KeptImage {
	p := &environmentpb.KeptImage{Ref: wire.Text(im.Ref), SizeMib: im.SizeMiB, InUse: im.InUse}
	if !im.Used.IsZero() {
		p.UsedUnixMs = im.Used.UnixMilli()
	}
	return p
}

func keptFromProto(p *environmentpb.KeptImage) KeptImage {
	im := KeptImage{Ref: p.GetRef(), SizeMiB: p.GetSizeMib(), InUse: p.GetInUse()}
	if ms := p.GetUsedUnixMs(); ms != 0 {
		im.Used = time.UnixMilli(ms).UTC()
	}
	return im
}
