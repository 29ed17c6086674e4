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
)

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
