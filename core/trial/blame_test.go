package trial_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// An error that follows from what the agent did to its sandbox is attributed to
// the agent and is not retried. If there is no error, its work is graded.
func TestWhatComesOfTheSandboxAfterTheAgentIsTheAgents(t *testing.T) {
	t.Parallel()
	const deep = `p=$(printf 'd%.0s' $(seq 194)); cd /logs/artifacts; i=0
while [ $i -lt 20 ]; do mkdir $p && cd $p && touch f || exit; i=$((i+1)); done`
	fails := tests("false")
	for _, tt := range []struct {
		name, does string
		set        func(t *testing.T, b *bench)
		outcome    record.Outcome
		phase      record.PhaseName
	}{
		{"the names of folders moved aside are taken", "mkdir -p /tests/x; seq -f /tests.aside-%.0f 9999 | xargs mkdir", nil, record.Failed, ""},
		{"paths that are too long", deep, nil, record.Failed, ""},
		{"a folder that is not named in UTF-8", `mkdir "/logs/artifacts/$(printf 'a\377')"; touch "/logs/artifacts/$(printf 'a\377')/f"`, nil, record.Failed, ""},
		{"the user of the verifier is gone", "cp /etc/passwd /tmp/p; grep -v ^games: /tmp/p > /etc/passwd", func(_ *testing.T, b *bench) {
			b.task.Stages[0].Verify.User = "games"
		}, record.AgentError, record.PhaseVerify},
		{"the folder of the tests cannot be made", "rm -rf /logs; mkdir /logs; mount -t proc proc /logs 2>/dev/null || ln -sfn /proc /logs", nil, record.Failed, ""},
		{"a service that does not come up again", "rm -f /app/ready", func(_ *testing.T, b *bench) {
			b.task.Services = []task.Service{{
				Name: "s", Command: task.Command{Argv: []string{"sh", "-c", "[ -e /app/was ] || touch /app/was /app/ready; exec sleep 1000"}},
				Ready: &task.Healthcheck{Argv: []string{"test", "-e", "/app/ready"}, Retries: 20, Interval: task.Duration(1e8), Timeout: task.Seconds(5)},
			}}
		}, record.AgentError, record.PhaseSettle},
		{"the second stage cannot be set up", "rm -f /bin/cp /usr/bin/cp", func(_ *testing.T, b *bench) {
			second := b.task.Stages[0]
			second.Name, second.Setup = "second", []task.Command{{Argv: []string{"cp", "/etc/hostname", "/app"}}}
			b.task.Stages = append(b.task.Stages, second)
		}, record.AgentError, record.PhaseSetup},
		{"a folder of the second stage stands behind a link", "rm -rf /app/data; ln -s /proc/self /app/data", func(t *testing.T, b *bench) {
			second := b.task.Stages[0]
			second.Name = "second"
			b.task.Stages = append(b.task.Stages, second)
			testlevel.Must(t, os.WriteFile(filepath.Join(b.task.Dir, "more"), []byte("x"), 0o600))
			b.task.Resources = append(b.task.Resources, task.Resource{
				Name: "more", Path: "more", Place: "/app/data/more", Phase: task.PlaceTurn, Audience: []task.Role{task.RoleAgent}, Stage: "second",
			})
		}, record.AgentError, record.PhaseSetup},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, does(tt.does), fails)
			withTests(t, b, map[string]string{"test.sh": "x"})
			if tt.set != nil {
				tt.set(t, b)
			}
			r := b.run(t.Context(), t)
			switch {
			case r.Outcome != tt.outcome, tt.phase == "" && r.Error != nil:
				t.Errorf("%s, %+v; want %s", r.Outcome, r.Error, tt.outcome)
			case tt.phase != "" && (r.Error == nil || r.Error.Boundary != record.ByAgent || r.Error.Retry || r.Error.Phase != tt.phase):
				t.Errorf("error %+v; want one of the agent's in %s that is not tried again", r.Error, tt.phase)
			}
		})
	}
}

