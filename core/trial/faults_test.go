package trial_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// broken is an environment with some calls replaced.
type broken struct {
	environment.Environment
	create  func(context.Context, environment.Spec) (environment.Sandbox, error)
	destroy func(context.Context, string) (environment.Remains, error)
	list    func(context.Context, string) ([]string, error)
}

func (e *broken) Create(ctx context.Context, s environment.Spec) (environment.Sandbox, error) {
	if e.create != nil {
		return e.create(ctx, s)
	}
	return e.Environment.Create(ctx, s)
}

func (e *broken) Destroy(ctx context.Context, id string) (environment.Remains, error) {
	if e.destroy != nil {
		return e.destroy(ctx, id)
	}
	return e.Environment.Destroy(ctx, id)
}

func (e *broken) List(ctx context.Context, owner string) ([]string, error) {
	if e.list != nil {
		return e.list(ctx, owner)
	}
	return e.Environment.List(ctx, owner)
}

// onEnv replaces calls of the genuine environment.
func onEnv(b *bench, f func(genuine environment.Environment, e *broken)) {
	b.env = func(genuine environment.Environment) environment.Environment {
		e := &broken{Environment: genuine}
		f(genuine, e)
		return e
	}
}

func turn(f func(context.Context, *actor) (agent.Yield, error)) *scripted {
	return &scripted{needs: agent.Needs{Shell: true}, turn: func(ctx context.Context, a *actor, _ agent.Message) (agent.Yield, error) { return f(ctx, a) }}
}

func verdict(v verifier.Verdict, err error) *judge {
	return &judge{traits: verifier.Traits{Needs: verifier.NeedsSandbox}, verify: func(context.Context, verifier.Request) (verifier.Verdict, error) {
		return v, err
	}}
}

// faultCase is one fault, and its effect on an attempt.
type faultCase struct {
	name    string
	agent   *scripted
	judge   *judge
	set     func(b *bench)
	outcome record.Outcome
	end     record.AgentEnd
	by      record.Boundary // of the error; empty: there is none
	phase   record.PhaseName
	retry   bool
	says    string // in the error
	unseen  bool   // never verified
	finding string // its code
}

func faultCases() []faultCase {
	ok, pass := does("true"), tests("true")
	yields := func(e agent.End) *scripted {
		return turn(func(context.Context, *actor) (agent.Yield, error) { return agent.Yield{End: e}, nil })
	}
	fails := func(err error) *scripted {
		return turn(func(context.Context, *actor) (agent.Yield, error) { return agent.Yield{}, err })
	}
	opens := func(err error) *scripted {
		return &scripted{needs: agent.Needs{Shell: true}, open: func(context.Context, agent.Setup) error { return err }}
	}
	return []faultCase{
		{name: "yields max steps", agent: yields(agent.MaxSteps), judge: pass, outcome: record.Passed, end: record.MaxSteps},
		{name: "yields refused", agent: yields(agent.Refused), judge: tests("false"), outcome: record.Failed, end: record.Refused},
		{name: "its program crashes", agent: yields(agent.Crashed), judge: tests("false"), outcome: record.Failed, end: record.Crashed},
		{
			name: "yields nonsense", agent: yields("tired"), judge: tests("false"),
			outcome: record.AgentError, end: record.Crashed, by: record.ByAgent, phase: record.PhaseTurn, says: "tired",
		},
		{
			name: "turn fails, work is bad", agent: fails(errors.New("lost my head")), judge: tests("false"),
			outcome: record.AgentError, end: record.Crashed, by: record.ByAgent, phase: record.PhaseTurn, says: "lost my head",
		},
		{
			name: "turn fails, work is good", agent: fails(errors.New("lost my head")), judge: pass,
			outcome: record.Passed, end: record.Crashed, by: record.ByAgent, phase: record.PhaseTurn,
		},
		{
			name: "agent's plugin dies in a turn", agent: fails(fmt.Errorf("turn: %w", plugin.ErrPluginGone)), judge: pass,
			outcome: record.PluginCrashed, end: record.Crashed, by: record.ByAgent, phase: record.PhaseTurn, retry: true, unseen: true,
		},
		{
			name: "the model is down", agent: fails(fmt.Errorf("call: %w", agent.ErrModel)), judge: pass,
			outcome: record.ModelError, end: record.Crashed, by: record.ByAgent, phase: record.PhaseTurn, retry: true, unseen: true,
		},
		{
			name: "open fails", agent: opens(errors.New("no key")), judge: pass,
			outcome: record.AgentError, by: record.ByAgent, phase: record.PhaseSetup, unseen: true,
		},
		{
			name: "agent refuses", agent: &scripted{needs: agent.Needs{Refusals: []string{"no such effort"}}}, judge: pass,
			outcome: record.NotRun, by: record.ByConfig, phase: record.PhasePrepare, says: "no such effort", unseen: true,
		},
		{
			name: "verifier fails", agent: ok, judge: verdict(verifier.Verdict{}, errors.New("no pytest")),
			outcome: record.VerifierError, end: record.Yielded, by: record.ByVerifier, phase: record.PhaseVerify, says: "no pytest", unseen: true,
		},
		{
			name: "verifier dies", agent: ok, judge: verdict(verifier.Verdict{}, plugin.ErrPluginGone),
			outcome: record.PluginCrashed, end: record.Yielded, by: record.ByVerifier, phase: record.PhaseVerify, retry: true, unseen: true,
		},
		{
			name: "continue after the end", agent: ok, judge: verdict(reward(verifier.Continue, 1), nil),
			outcome: record.VerifierError, end: record.Yielded, by: record.ByVerifier, phase: record.PhaseVerify, unseen: true,
		},
	}
}

