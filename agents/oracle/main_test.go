package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// box notes what the oracle does and prints what a solution would.
type box struct {
	uploaded [2]string
	ran      sandbox.Command
	prints   string
	result   sandbox.Result
	err      error
}

func (b *box) UploadFolder(_ context.Context, host, dir string, _ sandbox.UploadOptions) error {
	b.uploaded = [2]string{host, dir}
	return nil
}

func (b *box) Exec(_ context.Context, c sandbox.Command) (sandbox.Result, error) {
	b.ran = c
	if _, err := c.Stdout.Write([]byte(b.prints)); err != nil {
		return sandbox.Result{}, err
	}
	return b.result, b.err
}

type recorder struct {
	steps     []trajectory.Step
	artifacts []string
}

func (r *recorder) Step(s trajectory.Step) error {
	r.steps = append(r.steps, s)
	return nil
}
func (r *recorder) Log(string) error { return nil }
func (r *recorder) Artifact(path string) error {
	r.artifacts = append(r.artifacts, path)
	return nil
}

func turn(t *testing.T, b *box) (agent.Yield, *recorder, string, error) {
	t.Helper()
	scratch := t.TempDir()
	s := &session{box: b, setup: agent.Setup{
		Scratch: scratch, Workdir: "/app", User: "bob",
		Reference: &agent.Reference{Folder: "/task/solution", Place: "/solution", Argv: []string{"bash", "/solution/solve.sh"}, Env: map[string]string{"B": "2", "A": "1"}},
	}}
	r := &recorder{}
	y, err := s.Turn(t.Context(), agent.Message{Turn: 1}, r)
	log, readErr := os.ReadFile(filepath.Join(scratch, logFile))
	if readErr != nil && (b.prints != "" || !errors.Is(readErr, fs.ErrNotExist)) {
		t.Fatal(readErr)
	}
	if readErr != nil && len(r.artifacts) > 0 {
		t.Errorf("artifacts %v are not there", r.artifacts)
	}
	return y, r, string(log), err
}

func TestTheSolutionRunsWhereTheTaskSays(t *testing.T) {
	t.Parallel()
	b := &box{prints: "done\n"}
	y, r, log, err := turn(t, b)
	if err != nil || y.End != agent.Done || y.ExitCode != 0 {
		t.Fatalf("got %+v, %v; want done", y, err)
	}
	if want := [2]string{"/task/solution", "/solution"}; b.uploaded != want {
		t.Errorf("uploaded %v, want %v", b.uploaded, want)
	}
	if want := []string{"DEBIAN_FRONTEND=noninteractive", "A=1", "B=2"}; !slices.Equal(b.ran.Env, want) || b.ran.Dir != "/app" || b.ran.User != "bob" {
		t.Errorf("ran %+v, want env %v as bob in /app", b.ran, want)
	}
	if log != "done\n" || !slices.Equal(r.artifacts, []string{logFile}) {
		t.Errorf("log %q, artifacts %v", log, r.artifacts)
	}
	if len(r.steps) != 2 || r.steps[0].Observation.Results[0].Content.Text != "done\n" || len(r.steps[1].ToolCalls) != 0 {
		t.Errorf("steps %+v, want one with the output, and one that says that the task is complete", r.steps)
	}
}

func TestASolutionThatEndsWithAnotherCodeIsStillDone(t *testing.T) {
	t.Parallel()
	y, r, _, err := turn(t, &box{result: sandbox.Result{ExitCode: 3}})
	if err != nil || y.End != agent.Done || y.ExitCode != 3 || len(r.steps) != 1 {
		t.Errorf("got %+v, %v, steps %+v; want done with exit code 3, and no word that the task is complete", y, err, r.steps)
	}
}

func TestASolutionThatIsKilledHasCrashed(t *testing.T) {
	t.Parallel()
	y, _, _, err := turn(t, &box{result: sandbox.Result{ExitCode: -1, Signal: syscall.SIGKILL}})
	if err != nil || y.End != agent.Crashed || !strings.Contains(y.Reason, "killed") {
		t.Errorf("got %+v, %v; want crashed", y, err)
	}
}

func TestASandboxThatFailsIsAnError(t *testing.T) {
	t.Parallel()
	_, _, log, err := turn(t, &box{prints: "half", err: sandbox.ErrGone})
	if !errors.Is(err, sandbox.ErrGone) || log != "half" {
		t.Errorf("got %v and log %q; want ErrGone and what was printed until then", err, log)
	}
}

func TestWithoutTheSolutionItRefuses(t *testing.T) {
	t.Parallel()
	needs, err := oracle{}.Check(t.Context(), agent.CheckRequest{Role: agent.RoleAgent})
	if err != nil || len(needs.Refusals) != 1 {
		t.Errorf("Check = %+v, %v; want a refusal", needs, err)
	}
	if needs, err = (oracle{}).Check(t.Context(), agent.CheckRequest{Role: agent.RoleOracle}); err != nil || len(needs.Refusals) != 0 || !needs.Shell {
		t.Errorf("Check of the oracle role = %+v, %v; want a shell and no refusal", needs, err)
	}
	if _, err := (oracle{}).Open(t.Context(), agent.Setup{Role: agent.RoleAgent}); !errors.Is(err, agent.ErrBadConfig) {
		t.Errorf("Open = %v, want ErrBadConfig", err)
	}
}
