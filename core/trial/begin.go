package trial

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/core/trial/sandbox"
	"github.com/berth-eval/berth/core/trial/views"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// begin runs the phases prepare, create and services.
func (a *attempt) begin(ctx context.Context) error {
	err := a.phase(ctx, record.Phase{Name: record.PhasePrepare, Who: record.ByCore}, limits.Prepare, a.prepare)
	if err != nil {
		return err
	}
	err = a.phase(ctx, record.Phase{Name: record.PhaseCreate, Who: record.ByEnvironment}, a.startTime(), a.create)
	if err != nil {
		return err
	}
	ctx, end := a.sandbox.Ctx(ctx)
	defer end()
	err = a.programs(ctx, start{sandbox: a.sandbox, task: &a.task.Environment, services: a.task.Services, health: a.task.Healthcheck})
	if err != nil && a.sandbox.Gone() { // nothing but the core has used it
		return environmentFailed(err)
	}
	return err
}

func (a *attempt) startTime() time.Duration {
	l := a.in.Cell.Limits
	t := cell.Scaled(a.task.Environment.StartTime.Std(), l.StartTime, l.TimeFactor)
	if t == 0 {
		return limits.Create
	}
	return t
}

// deadline is the cause with which a phase ends after its limit.
func (a *attempt) deadline(p record.PhaseName, limit time.Duration) limits.Deadline {
	d := limits.Deadline{What: string(p), Limit: limit}
	if l, e := a.in.Cell.Limits, &a.task.Environment; p == record.PhaseCreate && limit == a.startTime() {
		if d.Setting = limits.Setting(e.StartTimeKey, e.StartTime.Std(), "per_trial.start_time", l.StartTime, l.TimeFactor); d.Setting != "" {
			d.What = "the start of the sandbox was"
		}
	}
	return d
}

// prepare finds the plugins, asks them for their needs, and prepares the image.
func (a *attempt) prepare(ctx context.Context) error {
	if err := a.plugins(ctx); err != nil {
		return err
	}
	known := feasible.Known{Agent: &a.needs, Verifiers: map[string]verifier.Traits{}, Gateway: a.in.Gateway != nil, Environment: a.env}
	for name, v := range a.verifiers {
		known.Verifiers[name] = v.Traits
	}
	if ps := feasible.Unsupported(a.task, a.in.Cell, known); len(ps) > 0 {
		return outcome.On(record.ByConfig, errors.New(ps[0].String()))
	}
	taskEnv, err := a.task.Environment.Env.Resolve(a.in.LookupEnv)
	if err != nil {
		return outcome.On(record.ByConfig, fmt.Errorf("environment of the task: %w", err))
	}
	if a.sideEnv, err = feasible.SidecarEnv(&a.task.Environment, a.in.LookupEnv); err != nil {
		return outcome.On(record.ByConfig, err)
	}
	var modified []string
	if a.spec, modified, err = feasible.Spec(a.task, a.in.Cell, a.needs); err != nil {
		return outcome.On(record.ByConfig, err)
	}
	if work := a.in.Cell.Work; len(work) > 0 {
		a.recorder.Note(record.Phase{Name: record.PhasePrepare, Who: record.ByConfig}, "work_declared", "the experiment counts these folders of the system as work: %s", listed(work, 0))
	}
	a.res.Modified = modified
	if ps := a.surface.needs.Furnish(&a.spec); len(ps) > 0 {
		return outcome.On(record.ByConfig, errors.New(ps[0].String()))
	}
	if err = a.check(ctx, a.spec); err != nil {
		return err
	}
	a.spec.Env, a.spec.Lease = sandbox.Merge(taskEnv, cell.Strings(a.in.Cell.Environment.Env)), limits.Lease
	a.spec.Labels = environment.Labels{Owner: a.in.Label, Trial: a.in.Trial, Attempt: a.in.Attempt}
	return a.images(ctx, a.env, &a.spec)
}