func TestFaultsOfPlugins(t *testing.T) {
	t.Parallel()
	cases := append(faultCases(), environmentCases()...)
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, tt.agent, tt.judge)
			if tt.set != nil {
				tt.set(b)
			}
			r := b.run(t.Context(), t)
			integrity := record.Checked
			if tt.unseen {
				integrity = record.Unknown
			}
			want(t, r, tt.outcome, tt.end, integrity)
			switch {
			case tt.by == "" && r.Error != nil:
				t.Errorf("error %+v; want none", r.Error)
			case tt.by != "" && (r.Error == nil || r.Error.Boundary != tt.by || r.Error.Phase != tt.phase || r.Error.Retry != tt.retry ||
				!strings.Contains(r.Error.Message, tt.says)):
				t.Errorf("error %+v; want one of %s in %s, retry %v, saying %q", r.Error, tt.by, tt.phase, tt.retry, tt.says)
			case tt.finding != "" && !found(r, tt.finding):
				t.Errorf("no finding %s: %s", tt.finding, pretty(r.Findings))
			}
		})
	}
}

func environmentCases() []faultCase {
	ok, pass := does("true"), tests("true")
	creates := func(err error) func(*bench) {
		return func(b *bench) {
			onEnv(b, func(_ environment.Environment, e *broken) {
				e.create = func(context.Context, environment.Spec) (environment.Sandbox, error) {
					return environment.Sandbox{}, err
				}
			})
		}
	}
	return []faultCase{
		{
			name: "no capacity", agent: ok, judge: pass, set: creates(environment.ErrNoCapacity),
			outcome: record.EnvironmentError, by: record.ByEnvironment, phase: record.PhaseCreate, retry: true, unseen: true,
		},
		{
			name: "environment's plugin dies", agent: ok, judge: pass, set: creates(plugin.ErrPluginGone),
			outcome: record.PluginCrashed, by: record.ByEnvironment, phase: record.PhaseCreate, retry: true, unseen: true,
		},
		{
			name: "the sandbox does not go away after a pass", agent: ok, judge: pass, set: func(b *bench) {
				onEnv(b, func(genuine environment.Environment, e *broken) {
					e.destroy = func(ctx context.Context, id string) (environment.Remains, error) {
						_, err := genuine.Destroy(ctx, id)
						return environment.Remains{}, errors.Join(errors.New("busy"), err)
					}
				})
			}, outcome: record.Passed, end: record.Yielded, finding: "cleanup",
		},
		{
			name: "environment's plugin dies before destroy", agent: ok, judge: pass, set: func(b *bench) {
				var once sync.Once
				onEnv(b, func(genuine environment.Environment, e *broken) {
					e.destroy = func(ctx context.Context, id string) (r environment.Remains, err error) {
						once.Do(func() { err = plugin.ErrPluginGone })
						if err != nil {
							return r, err
						}
						return genuine.Destroy(ctx, id)
					}
				})
			}, outcome: record.Passed, end: record.Yielded,
		},
		{
			name: "setup of the task fails", agent: ok, judge: pass, set: func(b *bench) {
				b.task.Stages[0].Setup = []task.Command{{Argv: []string{"sh", "-c", "echo broken; exit 7"}}}
			}, outcome: record.EnvironmentError, by: record.ByTask, phase: record.PhaseSetup, says: "broken", unseen: true,
		},
		{
			name: "never healthy", agent: ok, judge: pass, set: func(b *bench) {
				b.task.Healthcheck = &task.Healthcheck{Argv: []string{"false"}, Interval: task.Duration(time.Millisecond), Timeout: task.Seconds(5), Retries: 3}
			}, outcome: record.EnvironmentError, by: record.ByTask, phase: record.PhaseServices, says: "3 times", unseen: true,
		},
		{
			name: "a service does not start", agent: ok, judge: pass, set: func(b *bench) {
				b.task.Services = []task.Service{{Name: "s", Oneshot: true, Command: task.Command{Argv: []string{"sh", "-c", "exit 3"}}}}
			}, outcome: record.EnvironmentError, by: record.ByTask, phase: record.PhaseServices, says: "exit code 3", unseen: true,
		},
		{
			name: "a host variable is missing", agent: ok, judge: pass, set: func(b *bench) {
				b.task.Environment.Env = task.Env{"X": {Host: "NOT_SET"}}
			}, outcome: record.NotRun, by: record.ByConfig, phase: record.PhasePrepare, says: "NOT_SET", unseen: true,
		},
	}
}

