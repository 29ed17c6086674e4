package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/core/trial/recorder"
	"github.com/berth-eval/berth/core/trial/sandbox"
	"github.com/berth-eval/berth/plugins/agent"
	shell "github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/relay"
	surfaces "github.com/berth-eval/berth/plugins/surface/host"
	"github.com/berth-eval/berth/plugins/task"
)

// session is a session of the agent or of the simulated user. It has access
// only while it is opened or has a turn.
type session struct {
	a        *attempt
	id       string
	role     agent.Role
	agent    agent.Session
	needs    agent.Needs
	view     string
	scratch  string
	relay    *relay.Relay   // nil: no shell
	door     *surfaces.Door // nil: no surface
	tools    io.Closer      // the surface as tools in the sandbox; nil: there are none
	models   models.Session // nil: no models
	preamble string         // of the first message: what the agent does not make known itself
	recorder *recorder.SessionRecorder

	turns   int // number of turns begun
	claimed *agent.Claim
	silent  bool // a turn ended without a claim
}

// boundary returns who is at fault for what the plugin of a role does.
func boundary(r agent.Role) record.Boundary {
	if r == agent.RoleUser {
		return record.ByUser
	}
	return record.ByAgent
}

// access gives the session access, until revoke.
func (s *session) access(ctx context.Context) error {
	if s.relay != nil {
		if err := s.relay.Open(ctx); err != nil {
			return outcome.On(record.ByCore, err)
		}
	}
	if s.door != nil {
		s.door.Open(ctx)
	}
	if s.models != nil {
		s.models.Allow(ctx)
	}
	return nil
}

// errNotCut means that a call of a session may still be running in the sandbox
// after its access was cut, so that nothing in the sandbox can be graded.
var errNotCut = errors.New("access was not cut")

// revoke cuts the session's access at once, even in the middle of a call. It
// continues after a cancel of ctx, but only for a limited time.
func (s *session) revoke(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limits.Control)
	defer cancel()
	var errs []error
	if s.door != nil {
		if err := s.door.Close(ctx); err != nil {
			errs = append(errs, outcome.On(record.ByCore, fmt.Errorf("%w: %w", errNotCut, err)))
		}
	}
	if s.relay != nil {
		if err := s.relay.Close(ctx); err != nil {
			errs = append(errs, outcome.On(s.a.owner(record.ByEnvironment), fmt.Errorf("%w: %w", errNotCut, err)))
		}
	}
	if s.models != nil {
		errs = append(errs, outcome.On(record.ByModel, s.models.Revoke(ctx)))
	}
	return errors.Join(errs...)
}

// shut removes the addresses of a session that has ended.
func (s *session) shut(ctx context.Context) error {
	var errs []error
	if s.door != nil {
		errs = append(errs, s.door.Shut(ctx))
		s.door = nil
	}
	if s.tools != nil {
		errs = append(errs, s.tools.Close())
		s.tools = nil
	}
	if s.relay != nil {
		errs = append(errs, s.relay.Shut(ctx))
		s.relay = nil
	}
	if s.models != nil {
		errs = append(errs, s.models.Close(ctx))
		s.a.modelled(s.models, string(s.role))
		s.compare(s.models.Usage())
		s.models = nil
	}
	return errors.Join(errs...)
}

// modelSpec returns the part of a request for models that all sessions have in
// common.
func (a *attempt) modelSpec(role string, named map[string]*cell.Model) models.Spec {
	return models.Spec{
		Trial: a.in.Trial, Attempt: a.in.Attempt, Task: a.task.Name, Repetition: a.in.Repetition, Role: role, Models: named,
		Hosted: true, Dir: a.in.Record.Dir(), Append: a.recorder.Append,
		Mask: func(body []byte) []byte { return a.recorder.Redactor().Bytes(body) },
	}
}

// opening says how a session is to be opened.
type opening struct {
	role   agent.Role
	plugin agent.Agent
	cell   cell.Agent
	needs  agent.Needs
	view   string
	limits agent.Limits
	stage  *task.Stage
	number int // of the session in the attempt, used in names
}

// sessionID returns the name of a session in the attempt and in its sandbox.
func sessionID(role agent.Role, number int) string { return fmt.Sprintf("%s-%d", role, number) }