// check asks the environment whether it can create a sandbox of spec, and
// records what it could not fully enforce.
func (a *attempt) check(ctx context.Context, spec environment.Spec) error {
	report, err := a.in.Checker.Environment(ctx, a.env, a.envUsed, spec)
	if err != nil {
		return outcome.On(record.ByEnvironment, fmt.Errorf("check: %w", err))
	}
	if len(report.Refusals) > 0 {
		return outcome.On(record.ByEnvironment, fmt.Errorf("%w: %s", environment.ErrRefused, report.Refusals[0]))
	}
	for _, d := range report.Degraded {
		if text := d.String(); !slices.Contains(a.degraded, text) { // another sandbox may have the same
			a.degraded = append(a.degraded, text)
			a.environmentSays(record.PhasePrepare, "degraded", text)
		}
	}
	return nil
}

// call bounds one call of a plugin and attributes its error.
func call[T any](ctx context.Context, b record.Boundary, what string, limit time.Duration, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := limits.Limited(ctx, what, limit)
	defer cancel()
	v, err := f(ctx)
	if err != nil {
		err = outcome.On(b, fmt.Errorf("%s: %w", what, limits.Caused(ctx, err)))
	}
	return v, err
}

func (a *attempt) plugins(ctx context.Context) error {
	var used record.PluginUsed
	var err error
	c := a.in.Cell
	if a.env, used, err = a.in.Plugins.Environment(ctx, c.Environment.Plugin); err != nil {
		return outcome.On(record.ByEnvironment, err)
	}
	a.use(used)
	a.envUsed = used
	if err = a.surfacePlugin(ctx); err != nil {
		return err
	}
	if a.agent, used, err = a.in.Plugins.Agent(ctx, c.Agent.Plugin); err != nil {
		return outcome.On(record.ByAgent, err)
	}
	a.use(used)
	a.agentUsed = used
	a.verifiers, a.res.Graders = map[string]VerifierPlugin{}, map[string]string{}
	for i := range a.task.Stages {
		for _, u := range a.task.Stages[i].Verifiers {
			if _, ok := a.verifiers[u.Name]; ok {
				continue
			}
			var v VerifierPlugin
			if v, used, err = a.in.Plugins.Verifier(ctx, a.verifierPlugin(u.Name)); err != nil {
				return outcome.On(record.ByVerifier, err)
			}
			v.Traits = v.Traits.With(c.Verifiers[u.Name].Config.JSON())
			a.verifiers[u.Name] = v
			a.use(used)
			a.res.Graders[u.Name] = used.Name
		}
	}
	a.needs, err = a.ask(ctx, a.agent, a.agentUsed, c.Agent, a.role())
	for _, b := range a.needs.Bundles {
		a.res.Bundles = append(a.res.Bundles, record.BundleUsed{Name: cmp.Or(b.Name, b.Source), Digest: b.Digest})
	}
	return err
}

func (a *attempt) verifierPlugin(name string) string {
	if p := a.in.Cell.Verifiers[name].Plugin; p != "" {
		return p
	}
	return name
}

func (a *attempt) role() agent.Role {
	if a.in.Cell.Agent.Oracle {
		return agent.RoleOracle
	}
	return agent.RoleAgent
}

func (a *attempt) use(u record.PluginUsed) {
	if !slices.Contains(a.res.Plugins, u) {
		a.res.Plugins = append(a.res.Plugins, u)
	}
}

// ask asks an agent plugin what one of its sessions needs.
func (a *attempt) ask(ctx context.Context, ag agent.Agent, of record.PluginUsed, cell cell.Agent, role agent.Role) (agent.Needs, error) {
	needs, err := a.in.Checker.Agent(ctx, ag, of, cell, role)
	if err != nil {
		err = outcome.On(boundary(role), fmt.Errorf("check agent %s: %w", cell.Plugin, err))
	}
	return needs, err
}

// images pulls or builds the images of the containers of spec.
func (a *attempt) images(ctx context.Context, env environment.Environment, spec *environment.Spec) error {
	err := a.image(ctx, env, &spec.Image, spec.Config)
	for i := range spec.Sidecars {
		s := &spec.Sidecars[i]
		if err != nil {
			return err
		}
		if err = a.image(ctx, env, &s.Image, spec.Config); err != nil {
			err = fmt.Errorf("sidecar %q: %w", s.Name, err)
		}
	}
	return err
}