func TestTheEndOfTheSandboxIsTheAgentsDoing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		when string // turn or verify
		env  error  // what the environment's plugin says when it is asked
		anew bool   // it was started again meanwhile
		want record.Outcome
		end  record.AgentEnd
		by   record.Boundary
	}{
		{"in a turn", "turn", nil, false, record.AgentError, record.SandboxLost, record.ByAgent},
		{"during verification", "verify", nil, false, record.AgentError, record.SandboxLost, record.ByAgent},
		{"with its plugin", "turn", plugin.ErrPluginGone, false, record.PluginCrashed, record.SandboxLost, record.ByEnvironment},
		{"with its plugin, which is there again", "turn", nil, true, record.PluginCrashed, record.SandboxLost, record.ByEnvironment},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var kill func()
			waits := func(ctx context.Context) error {
				kill()
				<-ctx.Done()
				return context.Cause(ctx)
			}
			a, j := does("true"), tests("true")
			if tt.when == "turn" {
				a = turn(func(ctx context.Context, act *actor) (agent.Yield, error) {
					if err := act.sh(ctx, "true"); err != nil {
						return agent.Yield{}, err
					}
					return agent.Yield{}, waits(ctx)
				})
			} else {
				j.verify = func(ctx context.Context, _ verifier.Request) (verifier.Verdict, error) {
					return verifier.Verdict{}, waits(ctx)
				}
			}
			b := newBench(t, a, j)
			onEnv(b, func(genuine environment.Environment, e *broken) {
				e.create = func(ctx context.Context, s environment.Spec) (environment.Sandbox, error) {
					made, err := genuine.Create(ctx, s)
					kill = func() {
						if tt.anew {
							b.starts.Add(1)
						}
						_, _ = genuine.Destroy(context.WithoutCancel(ctx), made.ID)
					}
					return made, err
				}
				if tt.env != nil {
					e.list = func(context.Context, string) ([]string, error) { return nil, tt.env }
				}
			})
			r := b.run(t.Context(), t)
			want(t, r, tt.want, tt.end, record.Unknown)
			if r.Error == nil || r.Error.Boundary != tt.by || (r.Error.Retry && tt.by == record.ByAgent) {
				t.Errorf("error %+v", r.Error)
			}
		})
	}
}

// Nothing waits for the first message of a sandbox that died with its
// environment.
func TestAnEnvironmentThatDiesBeforeTheSandboxSpeaks(t *testing.T) {
	t.Parallel()
	b := newBench(t, does("true"), tests("true"))
	onEnv(b, func(_ environment.Environment, e *broken) {
		e.create = func(context.Context, environment.Spec) (environment.Sandbox, error) {
			time.AfterFunc(50*time.Millisecond, func() { b.starts.Add(1) })
			return environment.Sandbox{ID: "local-0123456789abcdef", PID: 1 << 22}, nil
		}
	})
	begin := time.Now()
	r := b.run(t.Context(), t)
	want(t, r, record.PluginCrashed, "", record.Unknown)
	if r.Error == nil || r.Error.Boundary != record.ByEnvironment || !r.Error.Retry || time.Since(begin) >= limits.Connect { // the promise: the time for the first message is not waited for
		t.Errorf("after %s: error %+v", time.Since(begin), r.Error)
	}
}

