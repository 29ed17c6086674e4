package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/collect"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/core/trial/sandbox"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/relay"
	"github.com/berth-eval/berth/plugins/surface"
	surfaces "github.com/berth-eval/berth/plugins/surface/host"
	"github.com/berth-eval/berth/plugins/surface/mcp"
)

// surfaceSession is the session of the plugin with the surface in the sandbox.
const surfaceSession = "surface"

// surfaced is the surface of an attempt.
type surfaced struct {
	plugin environment.Surface // nil: no stage has a surface
	needs  surfaces.Needs
	open   *surfaces.Surface // nil: not open
	killed bool              // what it ran in the sandbox was ended with everything else
}

// surfacePlugin finds the plugin with the surface, and asks what it needs.
func (a *attempt) surfacePlugin(ctx context.Context) error {
	if !a.task.HasSurface() {
		return nil
	}
	name, _ := a.in.Cell.Environment.WithSurface()
	env, used, err := a.in.Plugins.Environment(ctx, name)
	if err != nil {
		return outcome.On(record.ByEnvironment, err)
	}
	a.use(used)
	needs, why, err := a.in.Checker.Surface(ctx, env, used, a.task, a.in.Cell.Environment)
	if err == nil && len(why) > 0 {
		return outcome.On(record.ByConfig, errors.New(why[0].String()))
	}
	a.surface.plugin, _ = env.(environment.Surface)
	a.surface.needs = needs
	return outcome.On(record.ByEnvironment, err)
}

// beginSurface puts the surface into the initial state of the stage. The first
// stage opens it, and so does one before which the processes of the sandbox were ended.
func (s *stage) beginSurface(ctx context.Context) error {
	of := &s.a.surface
	if of.plugin == nil {
		return nil
	}
	return s.a.phase(ctx, s.phase(record.PhaseSetup, s.a.owner(record.ByEnvironment)), 2*surface.CallTime+of.needs[s.task.Name].ResetTime+limits.Control, func(ctx context.Context) (err error) {
		switch {
		case of.open == nil:
			err = s.a.openSurface(ctx)
		case of.killed && s.task.Surface != nil:
			err, of.killed = of.open.Reopen(ctx), false
		}
		if err != nil {
			err = fmt.Errorf("surface: %w", err)
		} else {
			err = of.open.Begin(ctx, s.task, int64(s.a.in.Repetition))
		}
		if errors.Is(err, surfaces.ErrBreach) {
			err = outcome.On(record.ByEnvironment, err)
		}
		return err
	})
}

func (a *attempt) openSurface(ctx context.Context) (err error) {
	box, environ := a.sandbox, &a.in.Cell.Environment
	_, conf := environ.WithSurface()
	spec := environment.SurfaceSpec{
		Config: conf.JSON(), Settings: a.task.Environment.Settings, User: box.Made.Image.User, Workdir: box.Dir, Proxy: box.Env["https_proxy"],
	}
	if environ.Surface == "" {
		spec.Sandbox = box.Made.ID
	}
	dir, err := a.folders().Make("surface")
	if err == nil {
		spec.Files, err = a.environmentFiles("surface", a.task.Environment.Files)
	}
	if err != nil {
		return outcome.On(record.ByCore, err)
	}
	who := host.Session{ID: surfaceSession, User: spec.User, Dir: box.Dir, Env: sandbox.List(box.Env), Guarded: true}
	a.surface.open, err = surfaces.Open(ctx, surfaces.Options{
		Plugin: a.surface.plugin, Needs: a.surface.needs, Spec: spec, Dir: dir, Sockets: filepath.Join(a.in.Runtime, "f"),
		Shell: relay.Of(box.Sandbox, who), Dial: box.Dial, Frames: filepath.Join(a.in.Record.Dir(), record.FramesDir), Now: a.now,
		Append: func(l surface.Line) { a.recorder.Append(record.SurfaceFile, l) },
		Mask:   func(b []byte) []byte { return a.recorder.Redactor().Masked(b) },
	})
	return err
}

// onSurface lets a session act on the surface. One with a shell, whose agent may
// be a program in the sandbox, also gets it as tools there.
func (a *attempt) onSurface(ctx context.Context, s *session, setup *agent.Setup) (err error) {
	if a.surface.open == nil {
		return nil
	}
	if s.door, err = a.surface.open.NewDoor(filepath.Join(a.in.Runtime, s.id+"-f")); err != nil {
		return outcome.On(record.ByCore, err)
	}
	setup.Surface = s.door.Address()
	if s.relay == nil || s.role != agent.RoleAgent {
		return nil
	}
	tools := mcp.New(s.door.Session())
	port, err := a.sandbox.Listen(ctx, 0, tools.Serve)
	if err != nil {
		return errors.Join(outcome.On(a.owner(record.ByEnvironment), fmt.Errorf("surface: %w", err)), tools.Close())
	}
	s.tools = closers{port, tools}
	setup.Servers = append(setup.Servers, mcp.Of(port.Number, setup.Servers))
	return nil
}

// closers are closed one after the other.
type closers []io.Closer

func (all closers) Close() (err error) {
	for _, c := range all {
		err = errors.Join(err, c.Close())
	}
	return err
}

// surfaceLost attributes the loss of the surface. Once the agent has acted on it,
// it is the agent's, unless the host can show another cause.
func (a *attempt) surfaceLost(why error) (record.AgentEnd, error) {
	removed := errors.Is(why, environment.ErrRefused) && a.commanded // what is missing, perhaps by the agent
	if !a.surface.open.Acted() && !removed || errors.Is(why, surfaces.ErrBreach) || errors.Is(why, plugin.ErrPluginGone) {
		return "", outcome.On(record.ByEnvironment, why)
	}
	return record.SandboxLost, outcome.On(record.ByAgent, why)
}

// captures takes the captures of the stage, in place of those of an earlier turn.
// One that fails is a finding: a verifier that needs it says so.
func (s *stage) captures(ctx context.Context) error {
	a := s.a
	p := s.phase(record.PhaseHooks, record.ByEnvironment)
	if a.surface.open == nil || s.task.Surface == nil || len(s.task.Captures) == 0 {
		return nil
	}
	return a.phase(ctx, p, limits.Collect, func(ctx context.Context) error {
		dir, err := a.folders().Make(fmt.Sprintf("captures-%d-%d", s.i+1, s.turns))
		if err != nil {
			return outcome.On(record.ByCore, err)
		}
		to := filepath.Join(a.in.Record.Dir(), record.CapturesDir)
		if len(a.task.Stages) > 1 {
			to = filepath.Join(to, s.task.Name)
		}
		plain, err := a.unmasked(to)
		if err != nil {
			return outcome.On(record.ByCore, err)
		}
		keep := func(from, name string) error {
			judged := filepath.Join(plain, name)
			return errors.Join(collect.Folder(from, filepath.Join(to, name), a.recorder.Redactor()), os.RemoveAll(judged), os.Rename(from, judged))
		}
		for _, failed := range a.surface.open.Captures(ctx, s.task.Captures, dir, keep) {
			a.recorder.Note(p, "capture_failed", "%s", failed)
		}
		return context.Cause(ctx)
	})
}