// open opens a session. If it fails, it removes what it made.
func (a *attempt) open(ctx context.Context, o opening) (_ *session, err error) {
	s := &session{a: a, role: o.role, needs: o.needs, view: o.view, id: sessionID(o.role, o.number)}
	s.recorder = recorder.ForSession(a.recorder, o.role)
	defer func() {
		if err != nil {
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), limits.Close)
			defer cancel()
			err = errors.Join(err, s.revoke(ctx), s.shut(end))
		}
	}()
	if s.scratch, err = a.folders().Make("scratch-" + s.id); err != nil {
		return nil, outcome.On(record.ByCore, err)
	}
	setup := agent.Setup{
		Session: fmt.Sprintf("%s/%d/%s", a.in.Trial, a.in.Attempt, s.id), Role: o.role, View: o.view, Limits: o.limits,
		Scratch: s.scratch, Config: o.cell.Config.JSON(), Seed: a.in.seed(s.id),
	}
	if err = a.models(ctx, s, o, &setup); err != nil {
		return nil, err
	}
	if o.role != agent.RoleUser {
		if err = errors.Join(a.agentSetup(ctx, s, o, &setup), a.onSurface(ctx, s, &setup)); err != nil {
			return nil, err
		}
		if o.role == agent.RoleAgent && s.relay != nil {
			s.preamble = o.needs.Told(setup.Servers, setup.Skills)
		}
	}
	if err = s.access(ctx); err != nil {
		return nil, err
	}
	if s.relay != nil || s.door != nil {
		a.agentActed = true
	}
	a.commanded = a.commanded || s.relay != nil
	bounded, cancel := limits.Limited(ctx, "it", limits.Open)
	defer cancel()
	if s.agent, err = o.plugin.Open(bounded, setup); err != nil {
		err = fmt.Errorf("open session of %s: %w", o.cell.Plugin, limits.Caused(bounded, err))
		return nil, errors.Join(refused(s.models), outcome.On(boundary(o.role), err))
	}
	return s, s.revoke(ctx)
}

// models opens the models of a session.
func (a *attempt) models(ctx context.Context, s *session, o opening, setup *agent.Setup) (err error) {
	if len(o.needs.Dialects) == 0 || a.in.Gateway == nil {
		return nil
	}
	spec := a.modelSpec(string(o.role), o.cell.Models)
	spec.Dialects, spec.Budget = o.needs.Dialects, a.in.Cell.Limits.Budget
	spec.Agent, spec.InFlight = o.cell.Label, o.cell.InFlight
	spec.Hosted = feasible.Public(a.task, o.stage, task.NetworkMode(a.spec.Network.Mode))
	if o.role != agent.RoleUser {
		spec.Inside = func(ctx context.Context, port int, serve func(net.Conn)) (*host.Port, error) {
			p, failed := a.sandbox.Listen(ctx, port, serve)
			return p, outcome.On(a.owner(record.ByEnvironment), failed) // no model is involved
		}
	} else if u := a.in.Cell.User; u != nil {
		spec.Budget = u.Budget
	}
	s.models, err = a.in.Gateway.Session(ctx, spec)
	if err == nil {
		setup.Models = s.models.Endpoints()
		for _, e := range setup.Models {
			a.recorder.Hide(e.Token)
		}
	}
	return outcome.On(record.ByModel, err)
}