// TestCancelInEachPhase stops an attempt at the start of each phase. The
// attempt ends soon, as cancelled, and leaves nothing.
func TestCancelInEachPhase(t *testing.T) {
	t.Parallel()
	phases := []record.PhaseName{
		record.PhasePrepare, record.PhaseCreate, record.PhaseServices, record.PhaseSetup, record.PhaseTurn, record.PhaseHooks,
		record.PhaseFreeze, record.PhaseCopy, record.PhaseJudge, record.PhaseThaw, record.PhaseUser, record.PhaseSettle,
		record.PhaseCollect, record.PhaseVerify, record.PhaseDestroy,
	}
	for _, at := range phases {
		for _, cause := range []error{nil, outcome.ErrPreempted} {
			if cause != nil && at != record.PhaseTurn && at != record.PhaseCreate {
				continue
			}
			t.Run(fmt.Sprintf("%s %v", at, cause), func(t *testing.T) {
				t.Parallel()
				wanted := record.Cancelled
				switch {
				case at == record.PhaseDestroy: // it had its result by then
					wanted = record.Passed
				case cause != nil:
					wanted = record.Preempted
				}
				cancelAt(t, at, cause, wanted)
			})
		}
	}
}

func cancelAt(t *testing.T, at record.PhaseName, cause error, wanted record.Outcome) {
	t.Helper()
	b := withRounds(t)
	b.task.Stages[0].Hooks = []task.Command{{Argv: []string{"true"}}}
	ctx, cancel := context.WithCancelCause(t.Context())
	var seen atomic.Bool
	b.live = func(e record.Event) {
		if e.Type == record.EventPhaseStart && e.Phase == at && seen.CompareAndSwap(false, true) {
			cancel(cause)
		}
	}
	r := b.run(ctx, t)
	if r.Outcome != wanted || !seen.Load() {
		t.Errorf("got %s, seen %v: %s", r.Outcome, seen.Load(), pretty(r))
	}
	if !slices.ContainsFunc(r.Phases, func(p record.Phase) bool { return p.Name == record.PhasePublish }) {
		t.Error("it was not published")
	}
}

// withSolution gives the task a reference solution and the cell an oracle.
func withSolution(t *testing.T, b *bench, script string) {
	t.Helper()
	dir := filepath.Join(b.task.Dir, "solution")
	testlevel.Must(t, errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "solve.sh"), []byte(script), 0o600)))
	b.task.Resources = []task.Resource{{
		Name: "solution", Path: "solution", Audience: []task.Role{task.RoleOracle}, Place: "/solution", Phase: task.PlaceTurn, Folder: true,
		Entries: []task.Entry{{Path: "solve.sh", Mode: 0o755}},
	}}
	b.task.Stages[0].Reference = &task.Reference{Resource: "solution", Argv: []string{"sh", "/solution/solve.sh"}}
	b.cell.Agent = cell.Agent{Plugin: "oracle", Oracle: true}
}

