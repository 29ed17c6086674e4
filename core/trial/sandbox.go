package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/core/trial/sandbox"
	"github.com/berth-eval/berth/core/trial/views"
	"github.com/berth-eval/berth/plugins/environment"
)

// agentSandbox is the name of the sandbox in which the agent works.
const agentSandbox = "agent"

// newSandbox creates and connects a sandbox. As soon as there is something to
// destroy, the sandbox is registered in the attempt and returned.
func (a *attempt) newSandbox(ctx context.Context, name string, o sandbox.Order) (_ *sandbox.Sandbox, err error) {
	if o.Spec.Scratch, err = a.folders().Make("env-" + name); err == nil {
		o.Spec.Files, err = a.environmentFiles(name, o.Task.Files)
	}
	if err != nil {
		return nil, outcome.On(record.ByCore, err)
	}
	o.Sandboxd, o.Egress = a.in.Sandboxd, a.in.Egress
	o.Egress.Refused = func(name, why string) {
		a.recorder.Note(record.Phase{Who: record.ByCore}, "host_refused", "%s was asked for and may not be reached: %s", name, why)
	}
	process, asked := a.environmentProcess(), time.Now()
	w, err := sandbox.Create(o, func(spec environment.Spec) (environment.Sandbox, error) { return a.askForSandbox(ctx, spec) })
	if err != nil {
		return nil, outcome.On(record.ByCore, err)
	}
	w.Process, w.Asked = process, asked
	a.sandboxes[name] = w
	return w, a.connect(ctx, w)
}

// connect waits for the first message of the sandbox. If the environment's
// process dies before, the message never comes, and connect stops waiting.
func (a *attempt) connect(ctx context.Context, w *sandbox.Sandbox) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		for ctx.Err() == nil {
			if w.Process != a.environmentProcess() {
				cancel(&record.Error{
					Boundary: record.ByEnvironment, Outcome: record.PluginCrashed, Retry: true,
					Err: fmt.Errorf("connect sandbox: its environment's process has ended: %w", plugin.ErrPluginGone),
				})
			}
			_ = limits.Sleep(ctx, limits.Watch) // ends early when ctx does
		}
	}()
	_, err := call(ctx, record.ByEnvironment, "connect sandbox", limits.Connect, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, w.Connect(ctx)
	})
	if f, ok := errors.AsType[*record.Error](context.Cause(ctx)); ok && err != nil {
		return f
	}
	return err
}

// orphaned returns the error that explains err when the process that made the
// sandbox w has ended, and nil while it lives or if the kernel ended it.
func (a *attempt) orphaned(ctx context.Context, w *sandbox.Sandbox, err error) error {
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), limits.Check)
	defer cancel()
	_, dead := a.env.List(asking, a.in.Label)
	if errors.Is(err, errJobMemory) || !errors.Is(dead, plugin.ErrPluginGone) && w.Process == a.environmentProcess() {
		return nil
	}
	return explain(err, record.Error{
		Boundary: record.ByEnvironment, Outcome: record.PluginCrashed, Retry: true,
		Err: fmt.Errorf("the sandbox ended with its environment: %w", cmp.Or(dead, plugin.ErrPluginGone)),
	})
}

// environmentProcess returns the number of the environment's process.
func (a *attempt) environmentProcess() int {
	return a.in.Plugins.Incarnation(a.in.Cell.Environment.Plugin)
}

// askForSandbox makes the environment create a sandbox. When ctx ends, it waits
// briefly for the answer before it cancels the call, because an answer that is
// lost would be a sandbox that is never destroyed.
func (a *attempt) askForSandbox(ctx context.Context, spec environment.Spec) (environment.Sandbox, error) {
	patient, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() {
		_ = limits.Sleep(patient, limits.Return) // ends early when the answer arrives
		cancel(context.Cause(ctx))
	})
	defer stop()
	return call(patient, record.ByEnvironment, "create sandbox", a.startTime(), func(ctx context.Context) (environment.Sandbox, error) {
		return a.env.Create(ctx, spec)
	})
}

// environmentFiles returns a folder with the resources that the environment
// plugin itself reads for a sandbox; empty when there are none.
func (a *attempt) environmentFiles(of string, names []string) (string, error) {
	if len(names) == 0 {
		return "", nil
	}
	dir, err := a.folders().Make("files-" + of) // levels and pages may be large
	if err != nil {
		return "", err
	}
	return dir, views.Resources(dir, a.task, names)
}

// destroy removes the sandboxes. One that cannot be removed is a finding, which
// does not affect an existing result.
func (a *attempt) destroy(ctx context.Context) {
	if len(a.sandboxes) == 0 {
		return
	}
	ctx, cancel := limits.Limited(context.WithoutCancel(ctx), "destroy", limits.Destroy)
	defer cancel()
	p := record.Phase{Name: record.PhaseDestroy, Who: record.ByEnvironment}
	err := a.phase(ctx, p, limits.Destroy, func(ctx context.Context) error {
		errs := []error{a.closeSession(ctx), a.surface.open.Close(ctx)}
		for _, name := range slices.Sorted(maps.Keys(a.sandboxes)) {
			errs = append(errs, a.destroySandbox(ctx, name))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		a.recorder.Note(p, "cleanup", "%s", err)
	}
	a.sandbox = nil
}

// destroySandbox removes one sandbox, and records the final state of it and its
// sidecars. The result contains what was left in the agent's sandbox.
func (a *attempt) destroySandbox(ctx context.Context, name string) error {
	w := a.sandboxes[name]
	delete(a.sandboxes, name)
	logs := record.SidecarsDir
	if name != agentSandbox {
		logs += "/" + name
	}
	sidecars, kept := w.KeepSidecars(ctx, a.in.Record, logs, a.recorder.Text)
	for _, s := range sidecars {
		if s.Lost != "" && a.agentActed { // otherwise it is the error that ended the attempt
			a.environmentSays(record.PhaseDestroy, "sidecar_lost", fmt.Sprintf("sidecar %q was gone before the end: %s", s.Name, s.Lost))
		}
	}
	remains, err := a.remove(ctx, w.Made.ID)
	if err == nil {
		if remains.OOMKills > 0 {
			a.environmentSays(record.PhaseDestroy, "oom_kills", fmt.Sprintf("out of memory: %d processes were killed", remains.OOMKills))
		}
		for _, f := range remains.Findings {
			a.environmentSays(record.PhaseDestroy, "remains", f)
		}
	}
	if name == agentSandbox {
		a.res.Sidecars = sidecars
		if err == nil {
			a.res.Remains = &remains
		}
	}
	return errors.Join(kept, err, w.Shutdown())
}

// remove destroys a sandbox, with a new process of the plugin if the old one
// died.
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