func (a *attempt) image(ctx context.Context, env environment.Environment, im *environment.Image, config json.RawMessage) error {
	p, ok := env.(environment.Preparer)
	if !ok || (im.Ref == "" && im.Build == "") {
		return nil
	}
	made, err := call(ctx, record.ByEnvironment, "prepare image", limits.Prepare, func(ctx context.Context) (environment.Image, error) {
		return p.Prepare(ctx, *im, config, func(line string) { a.recorder.Log("image", "", line) })
	})
	if errors.Is(err, environment.ErrUnsupported) {
		return nil // Create uses the image as it is
	}
	if err == nil {
		*im = made
	}
	return err
}

// start says which programs of a new sandbox to start.
type start struct {
	sandbox  *sandbox.Sandbox
	task     *task.Environment
	services []task.Service
	health   *task.Healthcheck
	stage    string          // empty: it is the agent's sandbox
	not      map[string]bool // services not to start, by name
	pure     bool            // nothing of the agent is in the sandbox
}

// blame attributes an error while programs are started. In a sandbox without
// anything of the agent, it is never the agent's.
func (p start) blame(b record.Boundary, err error) error {
	if p.pure {
		return outcome.On(b, err)
	}
	return err
}

// programs starts the sidecars, the image's entrypoint and the services of a
// new sandbox.
func (a *attempt) programs(ctx context.Context, p start) error {
	if err := a.sidecars(ctx, p, false); err != nil {
		return err
	}
	at := record.Phase{Name: record.PhaseServices, Stage: p.stage, Who: record.ByTask}
	if err := a.phase(ctx, at, limits.Create, func(ctx context.Context) error { return p.blame(record.ByTask, a.services(ctx, p)) }); err != nil {
		return err
	}
	return a.sidecars(ctx, p, true)
}

// sidecars starts the sidecars that do not wait for the main container or, with
// later, those that do, and records how each start went. A failed sidecar is a
// failure of the environment.
func (a *attempt) sidecars(ctx context.Context, of start, later bool) error {
	if len(of.sandbox.Sidecars) == 0 {
		return nil
	}
	var started []sandbox.StartedSidecar
	all := record.Phase{Name: record.PhaseServices, Stage: of.stage, Who: record.ByEnvironment}
	err := a.phase(ctx, all, a.startTime(), func(ctx context.Context) (err error) {
		started, err = of.sandbox.StartSidecars(ctx, a.now, later)
		return of.blame(record.ByEnvironment, err)
	})
	for _, s := range started {
		p := record.Phase{Name: record.PhaseServices, Stage: of.stage, Service: s.Name, Who: record.ByEnvironment, Start: s.Start, End: s.End}
		if s.Err != nil {
			p.Error = a.recorder.Text(s.Err.Error(), limits.ErrorText)
		}
		a.res.Phases = append(a.res.Phases, p)
	}
	return err
}

// environmentSays records a note of the environment's plugin.
func (a *attempt) environmentSays(at record.PhaseName, code, text string) {
	f := verifier.Finding{Code: code, Severity: verifier.Note, Text: text}
	a.recorder.Finding(record.Phase{Name: at}, a.in.Cell.Environment.Plugin, f)
}

// create makes the sandbox and its initial content.
func (a *attempt) create(ctx context.Context) error {
	var err error
	a.sandbox, err = a.newSandbox(ctx, agentSandbox, sandbox.Order{
		Spec: a.spec, Folder: filepath.Join(a.in.Runtime, "b"), Task: &a.task.Environment, Sidecars: a.sideEnv,
		Reach: feasible.Reach(a.task, &a.task.Stages[0]).Setup,
	})
	if err != nil {
		return err
	}
	w := a.sandbox
	a.res.Granted, a.res.Image = &w.Made.Granted, &w.Made.Image
	if a.in.Drift != nil {
		if err := a.in.Drift(&a.res); err != nil {
			return outcome.On(record.ByConfig, err)
		}
	}
	ctx, end := w.Ctx(ctx)
	defer end()
	if err := a.furnish(ctx, w); err != nil {
		return err
	}
	if a.in.Origin != nil { // the origin's files have them, unless its agent removed them
		return nil
	}
	return a.place(ctx, w, task.PlaceCreate, "")
}

