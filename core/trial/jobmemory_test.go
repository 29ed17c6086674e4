package trial_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// counters are those of the kernel. Tests through the program use the kernel's own.
type counters struct{ processes atomic.Int64 }

func (c *counters) Kills() int64 { return c.processes.Load() }

func (*counters) FreeMiB() (int64, bool) { return 0, false }

// hungry is an agent whose turn ends so, and kills in the turn.
func hungry(c *counters, y agent.Yield, err error) *scripted {
	a := does("true")
	works := a.turn
	a.turn = func(ctx context.Context, act *actor, m agent.Message) (agent.Yield, error) {
		if _, failed := works(ctx, act, m); failed != nil {
			return y, failed
		}
		c.processes.Add(2)
		return y, err
	}
	return a
}

// errGone is the error of a plugin whose process was killed.
var errGone = fmt.Errorf("%w: signal: killed", plugin.ErrPluginGone)

// endings are what the kernel may end, and what an attempt comes to then.
var endings = []struct {
	name    string
	set     func(b *bench, c *counters) // kills once the agent works
	outcome record.Outcome
	phase   record.PhaseName // of the error
	says    string
}{
	{name: "the agent's program", set: func(b *bench, c *counters) {
		b.agents["agent"] = hungry(c, agent.Yield{End: agent.Crashed, ExitCode: -1}, nil)
	}, outcome: record.EnvironmentError, phase: record.PhaseTurn, says: "the agent's program was killed"},
	{name: "the last command of its shell", set: func(b *bench, c *counters) {
		b.agents["agent"] = hungry(c, agent.Yield{End: agent.Crashed, ExitCode: 137}, nil)
	}, outcome: record.EnvironmentError, phase: record.PhaseTurn, says: "the agent's program was killed"},
	{name: "a program of another attempt, and the agent crashed", set: func(b *bench, c *counters) {
		b.agents["agent"] = hungry(c, agent.Yield{End: agent.Crashed, ExitCode: 3}, nil)
	}, outcome: record.Failed},
	{name: "a program of another attempt, and the agent failed", set: func(b *bench, c *counters) {
		b.agents["agent"] = hungry(c, agent.Yield{}, errors.New("lost my head"))
	}, outcome: record.AgentError},
	{name: "a command of an agent that went on", set: func(b *bench, c *counters) {
		b.agents["agent"] = hungry(c, agent.Yield{End: agent.Done, ExitCode: 137}, nil)
	}, outcome: record.Failed},
	{name: "the agent's plugin", set: func(b *bench, c *counters) {
		b.agents["agent"] = hungry(c, agent.Yield{}, errGone)
	}, outcome: record.EnvironmentError, phase: record.PhaseTurn, says: "signal: killed"},
	{name: "PID 1 of the sandbox", set: func(b *bench, c *counters) {
		destroy := func() {}
		b.env = func(e environment.Environment) environment.Environment { return &ends{e, &destroy} }
		a := hungry(c, agent.Yield{End: agent.Done}, nil)
		works := a.turn
		a.turn = func(ctx context.Context, act *actor, m agent.Message) (agent.Yield, error) {
			y, err := works(ctx, act, m)
			destroy()
			<-ctx.Done()
			return y, errors.Join(err, context.Cause(ctx))
		}
		b.agents["agent"] = a
	}, outcome: record.EnvironmentError, phase: record.PhaseTurn, says: "the sandbox is gone"},
	{name: "a process of the tests, which fail", set: func(b *bench, c *counters) {
		b.judges["judge"] = disturbed(c, tests("false"))
	}, outcome: record.EnvironmentError, phase: record.PhaseVerify, says: "does not count"},
	{name: "a process beside the tests, which pass", set: func(b *bench, c *counters) {
		b.judges["judge"] = disturbed(c, tests("true"))
	}, outcome: record.EnvironmentError, phase: record.PhaseVerify, says: "does not count"},
	{name: "a process beside a verifier without a sandbox", set: func(b *bench, c *counters) {
		b.judges["judge"] = disturbed(c, looks(func(verifier.Request) bool { return true }))
	}, outcome: record.Passed},
	{name: "the process of the verifier, twice", set: func(b *bench, c *counters) {
		dies := func() *judge {
			j := disturbed(c, tests("true"))
			works := j.verify
			j.verify = func(ctx context.Context, r verifier.Request) (verifier.Verdict, error) {
				v, err := works(ctx, r)
				return v, errors.Join(err, errGone)
			}
			return j
		}
		b.judges["judge"] = dies()
		b.apart = func() (verifier.Verifier, error) { return dies(), nil }
	}, outcome: record.EnvironmentError, phase: record.PhaseVerify, says: "signal: killed"},
	{name: "a command that sets a second stage up", set: func(b *bench, c *counters) {
		b.judges["judge"] = tests("true")
		second := b.task.Stages[0]
		second.Name, second.Setup = "second", []task.Command{{Argv: []string{"sh", "-c", "exit 137"}}}
		b.task.Stages = append(b.task.Stages, second)
		b.live = func(e record.Event) {
			if e.Type == record.EventPhaseStart && e.Phase == record.PhaseSetup && e.Stage == "second" {
				c.processes.Add(1)
			}
		}
	}, outcome: record.EnvironmentError, phase: record.PhaseSetup, says: "137"},
}

func TestWhatTheMemoryOfTheJobEndsIsTheEnvironments(t *testing.T) {
	t.Parallel()
	for _, tt := range endings {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := &counters{}
			c.processes.Store(7) // of earlier attempts
			b := newBench(t, does("true"), tests("false"))
			tt.set(b, c)
			b.memory = c
			r := b.run(t.Context(), t)
			e := r.Error
			switch {
			case r.Outcome != tt.outcome || !found(r, "job_oom_kills"):
				t.Errorf("%s, %+v, findings %s; want %s", r.Outcome, e, pretty(r.Findings), tt.outcome)
			case tt.outcome == record.EnvironmentError && (e == nil || e.Boundary != record.ByEnvironment || !e.Retry || e.Phase != tt.phase ||
				!strings.Contains(e.Message, "the memory limit of this job was used up") || !strings.Contains(e.Message, tt.says)):
				t.Errorf("%+v; want an error of the environment in %s that is tried again and says %q", e, tt.phase, tt.says)
			}
		})
	}
}

// disturbed is a verifier during whose work the kernel ends a process of the job.
func disturbed(c *counters, j *judge) *judge {
	works := j.verify
	j.verify = func(ctx context.Context, r verifier.Request) (verifier.Verdict, error) {
		v, err := works(ctx, r)
		c.processes.Add(3)
		return v, err
	}
	return j
}

// ends is an environment whose sandboxes a test can end.
type ends struct {
	environment.Environment

	end *func()
}

func (e *ends) Create(ctx context.Context, s environment.Spec) (environment.Sandbox, error) {
	made, err := e.Environment.Create(ctx, s)
	*e.end = func() { _, _ = e.Destroy(context.WithoutCancel(ctx), made.ID) }
	return made, err
}
