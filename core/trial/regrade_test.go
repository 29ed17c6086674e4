package trial_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/trajectory"
	"github.com/berth-eval/berth/plugins/verifier"
)

// again verifies the attempt of b again, with another verifier.
func again(t *testing.T, b *bench, r record.Result, j *judge) (*bench, record.Result) {
	t.Helper()
	c := newBench(t, does("false"), j)
	for name, other := range b.judges {
		if c.judges[name] == nil {
			c.judges[name] = other
		}
	}
	return c, c.regrade(t, b, r)
}

// regrade verifies the attempt of another bench again.
func (c *bench) regrade(t *testing.T, b *bench, r record.Result) record.Result {
	t.Helper()
	c.task = b.task
	in := c.input()
	in.Trial, in.Attempt = "t1", 2
	in.Origin = &trial.Origin{Number: 1, Dir: b.dir, Result: &r}
	out, err := trial.Run(t.Context(), in)
	testlevel.Must(t, err)
	if t.Failed() || out.Outcome == record.Failed {
		text, _ := os.ReadFile(filepath.Join(c.dir, "log")) //nolint:errcheck // for a person
		t.Logf("log: %s", text)
	}
	return out
}

func TestWhatIsKept(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, does, test string
		keep             trial.Keep
		files            bool
		note             string
	}{
		{"failed", "true", "false", trial.Keep{MaxBytes: 1 << 20}, true, ""},
		{"passed, of failed ones", "true", "true", trial.Keep{MaxBytes: 1 << 20}, false, ""},
		{"passed, of all", "true", "true", trial.Keep{MaxBytes: 1 << 20, Passed: true}, true, ""},
		{"too much", "head -c 3000000 /dev/urandom > /app/x", "false", trial.Keep{MaxBytes: 1 << 20}, false, "more than 1 MiB (keep_mib)"},
		{"nothing", "true", "false", trial.Keep{}, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, does(tt.does), tests(tt.test))
			in := b.input()
			in.Keep = tt.keep
			r, err := trial.Run(t.Context(), in)
			testlevel.Must(t, err)
			_, stat := os.Stat(filepath.Join(b.dir, record.FilesFile))
			left, _ := filepath.Glob(filepath.Join(b.dir, "*.part")) //nolint:errcheck // a valid pattern
			if (r.Files != "") != tt.files || (stat == nil) != tt.files || len(left) > 0 {
				t.Errorf("files %q (%v), left %q", r.Files, stat, left)
			}
			if said := pretty(r.Findings); tt.note != "" && !strings.Contains(said, tt.note) {
				t.Errorf("no %q in %s", tt.note, said)
			}
		})
	}
}

func TestWithoutFilesOnlyVerifiersWithoutASandboxJudgeAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, does("echo 1 > /logs/artifacts/x"), looks(func(verifier.Request) bool { return false }))
	r := b.run(t.Context(), t)
	want(t, r, record.Failed, record.Yielded, record.Checked)
	_, got := again(t, b, r, looks(func(v verifier.Request) bool {
		text, err := os.ReadFile(filepath.Join(v.View, "attempt", "artifacts", "logs", "artifacts", "x"))
		return err == nil && string(text) == "1\n"
	}))
	want(t, got, record.Passed, record.Yielded, record.Checked)
	if got.Regraded == nil || got.Regraded.Files {
		t.Errorf("origin %+v", got.Regraded)
	}
	_, got = again(t, b, r, tests("true"))
	if got.Outcome.Measured() || got.Error == nil || !strings.Contains(got.Error.Message, `"judge" needs the sandbox`) {
		t.Errorf("a verifier with a sandbox: %s", pretty(got))
	}
	b.task.Stages[0].Instruction[0].Text = "Do something else."
	_, got = again(t, b, r, looks(func(verifier.Request) bool { return true }))
	if got.Outcome.Measured() || got.Error == nil || !strings.Contains(got.Error.Message, "instruction of its task has changed") {
		t.Errorf("another instruction: %s", pretty(got))
	}
}

