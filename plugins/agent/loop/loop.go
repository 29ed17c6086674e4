// Package loop is the frame of an agent that works from the host. It decodes
// the configuration, connects the shell and the model, counts and records
// steps, and turns each kind of failure into the right end of the turn.
//
//	func main() {
//		plugins.Serve(plugins.Agent(info, Config{}, loop.Agent[Config]{
//			New: func(ctx context.Context, s *loop.Session[Config]) (loop.Worker, error) { return &worker{s: s}, nil },
//		}))
//	}
//
// It must not know any prompt, protocol or tool: those belong to the scaffold.
package loop

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/model/chat"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/surface"
)

// DefaultModel is the name of the cell's model among the models of a session.
const DefaultModel = "default"

// Agent implements agent.Agent for a Worker. C is the struct of its
// configuration.
type Agent[C any] struct {
	// Terminal says that the worker needs a terminal in addition to commands.
	Terminal bool
	// NoShell says that the worker needs no sandbox: Session.Shell is nil. Such an
	// agent can play a simulated user.
	NoShell bool
	// Surface says that the worker observes and acts on the task's surface.
	Surface bool
	// Prior says that the worker uses Setup.Prior; see the function Prior.
	Prior bool
	// Skills says that the worker makes Setup.Skills known to its model; see the
	// function Skills.
	Skills bool
	// Refuse returns why the agent cannot work with this configuration and
	// request, in addition to what Validate of the configuration reports. Nil
	// refuses nothing.
	Refuse func(c C, r agent.CheckRequest) []string
	// New starts a session. ctx covers only this call: what New starts must not
	// end with it.
	New func(ctx context.Context, s *Session[C]) (Worker, error)
}

// Worker does the work of a session. Calls come one after another. A later turn
// may belong to a further stage of the task, or follow one that was cut off:
// processes that the worker left in the sandbox may have ended since then.
type Worker interface {
	// Turn works on one message until it yields. An error of the model or of
	// the sandbox is returned as it is.
	Turn(ctx context.Context, m agent.Message, r *Recorder) (agent.Yield, error)
	// Close ends the session; the sandbox may be gone by then.
	Close(ctx context.Context, r *Recorder) error
}

// Session is what a worker gets from New.
type Session[C any] struct {
	Setup  agent.Setup
	Config C
	Shell  sandbox.Shell // nil with Agent.NoShell
	Model  chat.Model
	// Surface is what the worker observes and acts on; nil without Agent.Surface.
	Surface environment.Session
}

// Check implements agent.Agent.
func (a Agent[C]) Check(_ context.Context, r agent.CheckRequest) (agent.Needs, error) {
	needs := agent.Needs{Shell: !a.NoShell, Surface: a.Surface, Terminal: a.Terminal, Dialects: chat.Dialects(), KeepsSession: true, TakesPrior: a.Prior, Skills: a.Skills}
	c, err := agent.ReadConfig[C](r.Config)
	if err != nil {
		return needs, err
	}
	if r.Role == agent.RoleUser && (!a.NoShell || a.Surface) {
		needs.Refusals = append(needs.Refusals, "it works in a sandbox, which a simulated user does not have: let another agent play the user")
	}
	if a.Refuse != nil {
		needs.Refusals = append(needs.Refusals, a.Refuse(c, r)...)
	}
	return needs, nil
}

// Open implements agent.Agent.
func (a Agent[C]) Open(ctx context.Context, setup agent.Setup) (_ agent.Session, err error) {
	c, err := agent.ReadConfig[C](setup.Config)
	if err != nil {
		return nil, err
	}
	e, ok := setup.Models[DefaultModel]
	if !ok {
		return nil, fmt.Errorf("%w: no model was given: name one in the experiment, as model = model.NAME", agent.ErrBadConfig)
	}
	client, err := chat.Dial(e)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", agent.ErrBadConfig, err)
	}
	own := &Session[C]{Setup: setup, Config: c, Model: client}
	s := &session{setup: setup, model: e.Name, open: []func() error{func() error { client.Close(); return nil }}}
	if !a.NoShell {
		box, failed := sandbox.Dial(setup.Shell)
		if failed != nil {
			return nil, errors.Join(failed, s.close())
		}
		own.Shell, s.open = box, append(s.open, box.Close)
	}
	if a.Surface {
		on, failed := surface.Dial(setup.Surface)
		if failed != nil {
			return nil, errors.Join(failed, s.close())
		}
		own.Surface, s.open = on, append(s.open, on.Close)
	}
	if s.worker, err = a.New(ctx, own); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// session implements agent.Session.
type session struct {
	setup  agent.Setup
	model  string
	worker Worker
	steps  int64          // replies of the model so far
	open   []func() error // closes what the session holds
}

func (s *session) close() (err error) {
	for _, end := range s.open {
		err = errors.Join(err, end())
	}
	return err
}

// errMaxSteps ends a turn that has used up its steps.
var errMaxSteps = errors.New("no steps are left")

// Turn implements agent.Session.
func (s *session) Turn(ctx context.Context, m agent.Message, r agent.Recorder) (agent.Yield, error) {
	rec := &Recorder{Recorder: r, model: s.model, most: s.setup.Limits.MaxSteps, steps: &s.steps}
	y, err := s.worker.Turn(ctx, m, rec)
	switch {
	case errors.Is(err, errMaxSteps):
		return agent.Yield{End: agent.MaxSteps, Reason: fmt.Sprintf("the limit of %d steps is reached", s.setup.Limits.MaxSteps)}, nil
	case err != nil && ctx.Err() != nil:
		return agent.Yield{}, context.Cause(ctx)
	}
	return y, err
}

// Close implements agent.Session.
func (s *session) Close(ctx context.Context, _ string, r agent.Recorder) error {
	return errors.Join(s.worker.Close(ctx, &Recorder{Recorder: r, model: s.model, steps: &s.steps}), s.close())
}
