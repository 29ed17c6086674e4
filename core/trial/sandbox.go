package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/core/trial/sandbox"
	"github.com/berth-eval/berth/core/trial/views"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox/host"
)

// newSandbox makes the control folder and the sandbox, and connects the two. a.sandbox
// is set as soon as there is something to destroy.
func (a *attempt) newSandbox(ctx context.Context) error {
	folder, err := host.NewFolder(filepath.Join(a.in.Runtime, "b"), a.in.Sandboxd)
	if err != nil {
		return outcome.On(record.ByCore, err)
	}
	a.spec.Control = folder.Path
	if a.spec.Scratch, err = a.folders().Scratch("env"); err == nil {
		a.spec.Files, err = a.environmentFiles()
	}
	if err != nil {
		return outcome.On(record.ByCore, errors.Join(err, folder.Close()))
	}
	beside, err := sandbox.SidecarFolders(a.in.Runtime, a.in.Sandboxd, &a.spec)
	if err != nil {
		return outcome.On(record.ByCore, errors.Join(err, folder.Close()))
	}
	a.incarnation = a.incarnationNow()
	made, err := a.make(ctx)
	if err != nil {
		return errors.Join(err, folder.Close(), sandbox.CloseFolders(beside))
	}
	dir := cmp.Or(a.spec.Workdir, made.Image.Workdir, "/")
	a.sandbox = sandbox.New(folder, made, dir, merge(made.Image.Env, a.taskEnv))
	if len(beside) > 0 {
		a.sides, err = sandbox.NewSidecars(&a.task.Environment, made, beside, a.sideEnv)
		if a.sandbox.Sidecars = a.sides.Sandboxes(); err != nil {
			return outcome.On(record.ByEnvironment, err)
		}
	}
	a.in.Egress.Refused = func(name, why string) {
		a.recorder.Note(record.Phase{Who: record.ByCore}, "host_refused", "%s was asked for and may not be reached: %s", name, why)
	}
	a.sandbox.Route(a.spec.Network.Mode, a.in.Egress, feasible.Reach(a.task, &a.task.Stages[0]).Setup)
	return a.connect(ctx)
}

// connect waits for the sandbox's first words. A sandbox whose environment dies
// before them never says any: then nobody waits.
func (a *attempt) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		for ctx.Err() == nil {
			if a.incarnation != a.incarnationNow() {
				cancel(&record.Error{
					Boundary: record.ByEnvironment, Outcome: record.PluginCrashed, Retry: true,
					Err: fmt.Errorf("connect sandbox: its environment's process has ended: %w", plugin.ErrPluginGone),
				})
			}
			_ = limits.Sleep(ctx, limits.Watch) // it ends early when ctx does
		}
	}()
	_, err := call(ctx, record.ByEnvironment, "connect sandbox", limits.Connect, func(ctx context.Context) (struct{}, error) {
		if err := a.sandbox.Connect(ctx); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, a.sides.Connect(ctx)
	})
	if f, ok := errors.AsType[*record.Error](context.Cause(ctx)); ok && err != nil {
		return f
	}
	return err
}

// orphaned is what explains the error err when the process that made the sandbox
// has ended, and nil as long as that lives.
func (a *attempt) orphaned(ctx context.Context, err error) error {
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), limits.Check)
	defer cancel()
	_, dead := a.env.List(asking, a.in.Run)
	if !errors.Is(dead, plugin.ErrPluginGone) && a.incarnation == a.incarnationNow() {
		return nil
	}
	return instead(err, record.Error{
		Boundary: record.ByEnvironment, Outcome: record.PluginCrashed, Retry: true,
		Err: fmt.Errorf("the sandbox ended with its environment: %w", cmp.Or(dead, plugin.ErrPluginGone)),
	})
}

// incarnationNow says which process is behind the environment; 0 where nobody
// knows.
func (a *attempt) incarnationNow() int {
	if p, ok := a.in.Plugins.(Incarnations); ok {
		return p.Incarnation(a.in.Cell.Environment.Plugin)
	}
	return 0
}

// make creates the sandbox. When ctx ends it waits a little for the answer
// before it cancels the call: an answer that nobody takes would be a sandbox
// that nobody destroys.
func (a *attempt) make(ctx context.Context) (environment.Sandbox, error) {
	patient, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() {
		_ = limits.Sleep(patient, limits.Return) // it ends early when the answer is there
		cancel(context.Cause(ctx))
	})
	defer stop()
	return call(patient, record.ByEnvironment, "create sandbox", a.startTime(), func(ctx context.Context) (environment.Sandbox, error) {
		return a.env.Create(ctx, a.spec)
	})
}

// environmentFiles is a folder with the resources that the environment plugin
// itself reads; empty when there are none.
func (a *attempt) environmentFiles() (string, error) {
	names := a.task.Environment.Files
	if len(names) == 0 {
		return "", nil
	}
	dir, err := a.folders().Large("files") // levels and pages may be large
	if err != nil {
		return "", err
	}
	return dir, views.Resources(dir, a.task, names)
}

// destroy removes the sandbox. What cannot be removed is a finding: it does not
// spoil a result that stands already.
func (a *attempt) destroy(ctx context.Context) {
	if a.sandbox == nil {
		return
	}
	ctx, cancel := limits.Limited(context.WithoutCancel(ctx), "destroy", limits.Destroy)
	defer cancel()
	p := record.Phase{Name: record.PhaseDestroy, Who: record.ByEnvironment}
	err := a.phase(ctx, p, limits.Destroy, func(ctx context.Context) error {
		errs := []error{a.closeSession(ctx), a.keepSides(ctx)}
		remains, err := a.remove(ctx, a.sandbox.Made.ID)
		errs = append(errs, err)
		if err == nil {
			a.res.Remains = &remains
			if remains.OOMKills > 0 {
				a.environmentSays(p.Name, "oom_kills", fmt.Sprintf("out of memory: %d processes were killed", remains.OOMKills))
			}
			for _, f := range remains.Findings {
				a.environmentSays(p.Name, "remains", f)
			}
		}
		return errors.Join(append(errs, a.sandbox.Shutdown())...)
	})
	if err != nil {
		a.recorder.Note(p, "cleanup", "%s", err)
	}
	a.sandbox = nil
}

// keepSides writes down how the sidecars were, while they can still be asked.
func (a *attempt) keepSides(ctx context.Context) (err error) {
	a.res.Sidecars, err = a.sides.Keep(ctx, a.in.Record, a.recorder.Text)
	for _, s := range a.res.Sidecars {
		if s.Lost != "" && a.touched { // else it is the error that ended the attempt
			a.environmentSays(record.PhaseDestroy, "sidecar_lost", fmt.Sprintf("sidecar %q was gone before the end: %s", s.Name, s.Lost))
		}
	}
	a.sides = nil
	return err
}

// remove destroys a sandbox, with a new process of the plugin if that has died.
func (a *attempt) remove(ctx context.Context, id string) (environment.Remains, error) {
	for tries := 0; ; tries++ {
		remains, err := call(ctx, record.ByEnvironment, "destroy sandbox", limits.Destroy, func(ctx context.Context) (environment.Remains, error) {
			return a.env.Destroy(ctx, id)
		})
		if !errors.Is(err, plugin.ErrPluginGone) || tries > 0 {
			return remains, err
		}
		env, _, again := a.in.Plugins.Environment(ctx, a.in.Cell.Environment.Plugin)
		if again != nil {
			return remains, errors.Join(err, again)
		}
		a.env = env
	}
}