// A verifier's own sandbox has the artifacts of the origin, whether its files were
// kept or not, also if another verifier works in the sandbox with the files.
func TestAVerifierWithASandboxOfItsOwnJudgesAgain(t *testing.T) {
	t.Parallel()
	const script = `test "$(cat /app/out/answer)" = 42 && test -x /app/out/run && test "$(cat /app/x)" = 1 && ! test -e /app/other`
	for _, kept := range []bool{false, true} {
		b := newBench(t, does("mkdir -p /app/out; cd /app/out; echo 42 > answer; touch run; chmod 755 run; echo 1 > /app/x; touch /app/other"), owning("false"))
		b.task.Environment.Workdir = "/app"
		b.task.Stages[0].Artifacts = []task.Artifact{{Source: "/app/out"}, {Source: "x", To: "elsewhere"}, {Source: "/app/none"}}
		in := b.input()
		if kept {
			in.Keep = trial.Keep{MaxBytes: 64 << 20}
		}
		r, err := trial.Run(t.Context(), in)
		testlevel.Must(t, err)
		want(t, r, record.Failed, record.Yielded, record.Checked)
		_, got := again(t, b, r, owning(script))
		want(t, got, record.Passed, record.Yielded, record.Checked)
		if kept { // one that works in the sandbox with the files, too
			b.task.Stages[0].Verifiers = append(b.task.Stages[0].Verifiers, task.VerifierUse{Name: "other"})
			b.judges["other"] = tests("test -e /app/other")
			_, got = again(t, b, r, owning(script))
			want(t, got, record.Passed, record.Yielded, record.Checked)
		}
	}
}

func TestProcessesThatWereGradedCannotBeGradedAgain(t *testing.T) {
	t.Parallel()
	needs(t, listener)
	b := newBench(t, does(listener), tests("false"))
	b.task.Mode = task.ModeLive
	in := b.input()
	in.Keep = trial.Keep{MaxBytes: 64 << 20}
	r, err := trial.Run(t.Context(), in)
	testlevel.Must(t, err)
	_, got := again(t, b, r, tests(asks))
	if got.Outcome.Measured() || got.Error == nil || !strings.Contains(got.Error.Message, "processes that its agent left running are gone") {
		t.Errorf("%s", pretty(got))
	}
}

// What exposed an attempt that was kept is settled by verifying it again, in mode image.
func TestAnExposedAttemptIsVerifiedAgainInASandboxOfTheImage(t *testing.T) {
	t.Parallel()
	const (
		forges   = `printf '#!/bin/sh\necho 42\n' > /usr/local/bin/answer; chmod +x /usr/local/bin/answer`
		honestly = forges + `; echo 42 > /app/x`
		outside  = honestly + `; mkdir /app/bin; printf '#!/bin/sh\necho 1\n' > /app/bin/t; chmod +x /app/bin/t`
	)
	for _, tt := range []struct {
		name, does, test string
		verify           task.Mode
		outcome          record.Outcome
		integrity        record.Integrity
	}{
		{"the damage: a changed program decides", forges, `test "$(answer)" = 42`, "", record.Passed, record.Exposed},
		{"a changed program is not there", forges, `test "$(answer)" = 42`, task.ModeImage, record.Failed, record.Checked},
		{"a changed program that the tests do not use", honestly, `test "$(cat /app/x)" = 42`, task.ModeImage, record.Passed, record.Checked},
		{"a process was left", honestly + "; setsid sleep 300 >/dev/null 2>&1 &", `test "$(cat /app/x)" = 42`, task.ModeImage, record.Passed, record.Checked},
		{"a program where the tests look first is taken away", outside, `test "$(t)" = 1`, task.ModeImage, record.Failed, record.Checked},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, does(tt.does), tests(tt.test))
			b.task.Mode = task.ModeLive
			if tt.does == outside {
				b.task.Stages[0].Verify.Env = task.Env{"PATH": {Text: "/app/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}
			}
			in := b.input()
			in.Keep = trial.Keep{Passed: true, MaxBytes: 64 << 20}
			r, err := trial.Run(t.Context(), in)
			testlevel.Must(t, err)
			want(t, r, record.Passed, record.Yielded, record.Exposed)
			c := newBench(t, does("false"), tests(tt.test))
			c.cell.Verify = tt.verify
			got := c.regrade(t, b, r)
			want(t, got, tt.outcome, record.Yielded, tt.integrity)
		})
	}
}