// If the image lacks something before the agent ran, the agent is not at fault.
func TestWhatTheImageLacksIsTheTasks(t *testing.T) {
	t.Parallel()
	setup := func(script string) func(*bench) {
		return func(b *bench) { b.task.Stages[0].Setup = []task.Command{{Argv: []string{"sh", "-c", script}}} }
	}
	for _, tt := range []struct {
		name string
		set  func(b *bench)
		says string
	}{
		{"the agent's user", func(b *bench) { b.task.Stages[0].Agent.User = "nobody-of-that-name" }, `no user "nobody-of-that-name"`},
		{"the verifier's user", func(b *bench) { b.task.Stages[0].Verify.User = "nobody-of-that-name" }, `no user "nobody-of-that-name"`},
		{"the shell", setup("rm -f /bin/sh /usr/bin/sh"), `start "sh": no such program`},
		{"the shell's loader", setup("rm -f /lib64/ld-* /usr/lib64/ld-* /lib/*/ld-* /usr/lib/*/ld-*"), "the interpreter of"},
		{"the working folder", setup("cd /; rm -rf /app"), `the working folder "/app" is not there`},
	} {
		for _, crashes := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, yields %v", tt.name, crashes), func(t *testing.T) {
				t.Parallel()
				a := does("true")
				fails := a.turn
				a.turn = func(ctx context.Context, act *actor, m agent.Message) (agent.Yield, error) {
					y, err := fails(ctx, act, m)
					if err != nil && crashes {
						return agent.Yield{End: agent.Crashed, Reason: err.Error()}, nil
					}
					return y, err
				}
				b := newBench(t, a, tests("true"))
				tt.set(b)
				r := b.run(t.Context(), t)
				if r.Outcome != record.EnvironmentError || r.Error == nil || r.Error.Boundary != record.ByTask || r.Error.Retry ||
					!strings.Contains(r.Error.Message, tt.says) {
					t.Errorf("%s, %+v; want environment_error of the task, saying %q", r.Outcome, r.Error, tt.says)
				}
			})
		}
	}
}

// After a program of the agent has run, the agent may be the reason why
// something is missing.
func TestWhatTheAgentRemovedIsItsOwn(t *testing.T) {
	t.Parallel()
	a := turn(func(ctx context.Context, act *actor) (agent.Yield, error) {
		if err := act.sh(ctx, "rm -f /bin/sh /usr/bin/sh"); err != nil {
			return agent.Yield{}, err
		}
		return agent.Yield{}, act.sh(ctx, "true")
	})
	r := newBench(t, a, looks(func(verifierRequest) bool { return false })).run(t.Context(), t)
	if r.Outcome != record.AgentError || r.Error == nil || r.Error.Boundary != record.ByAgent {
		t.Errorf("%s, %+v; want agent_error", r.Outcome, r.Error)
	}
}

// The files of the task are on the host, so an agent cannot have changed them.
func TestFilesOfTheTaskThatCannotBeReadAreTheTasks(t *testing.T) {
	t.Parallel()
	a := does("true")
	b := newBench(t, a, tests("true"))
	withTests(t, b, map[string]string{"test.sh": "x"})
	honest := a.turn
	a.turn = func(ctx context.Context, act *actor, m agent.Message) (agent.Yield, error) {
		return first(honest(ctx, act, m))(os.Remove(filepath.Join(b.task.Dir, "tests", "test.sh")))
	}
	r := b.run(t.Context(), t)
	if r.Outcome != record.EnvironmentError || r.Error == nil || r.Error.Boundary != record.ByTask || r.Error.Retry {
		t.Errorf("%s, %+v; want environment_error of the task", r.Outcome, r.Error)
	}
}

// first joins an error with what was returned.
func first(y agent.Yield, err error) func(error) (agent.Yield, error) {
	return func(more error) (agent.Yield, error) { return y, errors.Join(err, more) }
}

// A plugin that crashes because of the agent's logs neither discards the
// agent's result nor gives the agent a further attempt.
func TestAnAgentsPluginThatDiesOfTheLogsIsAFinding(t *testing.T) {
	t.Parallel()
	a := does("true")
	a.closed = func(context.Context, string, agent.Recorder) error { return plugin.ErrPluginGone }
	r := newBench(t, a, tests("true")).run(t.Context(), t)
	if r.Outcome != record.Passed || r.Error != nil || !found(r, "close_session") {
		t.Errorf("%s, %+v, findings %s; want passed and the finding close_session", r.Outcome, r.Error, pretty(r.Findings))
	}
}

// One process verifies for all attempts. If it dies, the verification is
// repeated in a separate process. If that dies as well, what the agent left is
// the reason, and there is no further attempt. If a process cannot be started,
// no agent is at fault.
func TestAVerifiersProcessThatDiesIsAskedAgainAlone(t *testing.T) {
	t.Parallel()
	died := fmt.Errorf("%w: exit status 7", plugin.ErrPluginGone)
	for _, tt := range []struct {
		name        string
		again       error // what the second call fails with
		start       error
		untouched   bool
		outcome     record.Outcome
		retry, told bool
	}{
		{name: "it dies once", outcome: record.Passed, told: true},
		{name: "it dies again", again: died, outcome: record.VerifierError, told: true},
		{name: "it fails then", again: errors.New("no verdict"), outcome: record.VerifierError, told: true},
		{name: "it cannot be started again", start: errors.New("no memory"), outcome: record.PluginCrashed, retry: true},
		{name: "the agent was never in the sandbox", again: died, untouched: true, outcome: record.PluginCrashed, retry: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			fails := func(err error) *judge {
				j := looks(func(verifierRequest) bool { return true })
				honest := j.verify
				j.verify = func(ctx context.Context, r verifier.Request) (verifier.Verdict, error) {
					v, failed := honest(ctx, r)
					left := filepath.Join(r.Scratch, "left") // a second call finds nothing of the first
					return v, errors.Join(failed, err, os.Mkdir(left, 0o700))
				}
				return j
			}
			a := does("true")
			if tt.untouched {
				a = &scripted{}
			}
			b := newBench(t, a, fails(died))
			b.apart = func() (verifier.Verifier, error) { return fails(tt.again), tt.start }
			r := b.run(t.Context(), t)
			if r.Outcome != tt.outcome || (r.Error != nil && r.Error.Retry) != tt.retry || found(r, "verifier_repeated") != tt.told {
				t.Errorf("%s, %+v, findings %s; want %s, retry %v, told %v", r.Outcome, r.Error, pretty(r.Findings), tt.outcome, tt.retry, tt.told)
			}
		})
	}
}

