package trial_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// machine is what the tests share: programs that are built once, and an
// environment plugin that makes real sandboxes.
type machine struct {
	dir      string
	sandboxd string
	host     *plugin.Host
	err      error
}

var onMachine = sync.OnceValue(newMachine)

// newMachine builds sandboxd and the environment that needs nothing installed,
// and starts a plugin host.
func newMachine() (m machine) {
	if m.dir, m.err = os.MkdirTemp("", "bt"); m.err != nil {
		return m
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for out, pkg := range map[string]string{
		"berth-sandboxd":             "cmd/berth-sandboxd",
		"plugins/berth-plugin-local": "environments/local",
		"plugins/libexec/local-init": "environments/local/local-init",
	} {
		cmd := exec.CommandContext(ctx, "go", "build", "-tags", "grpcnotrace", "-trimpath", "-buildvcs=false", "-o", filepath.Join(m.dir, out), "github.com/berth-eval/berth/"+pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if b, err := cmd.CombinedOutput(); err != nil {
			m.err = fmt.Errorf("build %s: %w\n%s", pkg, err, b)
			return m
		}
	}
	m.sandboxd = filepath.Join(m.dir, "berth-sandboxd")
	m.host, m.err = plugin.New(plugin.Options{Dirs: []string{filepath.Join(m.dir, "plugins")}, Env: []string{"HOME=" + m.dir}})
	return m
}

func TestMain(m *testing.M) {
	syscall.Umask(0o022) // the users of sandboxes must be able to read the files of the tests
	code := m.Run()
	if built := onMachineIfUsed(); built != nil {
		if built.host != nil {
			built.host.Stop()
		}
		if err := goleak.Find(); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

var used sync.Once

var usedMachine *machine

func onMachineIfUsed() *machine { return usedMachine }

func getMachine(t *testing.T) machine {
	t.Helper()
	m := onMachine()
	used.Do(func() { usedMachine = &m })
	if m.err != nil {
		t.Fatal(m.err)
	}
	return m
}

// scripted is an agent plugin whose turns are functions.
type scripted struct {
	needs  agent.Needs
	open   func(context.Context, agent.Setup) error
	turn   func(context.Context, *actor, agent.Message) (agent.Yield, error)
	closed func(ctx context.Context, logs string, r agent.Recorder) error

	mu     sync.Mutex
	setups []agent.Setup
	said   []agent.Message
}

// actor is one session of a scripted agent.
type actor struct {
	agent.Recorder
	setup agent.Setup
	shell *sandbox.Client
	turns int
}

// sh runs a shell script in the sandbox, and fails on a bad exit.
func (a *actor) sh(ctx context.Context, script string) error {
	r, err := a.shell.Exec(ctx, sandbox.Command{Argv: []string{"sh", "-c", script}})
	if err == nil && !r.OK() {
		err = fmt.Errorf("%q ended with %d", script, r.ExitCode)
	}
	return err
}

func (s *scripted) Check(context.Context, agent.CheckRequest) (agent.Needs, error) {
	return s.needs, nil
}

func (s *scripted) Open(ctx context.Context, setup agent.Setup) (agent.Session, error) {
	s.mu.Lock()
	s.setups = append(s.setups, setup)
	s.mu.Unlock()
	a := &actor{setup: setup}
	if setup.Shell != "" {
		var err error
		if a.shell, err = sandbox.Dial(setup.Shell); err != nil {
			return nil, err
		}
	}
	if s.open != nil {
		if err := s.open(ctx, setup); err != nil {
			if a.shell != nil {
				err = errors.Join(err, a.shell.Close())
			}
			return nil, err
		}
	}
	return &scriptedSession{s, a}, nil
}

type scriptedSession struct {
	s *scripted
	a *actor
}

func (ss *scriptedSession) Turn(ctx context.Context, m agent.Message, r agent.Recorder) (agent.Yield, error) {
	ss.s.mu.Lock()
	ss.s.said = append(ss.s.said, m)
	ss.s.mu.Unlock()
	ss.a.Recorder = r
	ss.a.turns++
	if ss.s.turn == nil {
		return agent.Yield{End: agent.Done}, nil
	}
	return ss.s.turn(ctx, ss.a, m)
}

func (ss *scriptedSession) Close(ctx context.Context, logs string, r agent.Recorder) error {
	var err error
	if ss.s.closed != nil {
		err = ss.s.closed(ctx, logs, r)
	}
	if ss.a.shell != nil {
		err = errors.Join(err, ss.a.shell.Close())
	}
	return err
}

// does is an agent that runs a script in its only turn.
func does(script string) *scripted {
	return &scripted{
		needs: agent.Needs{Shell: true},
		turn: func(ctx context.Context, a *actor, _ agent.Message) (agent.Yield, error) {
			if err := a.sh(ctx, script); err != nil {
				return agent.Yield{}, err
			}
			return agent.Yield{End: agent.Done, Message: "did it"}, nil
		},
	}
}

// judge is a verifier plugin that is a function.
type judge struct {
	traits  verifier.Traits
	verify  func(context.Context, verifier.Request) (verifier.Verdict, error)
	rewrite func(candidate string) string
	plain   bool // it is not a verifier.Rewriter

	mu    sync.Mutex
	asked []verifier.Request
}

func (j *judge) Verify(ctx context.Context, r verifier.Request, log func(string)) (verifier.Verdict, error) {
	j.mu.Lock()
	j.asked = append(j.asked, r)
	j.mu.Unlock()
	log("judging " + r.Stage)
	return j.verify(ctx, r)
}

// tests is a verifier that passes if a script in the sandbox ends with 0.
func tests(script string) *judge {
	return &judge{
		traits: verifier.Traits{Needs: verifier.NeedsSandbox},
		verify: func(ctx context.Context, r verifier.Request) (verifier.Verdict, error) {
			shell, err := sandbox.Dial(r.Shell)
			if err != nil {
				return verifier.Verdict{}, err
			}
			defer shell.Close()
			out, err := shell.Exec(ctx, sandbox.Command{Argv: []string{"sh", "-c", script}, User: r.User})
			if err != nil {
				return verifier.Verdict{}, err
			}
			if out.OK() {
				return reward(verifier.Pass, 1), nil
			}
			return reward(verifier.Fail, 0), nil
		},
	}
}

// needs skips the test on a machine without a program that its scripts start: the
// sandboxes have the programs of the machine.
func needs(t *testing.T, scripts ...string) {
	t.Helper()
	for program, pkg := range map[string]string{"python3": "python3", "pgrep": "procps", "perl": "perl-base", "bash": "bash"} {
		if strings.Contains(strings.Join(scripts, "\n"), program+" ") {
			testlevel.Program(t, program, pkg)
		}
	}
}

func reward(d verifier.Decision, v float64) verifier.Verdict {
	return verifier.Verdict{Decision: d, Scores: map[string]verifier.Score{"reward": {Value: v}}}
}

// bench is one attempt with its parts.
type bench struct {
	m       machine
	agents  map[string]agent.Agent
	judges  map[string]*judge
	env     func(environment.Environment) environment.Environment
	surface environment.Environment // the environment "game"
	task    *task.Task
	cell    cell.Cell
	gateway models.Gateway
	envVars map[string]string
	live    func(record.Event)
	memory  trial.JobMemory
	dir     string // of the attempt
	runtime string
	starts  atomic.Int64                      // of the environment's process
	apart   func() (verifier.Verifier, error) // a verifier in a process of its own; nil: there is no such thing
}

// Incarnation implements trial.Plugins.
func (b *bench) Incarnation(string) int { return int(b.starts.Load()) }

func newBench(t *testing.T, a *scripted, j *judge) *bench {
	t.Helper()
	m := getMachine(t)
	b := &bench{
		m: m, agents: map[string]agent.Agent{"agent": a}, judges: map[string]*judge{}, dir: t.TempDir(), envVars: map[string]string{},
		task: &task.Task{
			Name: "sample", Digest: "sha256:0", Dir: t.TempDir(),
			Environment: task.Environment{OS: "linux", Workdir: "/app", Network: task.Network{Mode: task.NetworkNone}},
			Stages:      []task.Stage{{Name: "main", Instruction: []task.Part{{Text: "Do it."}}}},
			Paths:       task.Paths{AgentLogs: "/logs/agent", VerifierLogs: "/logs/verifier", Artifacts: "/logs/artifacts"},
			Mode:        task.ModeRestarted,
		},
		cell: cell.Cell{
			Agent: cell.Agent{Plugin: "agent"}, Environment: cell.Environment{Plugin: "local"},
			Choices: map[string]string{"agent": "agent"},
		},
	}
	if j != nil {
		b.judges["judge"] = j
		b.task.Stages[0].Verifiers = []task.VerifierUse{{Name: "judge"}}
	}
	runtime, err := os.MkdirTemp("", "br") // short: sockets have paths of 100 bytes
	testlevel.Must(t, err)
	b.runtime = filepath.Join(runtime, "a")
	t.Cleanup(func() { _ = os.RemoveAll(runtime) })
	return b
}

// Agent implements trial.Plugins.
func (b *bench) Agent(_ context.Context, name string) (agent.Agent, record.PluginUsed, error) {
	a, ok := b.agents[name]
	if !ok {
		return nil, record.PluginUsed{}, plugin.ErrUnknown
	}
	return a, record.PluginUsed{Kind: "agent", Name: name, Version: "1"}, nil
}

// Environment implements trial.Plugins.
func (b *bench) Environment(ctx context.Context, name string) (environment.Environment, record.PluginUsed, error) {
	if name == "game" {
		return b.surface, record.PluginUsed{Kind: "environment", Name: name, Version: "1"}, nil
	}
	e, u, err := b.m.host.Environment(ctx, name)
	if err == nil && b.env != nil {
		e = b.env(e)
	}
	return e, u, err
}

// Verifier implements trial.Plugins.
func (b *bench) Verifier(_ context.Context, name string) (trial.VerifierPlugin, record.PluginUsed, error) {
	j, ok := b.judges[name]
	if !ok {
		return trial.VerifierPlugin{}, record.PluginUsed{}, plugin.ErrUnknown
	}
	p := trial.VerifierPlugin{Verifier: j, Traits: j.traits}
	if j.plain {
		p.Verifier = struct{ verifier.Verifier }{j}
	}
	if b.apart != nil {
		p.OwnProcess = func(context.Context) (verifier.Verifier, func(), error) {
			v, err := b.apart()
			return v, func() {}, err
		}
	}
	return p, record.PluginUsed{Kind: "verifier", Name: name, Version: "1"}, nil
}

// Dir implements trial.Attempt.
func (b *bench) Dir() string { return b.dir }

// Append implements trial.Attempt.
func (b *bench) Append(file string, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(b.dir, file), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// WriteFile implements trial.Attempt.
func (b *bench) WriteFile(file string, data []byte) error {
	return os.WriteFile(filepath.Join(b.dir, file), data, 0o600)
}

// Publish implements trial.Attempt.
func (b *bench) Publish(r record.Result) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return b.WriteFile(record.ResultFile, data)
}

func (b *bench) input() trial.Input {
	return trial.Input{
		Run: "r-" + filepath.Base(filepath.Dir(b.runtime)), Trial: "t1", Repetition: 1, Attempt: 1, Task: b.task, Cell: b.cell, Record: b,
		Runtime: b.runtime, Sandboxd: b.m.sandboxd, Plugins: b, Gateway: b.gateway, Live: b.live, Memory: b.memory,
		LookupEnv: func(name string) (string, bool) { v, ok := b.envVars[name]; return v, ok },
	}
}

// run runs the attempt and checks what holds for every attempt.
func (b *bench) run(ctx context.Context, t *testing.T) record.Result {
	t.Helper()
	r, err := trial.Run(ctx, b.input())
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	for _, p := range r.Phases {
		if p.Start.IsZero() || p.End.Before(p.Start) || p.Who == "" {
			t.Errorf("phase %+v has no start, end or who", p)
		}
	}
	if _, err = os.Lstat(b.runtime); err == nil {
		t.Errorf("the runtime folder %s is still there", b.runtime)
	}
	env, _, err := b.m.host.Environment(context.WithoutCancel(ctx), "local")
	if err == nil {
		var left []string
		if left, err = env.List(context.WithoutCancel(ctx), b.input().Run); err == nil && len(left) > 0 {
			t.Errorf("sandboxes left: %q", left)
		}
	}
	if err != nil {
		t.Errorf("list sandboxes: %v", err)
	}
	if t.Failed() {
		t.Logf("result: %s", pretty(r))
	}
	return r
}

func pretty(v any) string {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// want checks outcome, agent end and integrity.
func want(t *testing.T, r record.Result, o record.Outcome, e record.AgentEnd, i record.Integrity) {
	t.Helper()
	if r.Outcome != o || r.AgentEnd != e || r.Integrity != i {
		t.Errorf("got %s / %s / %s; want %s / %s / %s\n%s", r.Outcome, r.AgentEnd, r.Integrity, o, e, i, pretty(r))
	}
}

// found reports whether the result has a finding with that code.
func found(r record.Result, code string) bool {
	for _, f := range r.Findings {
		if f.Code == code {
			return true
		}
	}
	return false
}

type (
	verifierRequest = verifier.Request
	verifierVerdict = verifier.Verdict
)

// looks is a verifier that needs no sandbox.
func looks(ok func(verifier.Request) bool) *judge {
	return &judge{
		traits: verifier.Traits{Needs: verifier.NeedsNone},
		verify: func(_ context.Context, r verifier.Request) (verifier.Verdict, error) {
			if ok(r) {
				return reward(verifier.Pass, 1), nil
			}
			return reward(verifier.Fail, 0), nil
		},
	}
}

// Rewrite implements verifier.Rewriter.
func (j *judge) Rewrite(_ context.Context, _ verifier.Request, _ verifier.Verdict, candidate string) (string, error) {
	if j.rewrite == nil {
		return candidate, nil
	}
	return j.rewrite(candidate), nil
}

// grep returns the files below dir that contain text.
func grep(t *testing.T, dir, text string) []string {
	t.Helper()
	var hits []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if strings.Contains(d.Name(), text) {
			hits = append(hits, p)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(p)
		if err == nil && strings.Contains(string(data), text) {
			hits = append(hits, p)
		}
		return err
	})
	testlevel.Must(t, err)
	return hits
}