// Without the copies of a round, there is nothing that could be judged again.
func TestALoopWithoutItsCopiesIsNotJudgedAgain(t *testing.T) {
	t.Parallel()
	b := withRounds(t)
	b.task.Stages[0].Artifacts = []task.Artifact{{Source: "/logs/artifacts"}}
	b.judges["final"] = looks(func(verifier.Request) bool { return true })
	first := b.run(t.Context(), t)
	testlevel.Must(t, os.RemoveAll(filepath.Join(b.dir, record.RoundsDir, "2")))
	c := newBench(t, does("false"), nil)
	c.cell.User, c.judges = b.cell.User, b.judges
	if got := c.regrade(t, b, first); got.Error == nil || !strings.Contains(got.Error.Message, "the copies of round 2 were not kept") {
		t.Errorf("%s", pretty(got))
	}
}

// lines reads a file of JSON lines.
func lines[T any](t *testing.T, file string) []T {
	t.Helper()
	f, err := os.Open(file)
	testlevel.Must(t, err)
	defer f.Close()
	var out []T
	s := bufio.NewScanner(f)
	s.Buffer(nil, 64<<20)
	for s.Scan() {
		var v T
		if err := json.Unmarshal(s.Bytes(), &v); err != nil {
			t.Fatalf("%s: %v: %s", file, err, s.Text())
		}
		out = append(out, v)
	}
	return out
}

func TestTheRecordIsWrittenAsItHappens(t *testing.T) {
	t.Parallel()
	var b *bench
	seen := make(chan int, 1)
	a := turn(func(ctx context.Context, act *actor) (agent.Yield, error) {
		none := int64(0)
		for range 3 {
			if err := act.Step(trajectory.Step{StepID: 99, Source: trajectory.Model, Message: trajectory.Text("step"), LLMCallCount: &none}); err != nil {
				return agent.Yield{}, err
			}
		}
		seen <- len(lines[record.Step](t, filepath.Join(b.dir, record.StepsFile)))
		<-ctx.Done() // and the agent is killed here
		return agent.Yield{}, act.Step(trajectory.Step{Source: trajectory.Model, Message: trajectory.Text("last words")})
	})
	b = newBench(t, a, tests("true"))
	b.cell.Limits.AgentTime = 3 * time.Second
	r := b.run(t.Context(), t)
	want(t, r, record.Passed, record.Timeout, record.Checked)
	if n := <-seen; n != 4 {
		t.Errorf("%d steps were in the file during the turn; want the message and 3", n)
	}
	steps := lines[record.Step](t, filepath.Join(b.dir, record.StepsFile))
	for i, s := range steps {
		if s.Step.StepID != int64(i+1) || s.Stage != "main" || s.Turn != 1 || s.Role != "agent" || s.Time.IsZero() {
			t.Errorf("step %d is %+v", i, s)
		}
	}
	data, err := os.ReadFile(filepath.Join(b.dir, record.TrajectoryFile))
	testlevel.Must(t, err)
	var tr trajectory.Trajectory
	if err = json.Unmarshal(data, &tr); err != nil || len(tr.Steps) != 5 || tr.Steps[0].Source != trajectory.User || tr.Agent.Name != "agent" {
		t.Errorf("trajectory %s, %v", data, err)
	}
	turns := lines[record.Turn](t, filepath.Join(b.dir, record.TurnsFile))
	if len(turns) != 2 || turns[0].Text != "Do it." || turns[0].From != "task" || turns[1].End != record.Timeout {
		t.Errorf("turns %+v", turns)
	}
	open := map[record.PhaseName]int{}
	for _, e := range lines[record.Event](t, filepath.Join(b.dir, record.EventsFile)) {
		switch e.Type {
		case record.EventPhaseStart:
			open[e.Phase]++
		case record.EventPhaseEnd:
			open[e.Phase]--
		default:
		}
	}
	delete(open, record.PhasePublish) // which cannot write about its own end
	for phase, n := range open {
		if n != 0 {
			t.Errorf("phase %s began and did not end", phase)
		}
	}
	var stored record.Result
	if data, err = os.ReadFile(filepath.Join(b.dir, record.ResultFile)); err != nil || json.Unmarshal(data, &stored) != nil || stored.Outcome != r.Outcome {
		t.Errorf("result %s, %v", data, err)
	}
}