// If a simulated user fails, this says nothing about the agent.
func TestASimulatedUserThatFailsIsNoFaultOfTheAgent(t *testing.T) {
	t.Parallel()
	ends := func(y agent.Yield, err error) func(*scripted) {
		return func(u *scripted) {
			u.turn = func(context.Context, *actor, agent.Message) (agent.Yield, error) { return y, err }
		}
	}
	for _, tt := range []struct {
		name string
		set  func(u *scripted)
		says string
	}{
		{"its turn fails", ends(agent.Yield{}, errors.New("lost my head")), "lost my head"},
		{"its program crashes", ends(agent.Yield{End: agent.Crashed, Reason: "exit code 3"}, nil), "exit code 3"},
		{"it refuses", ends(agent.Yield{End: agent.Refused}, nil), "refused"},
		{"its turn ends as nothing", ends(agent.Yield{End: "tired"}, nil), "tired"},
		{"its configuration is wrong", ends(agent.Yield{}, fmt.Errorf("%w: no such effort", agent.ErrBadConfig)), "no such effort"},
		{"its session does not open", func(u *scripted) {
			u.open = func(context.Context, agent.Setup) error { return errors.New("no key") }
		}, "no key"},
		{"its time is over", func(u *scripted) {
			u.turn = func(ctx context.Context, _ *actor, _ agent.Message) (agent.Yield, error) {
				<-ctx.Done()
				return agent.Yield{}, context.Cause(ctx)
			}
		}, "timeout"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := withRounds(t)
			b.cell.User.Time = 2e8
			if tt.says != "timeout" {
				b.cell.User.Time = 0
			}
			u := &scripted{}
			tt.set(u)
			b.agents["user"] = u
			r := b.run(t.Context(), t)
			if r.Outcome != record.UserError || r.Outcome.Measured() || !r.Outcome.Infrastructure() || r.Error == nil ||
				r.Error.Boundary != record.ByUser || r.Error.Phase != record.PhaseUser || !strings.Contains(r.Error.Message, tt.says) {
				t.Errorf("%s, %+v; want user_error of the user, saying %q", r.Outcome, r.Error, tt.says)
			}
		})
	}
}

// gatewayOfAPort is a gateway that opens a port in the sandbox of each stage.
type gatewayOfAPort struct {
	ports []int // of each session in turn
}

func (g *gatewayOfAPort) Session(ctx context.Context, s models.Spec) (models.Session, error) {
	port := g.ports[0]
	g.ports = g.ports[1:]
	p, err := s.Inside(ctx, port, func(net.Conn) {})
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	return portOpen{&purse{state: models.State{Served: true}}, p.Close}, nil
}

// portOpen is a session whose models get no request.
type portOpen struct {
	*purse

	end func() error
}

func (p portOpen) Close(context.Context) error { return p.end() }

// If a port in the sandbox cannot be opened for the models of a later stage, no
// model is at fault.
func TestAPortForModelsThatTheAgentTookIsTheAgents(t *testing.T) {
	t.Parallel()
	testlevel.Program(t, "python3", "python3")
	a := does(`python3 -c 'import os, socket
s = socket.socket(); s.bind(("127.0.0.1", 7777)); s.listen()
if os.fork() == 0:
    os.setsid()
    for fd in (0, 1, 2): os.close(fd)
    os.read(os.pipe()[0], 1)'`)
	a.needs.Dialects = []model.Dialect{model.DialectOpenAIChat}
	b := newBench(t, a, tests("true"))
	b.gateway, b.task.Mode = &gatewayOfAPort{ports: []int{0, 7777}}, task.ModeLive
	b.cell.Agent.Models = map[string]*cell.Model{"default": {Label: "m"}}
	second := b.task.Stages[0]
	second.Name = "second"
	b.task.Stages = append(b.task.Stages, second)
	r := b.run(t.Context(), t)
	if r.Outcome != record.AgentError || r.Error == nil || r.Error.Boundary != record.ByAgent || r.Error.Stage != "second" || r.Error.Retry {
		t.Errorf("%s, %+v; want agent_error in the second stage", r.Outcome, r.Error)
	}
}

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