// furnish records how a new sandbox is protected, and makes the folders that the task
// expects.
func (a *attempt) furnish(ctx context.Context, w *sandbox.Sandbox) error {
	for _, f := range append(w.Made.Findings, w.Hello.Findings...) {
		a.environmentSays(record.PhaseCreate, "protection", f)
	}
	return w.Folders(ctx, a.task.Paths.All()...)
}

// services starts the image's entrypoint and the task's services, in order,
// and waits until they are ready.
func (a *attempt) services(ctx context.Context, p start) error {
	if !p.not[sandbox.Entrypoint] {
		note, err := p.sandbox.StartEntrypoint(ctx, p.task)
		if err != nil {
			return err
		}
		if note != "" {
			a.recorder.Note(record.Phase{Name: record.PhaseServices, Stage: p.stage}, "entrypoint", "%s", note)
		}
	}
	for i := range p.services {
		s := &p.services[i]
		if p.not[s.Name] {
			continue
		}
		if err := a.service(ctx, p.sandbox, s); err != nil {
			return fmt.Errorf("service %q: %w", s.Name, err)
		}
	}
	if p.health == nil {
		return nil
	}
	before, err := p.sandbox.Processes(ctx)
	if err != nil {
		return err
	}
	if err = p.sandbox.Healthy(ctx, p.health); err != nil {
		return fmt.Errorf("healthcheck of the task: %w", err)
	}
	if p.stage != "" { // what it leaves running would run beside the tests
		_, err = p.sandbox.Sweep(ctx, before.Keys())
	}
	return err
}

func (a *attempt) service(ctx context.Context, w *sandbox.Sandbox, s *task.Service) error {
	if s.Oneshot {
		return a.command(ctx, w, &s.Command, limits.Service)
	}
	env, err := s.Command.Env.Resolve(a.in.LookupEnv)
	if err != nil {
		return outcome.On(record.ByConfig, err)
	}
	_, err = w.StartService(ctx, host.Service{
		Name: s.Name, Argv: s.Command.Argv, Dir: cmp.Or(s.Command.Dir, w.Dir), User: s.Command.User, Env: sandbox.List(sandbox.Merge(w.Env, env)),
	})
	if err != nil || s.Ready == nil {
		return err
	}
	if err = w.Healthy(ctx, s.Ready); err != nil {
		return fmt.Errorf("not ready: %w; its last output: %s", err, w.ServiceOutput(ctx, s.Name))
	}
	return nil
}

// place puts the resources of one moment into a sandbox.
func (a *attempt) place(ctx context.Context, w *sandbox.Sandbox, when task.PlacePhase, stage string) error {
	_, err := a.put(ctx, w, "", func(r *task.Resource) bool { return r.Phase == when && (r.Stage == "" || r.Stage == stage) })
	return err
}

// put places the wanted resources, which then belong to user, and returns the sums of
// their files. If the task's own files cannot be read, this is never a fault of the
// sandbox.
func (a *attempt) put(ctx context.Context, w *sandbox.Sandbox, user string, wanted func(*task.Resource) bool) (views.Sums, error) {
	sums := views.Sums{}
	for i := range a.task.Resources {
		r := &a.task.Resources[i]
		if r.Place == "" || !wanted(r) {
			continue
		}
		placed, err := w.Put(ctx, a.task, r, user)
		if _, ours := errors.AsType[*sandbox.FilesError](err); ours {
			err = outcome.On(record.ByTask, err)
		}
		if err != nil {
			return nil, fmt.Errorf("place %s: %w", r.Name, err)
		}
		maps.Copy(sums, placed)
	}
	return sums, nil
}

// command runs a command of the task. Without a time limit of its own it has the usual
// one.
func (a *attempt) command(ctx context.Context, w *sandbox.Sandbox, c *task.Command, usual time.Duration) error {
	env, err := c.Env.Resolve(a.in.LookupEnv)
	if err != nil {
		return outcome.On(record.ByConfig, err)
	}
	return w.Command(ctx, c, env, cmp.Or(c.Time.Std(), usual))
}