func TestWhatAnAgentSaysIsBounded(t *testing.T) {
	t.Parallel()
	a := turn(func(_ context.Context, act *actor) (agent.Yield, error) {
		long := strings.Repeat("x", limits.StepBytes)
		content := trajectory.Text(long)
		step := trajectory.Step{Source: trajectory.Model, Message: trajectory.Text(long), Observation: &trajectory.Observation{}}
		for range 3 {
			step.Observation.Results = append(step.Observation.Results, trajectory.Result{Content: &content})
		}
		err := errors.Join(act.Step(step), act.Log(long), act.Log("bad \xff bytes"))
		return agent.Yield{End: agent.Done, Message: long, Reason: long}, err
	})
	b := newBench(t, a, tests("true"))
	r := b.run(t.Context(), t)
	want(t, r, record.Passed, record.Yielded, record.Checked)
	steps := lines[record.Step](t, filepath.Join(b.dir, record.StepsFile))
	if len(steps) != 2 || !steps[1].Cut || len(steps[1].Step.Message.Text) > limits.StepText+100 || len(pretty(steps[1])) > limits.StepBytes {
		t.Errorf("%d steps; the long one is %d bytes", len(steps), len(pretty(steps)))
	}
	for _, file := range []string{record.LogFile, record.TurnsFile} {
		info, err := os.Stat(filepath.Join(b.dir, file))
		if err != nil || info.Size() > 2*limits.MessageBytes {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
}

func TestOracleIsTheCellsWord(t *testing.T) {
	t.Parallel()
	for _, oracle := range []bool{true, false} {
		var setup agent.Setup
		a := &scripted{needs: agent.Needs{Shell: true}, open: func(_ context.Context, s agent.Setup) error {
			setup = s
			if s.Reference == nil {
				return nil
			}
			data, err := os.ReadFile(filepath.Join(s.Reference.Folder, "solve.sh"))
			if err == nil && string(data) != "echo 1" {
				err = errors.New("the solution is not the task's")
			}
			return err
		}}
		b := newBench(t, a, tests("true"))
		b.cell.Agent.Oracle = oracle
		if err := errors.Join(os.Mkdir(filepath.Join(b.task.Dir, "solution"), 0o700),
			os.WriteFile(filepath.Join(b.task.Dir, "solution", "solve.sh"), []byte("echo 1"), 0o600)); err != nil {
			t.Fatal(err)
		}
		b.task.Resources = []task.Resource{{
			Name: "solution", Path: "solution", Audience: []task.Role{task.RoleOracle}, Place: "/solution", Phase: task.PlaceTurn, Folder: true,
			Entries: []task.Entry{{Path: "solve.sh", Mode: 0o755}},
		}}
		b.task.Stages[0].Reference = &task.Reference{Resource: "solution", Argv: []string{"/solution/solve.sh"}, Env: task.Text(map[string]string{"A": "1"})}
		r := b.run(t.Context(), t)
		want(t, r, record.Passed, record.Yielded, record.Checked)
		if r.Oracle != oracle || (setup.Reference != nil) != oracle || (setup.Role == agent.RoleOracle) != oracle {
			t.Errorf("oracle %v: the result says %v, setup %s", oracle, r.Oracle, pretty(setup))
		}
		if oracle && (setup.Reference.Place != "/solution" || setup.Reference.Env["A"] != "1") {
			t.Errorf("reference %+v", setup.Reference)
		}
	}
}

// noSpace is a record that cannot be written after the agent was given its
// message.
type noSpace struct {
	*bench
	full *bool
}

func (n noSpace) Append(file string, v any) error {
	if *n.full {
		return syscall.ENOSPC
	}
	*n.full = file == record.TurnsFile
	return n.bench.Append(file, v)
}

func TestSandboxesAreDestroyedWhenTheRecordCannotBeWritten(t *testing.T) {
	t.Parallel()
	b := newBench(t, does("true"), tests("true"))
	in := b.input()
	in.Record = noSpace{b, new(bool)}
	r, err := trial.Run(t.Context(), in)
	if err != nil || r.Outcome != record.EnvironmentError {
		t.Errorf("%s, %v; want %s", r.Outcome, err, record.EnvironmentError)
	}
	env, _, err := b.m.host.Environment(t.Context(), "local")
	testlevel.Must(t, err)
	if left, listErr := env.List(t.Context(), in.Run); listErr != nil || len(left) > 0 {
		t.Errorf("sandboxes left: %q, %v", left, listErr)
		for _, id := range left {
			_, _ = env.Destroy(context.WithoutCancel(t.Context()), id)
		}
	}
}