// A program of the system that an agent replaced decides the verdict in the agent's own
// sandbox, and not in one of the image.
func TestTheSystemOfAnotherSandboxIsThatOfTheImage(t *testing.T) {
	t.Parallel()
	const (
		replaces = `echo 41 > /app/answer; rm /usr/bin/cat; printf '#!/bin/sh\necho 42\n' > /usr/bin/cat; chmod 755 /usr/bin/cat
mkdir -p /usr/local/sbin; echo mine > /usr/local/sbin/tool; echo 'echo hi' > /root/.bashrc; rm -rf /etc/profile.d; rm /usr/bin/nproc`
		installs = `printf '#!/bin/sh\necho 42\n' > /usr/local/bin/installed; chmod 755 /usr/local/bin/installed`
		says42   = `test "$(cat /app/answer)" = 42`
	)
	for _, tt := range []struct {
		name, does, tests string
		mode              task.Mode
		work              []string
		outcome           record.Outcome
		integrity         record.Integrity
		finding           string
	}{
		{"the damage", replaces, says42, task.ModeRestarted, nil, record.Passed, record.Exposed, "system_changed"},
		{"not there", replaces, says42, task.ModeImage, nil, record.Failed, record.Checked, "system_left"},
		{"as they were", replaces, `test "$(cat /app/answer)" = 41 && nproc && ! test -e /usr/local/sbin/tool && ! grep hi /root/.bashrc`, task.ModeImage, nil, record.Passed, record.Checked, "system_left"},
		{"a name that is not UTF-8", `echo mine > "$(printf '/usr/local/sbin/mine\377')"; echo 1 > "$(printf '/app/\377')"`, `test "$(cat /app/*)" = 1; for f in /usr/local/sbin/mine*; do test ! -e "$f" || exit 1; done`, task.ModeImage, nil, record.Passed, record.Checked, ""},
		{"nothing of the system", "mkdir -p /app/x /root/.cache && echo 42 > /app/answer", says42 + ` && test -d /root/.cache`, task.ModeImage, nil, record.Passed, record.Checked, ""},
		{"a folder is a link", `mkdir -p /app/evil; cp -a /usr/local/bin/. /app/evil; printf '#!/bin/sh\necho 42\n' > /app/evil/cat; chmod 755 /app/evil/cat
rm -rf /usr/local/bin; ln -s /app/evil /usr/local/bin; echo 41 > /app/answer`, says42 + ` || test -L /usr/local/bin`, task.ModeImage, nil, record.Failed, record.Checked, ""},
		{"a link into the tests in live", `ln -s /tests/answer /app/answer; ln -s ../tests /app/all`, `! test -L /app/all && ` + says42, task.ModeLive, nil, record.Failed, record.Checked, "set_aside"},
		{"a link into the tests", `ln -s /tests/answer /app/answer; ln -s ../tests /app/all`, `! test -L /app/all && ` + says42, task.ModeImage, nil, record.Failed, record.Checked, "set_aside"},
		{"a file in the place of the logs", `rm -rf /logs; echo 42 > /app/answer; echo > /logs`, says42, task.ModeImage, nil, record.Passed, record.Checked, "set_aside"},
		{"a home is a link", `cp -a /root /app/home; echo 'exit 0' > /app/home/.bashrc; rm -rf /root; ln -s /app/home /root`, `test ! -L /root`, task.ModeImage, nil, record.Passed, record.Checked, ""},
		{"what was installed", installs, `test "$(installed)" = 42`, task.ModeImage, nil, record.Failed, record.Checked, "system_left"},
		{"what was installed is work", installs, `test "$(installed)" = 42`, task.ModeImage, []string{"/usr/local"}, record.Passed, record.Checked, "work_declared"},
		{"a folder of work in live", installs, `test "$(installed)" = 42`, task.ModeLive, []string{"/usr/local"}, record.Passed, record.Checked, "work_declared"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, does(tt.does), tests(tt.tests))
			b.task.Mode, b.cell.Work = tt.mode, tt.work
			withTests(t, b, map[string]string{"answer": "42"})
			r := b.run(t.Context(), t)
			want(t, r, tt.outcome, record.Yielded, tt.integrity)
			if tt.finding != "" && !found(r, tt.finding) {
				t.Errorf("no finding %s: %s", tt.finding, pretty(r.Findings))
			}
		})
	}
}

// The healthcheck of the image's own files runs again, and what it leaves running is
// ended before the tests. One that the agent changed does not run beside them.
func TestAHealthcheckOfTheAgentDoesNotRun(t *testing.T) {
	t.Parallel()
	testlevel.Program(t, "pgrep", "procps")
	for name, tt := range map[string]struct{ does, check, tests, finding string }{
		"the agent's": {`printf '#!/bin/sh\necho > /app/forged\n' > /app/health; chmod 755 /app/health`, `test ! -e /app/health || /app/health`, `! test -e /app/forged`, "healthcheck_not_run"},
		"the task's":  {`true`, `echo > /app/checked; setsid sleep 543 > /dev/null 2>&1 &`, `test -e /app/checked && ! pgrep -x sleep`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, does(tt.does+"; rm -f /app/checked"), tests(tt.tests))
			b.task.Mode = task.ModeImage
			b.task.Healthcheck = &task.Healthcheck{Argv: []string{"sh", "-c", tt.check}, Interval: task.Duration(time.Second), Timeout: task.Duration(time.Minute), Retries: 1}
			r := b.run(t.Context(), t)
			want(t, r, record.Passed, record.Yielded, record.Checked)
			if tt.finding != "" && !found(r, tt.finding) {
				t.Errorf("no finding %s: %s", tt.finding, pretty(r.Findings))
			}
		})
	}
}