// agentSetup adds what only a session in the sandbox of the task has.
func (a *attempt) agentSetup(ctx context.Context, s *session, o opening, setup *agent.Setup) error {
	env, err := o.stage.Agent.Env.Resolve(a.in.LookupEnv)
	if err != nil {
		return outcome.On(record.ByConfig, fmt.Errorf("environment of the agent: %w", err))
	}
	env = sandbox.Merge(a.sandbox.Env, env, cell.Strings(o.cell.Env))
	setup.User = cmp.Or(o.stage.Agent.User, a.sandbox.Made.Image.User)
	setup.Workdir = a.sandbox.Dir
	if o.needs.Shell || o.needs.Terminal {
		s.relay, err = relay.New(filepath.Join(a.in.Runtime, s.id), relay.Of(a.sandbox.Sandbox, host.Session{
			ID: s.id, User: setup.User, Dir: a.sandbox.Dir, Env: sandbox.List(env),
		}))
		if err != nil {
			return outcome.On(record.ByCore, err)
		}
		setup.Shell = s.relay.Address()
	}
	for _, m := range a.task.MCPServers {
		headers, errHeaders := m.Headers.Resolve(a.in.LookupEnv)
		env, errEnv := m.Env.Resolve(a.in.LookupEnv)
		if err = errors.Join(errHeaders, errEnv); err != nil {
			return outcome.On(record.ByConfig, fmt.Errorf("server %s: %w", m.Name, err))
		}
		setup.Servers = append(setup.Servers, agent.Server{
			Name: m.Name, Transport: m.Transport, URL: m.URL, Headers: headers, Command: m.Command, Args: m.Args, Env: env,
		})
	}
	if setup.Skills, err = a.skills(ctx, o); err != nil {
		return err
	}
	if o.number == 1 && o.cell.Prior != "" {
		if edited := unchanged(o.cell.Prior, o.cell.PriorDigest); edited != nil {
			return outcome.On(record.ByConfig, fmt.Errorf("trajectory to continue from: %w", edited))
		}
		setup.Prior = o.cell.Prior
	} else if p := o.stage.PriorTrajectory; p != "" {
		setup.Prior = filepath.Join(o.view, filepath.FromSlash(p))
	}
	if o.role == agent.RoleOracle {
		return a.reference(o, setup)
	}
	return nil
}

// reference gives the task's own solution to the oracle.
func (a *attempt) reference(o opening, setup *agent.Setup) error {
	ref := o.stage.Reference
	if ref == nil {
		return outcome.On(record.ByTask, fmt.Errorf("stage %s has no reference solution", o.stage.Name))
	}
	env, err := ref.Env.Resolve(a.in.LookupEnv)
	if err != nil {
		return outcome.On(record.ByConfig, fmt.Errorf("environment of the solution: %w", err))
	}
	for i := range a.task.Resources {
		r := &a.task.Resources[i]
		if r.Name != ref.Resource || (r.Stage != "" && r.Stage != o.stage.Name) {
			continue
		}
		setup.Reference = &agent.Reference{
			Folder: filepath.Join(o.view, filepath.FromSlash(r.Name)), Place: a.sandbox.Absolute(r.Place), Argv: ref.Argv, Env: env,
		}
		return nil
	}
	return outcome.On(record.ByTask, fmt.Errorf("stage %s: reference solution %q not found among the task's resources", o.stage.Name, ref.Resource))
}

// finished is the result of a turn.
type finished struct {
	yield agent.Yield
	end   record.AgentEnd
	stop  string        // why the model stopped in the last answer of the turn; empty: not known
	took  time.Duration // charged to the agent
	wait  time.Duration // that the turn waited for a provider, not in took
	err   error         // the plugin itself failed
}

// The causes with which the core ends a turn.
var (
	errBudget   = errors.New("a budget is spent")
	errTurnTime = errors.New("the time of the turn is over")
	errTotal    = fmt.Errorf("%w: it is the total time of the interaction", errTurnTime)
	errStalled  = fmt.Errorf("%w: nothing was recorded or logged", errTurnTime)
)

// turn sends one message, of turn n of the stage, and returns after the agent's
// access is cut. At a deadline, access is cut first and the call is cancelled later,
// so that the plugin's clean-up cannot touch what is graded. In between, it has
// limits.Farewell to answer, because the answer of a cancelled call is lost.
func (s *session) turn(ctx context.Context, m agent.Message, n int, b bounds) finished {
	s.turns++
	m.Time = b.limit
	if err := s.access(ctx); err != nil {
		return finished{err: errors.Join(err, s.revoke(ctx))}
	}
	call, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	begin, before := time.Now(), s.waited()
	waited := func() time.Duration { return s.waited() - before }
	clock := func() time.Duration { return time.Since(begin) - waited() }
	s.recorder.Begin(m.Stage, n, clock)
	var watching sync.WaitGroup
	var why atomic.Pointer[error] // set before access is cut, because that may end the call
	var cut atomic.Int64          // nanoseconds since begin; 0: not cut
	over := make(chan struct{})
	watching.Go(func() {
		left := func() (time.Duration, error) { return b.left(begin, clock(), s.recorder) }
		if cause := s.watch(ctx, call, left); cause != nil {
			why.Store(&cause)
			cut.Store(int64(time.Since(begin)))
			if err := s.revoke(ctx); err != nil {
				s.a.recorder.Note(record.Phase{Name: record.PhaseTurn, Stage: m.Stage}, "revoke", "%s", err)
			}
			farewell(ctx, cause, over)
			cancel(cause)
		}
	})
	y, err := s.agent.Turn(call, m, s.recorder)
	err = limits.Caused(call, err)
	close(over)
	var cause error
	if p := why.Load(); p != nil {
		cause = *p
	} else if s.broke() {
		cause = errBudget // the agent noticed it before the watch did
	} else if s.door != nil {
		cause = s.a.surface.open.Err() // as above
	}
	took := time.Since(begin)
	if c := cut.Load(); c > 0 {
		took = time.Duration(c)
	}
	wait := waited()
	took = max(0, took-wait)
	cancel(nil)
	watching.Wait()
	revoked := s.revoke(ctx)
	s.recorder.End()
	s.claim(y.Claim)
	f := finished{yield: y, took: took, wait: wait, stop: s.stopped(begin), err: outcome.On(boundary(s.role), err)}
	if errors.Is(cause, errStalled) {
		s.a.recorder.Note(record.Phase{Name: record.PhaseTurn, Stage: m.Stage}, "stalled", "%s", cause)
	}
	s.conclude(ctx, &f, m.Stage, cause, err)
	if f.err == nil {
		f.err = revoked
	}
	return f
}

// stopped returns why the model stopped in the last answer since a time; empty: there
// was none, or it is not known.
func (s *session) stopped(since time.Time) string {
	if s.models == nil {
		return ""
	}
	if last := s.models.State().Last; last != nil && !last.Time.Before(since) {
		return last.Stop
	}
	return ""
}

// close closes the agent's session and keeps the files that it left on the
// host.
func (s *session) close(ctx context.Context, logs string) error {
	if s.agent == nil {
		return nil
	}
	ag := s.agent
	s.agent = nil
	s.recorder.Resume()
	defer s.recorder.End()
	_, err := call(ctx, boundary(s.role), "close session", limits.Close, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, ag.Close(ctx, logs, s.recorder)
	})
	return err
}

// skills returns the folders in the sandbox that have skills for the agent. An agent
// must not work without one that the task counts on: it brings it itself, or the image
// has it. The oracle uses none.
func (a *attempt) skills(ctx context.Context, o opening) (dirs []string, err error) {
	own := agent.SkillsOf(o.cell.Config.JSON())
	for _, k := range a.task.Skills {
		for i := range a.task.Resources {
			if r := &a.task.Resources[i]; k.Dir == "" && r.Name == k.Resource && r.Place != "" {
				dirs = append(dirs, a.sandbox.Absolute(r.Place))
			}
		}
		if k.Dir == "" {
			continue
		}
		dir := a.sandbox.Absolute(k.Dir)
		dirs = append(dirs, dir)
		if there, err := a.hasFolder(ctx, dir); err != nil {
			return nil, err
		} else if !there && o.role == agent.RoleAgent {
			a.recorder.Note(record.Phase{Name: record.PhaseSetup, Stage: o.stage.Name}, "skills_missing", "there is no folder %s in the sandbox, where the task has skills", dir)
		}
		for _, name := range k.FromImage {
			if o.role == agent.RoleOracle || slices.Contains(own, name) {
				continue
			}
			skill := path.Join(dir, name)
			there, err := a.hasFolder(ctx, skill)
			if err != nil {
				return nil, err
			}
			if !there {
				return nil, outcome.On(record.ByTask, fmt.Errorf("skill %q of the task: there is no %s in the sandbox: use an image that has it, or an agent with a block skill %q", name, skill, name))
			}
		}
	}
	return dirs, nil
}

// hasFolder reports whether the sandbox has a folder.
func (a *attempt) hasFolder(ctx context.Context, dir string) (bool, error) {
	r, err := a.sandbox.Core().Exec(ctx, shell.Command{Argv: []string{"test", "-d", dir}, User: a.sandbox.User, Timeout: limits.Open})
	if err != nil {
		return false, outcome.On(record.ByEnvironment, fmt.Errorf("look for skills: %w", err))
	}
	return r.OK(), nil
}
