package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run/cluster"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

const examples = "../../../examples/cluster/"

// job is what these tests use of a Job of Kubernetes.
type job struct {
	Spec struct {
		Template struct {
			Spec struct {
				SecurityContext struct {
					User  int `yaml:"runAsUser"`
					Group int `yaml:"runAsGroup"`
				} `yaml:"securityContext"`
				Containers []struct {
					Image   string                         `yaml:"image"`
					Command []string                       `yaml:"command"`
					Args    []string                       `yaml:"args"`
					Workdir string                         `yaml:"workingDir"`
					Env     []struct{ Name, Value string } `yaml:"env"`
					Mounts  []struct {
						Name string `yaml:"name"`
						Path string `yaml:"mountPath"`
					} `yaml:"volumeMounts"`
					Resources struct {
						Limits struct{ Memory string } `yaml:"limits"`
					} `yaml:"resources"`
					Security struct {
						ProcMount    string                  `yaml:"procMount"`
						Seccomp      struct{ Type string }   `yaml:"seccompProfile"`
						Escalation   bool                    `yaml:"allowPrivilegeEscalation"`
						Capabilities struct{ Drop []string } `yaml:"capabilities"`
					} `yaml:"securityContext"`
				} `yaml:"containers"`
			} `yaml:"spec"`
		} `yaml:"template"`
	} `yaml:"spec"`
}

func decode(t *testing.T, text string) (j job) {
	t.Helper()
	e2etest.Must(t, yaml.Unmarshal([]byte(text), &j))
	return j
}

func TestMain(m *testing.M) { os.Exit(testlevel.Main("test-e2e", m.Run)) }

// bed is a run whose attempts are made by pilots.
type bed struct {
	t       *testing.T
	dir     string // with the programs in berth/
	run     string // its folder
	uid     int
	began   *exec.Cmd
	said    *bytes.Buffer
	trials  int
	program string
}

// newBed starts a run as a user.
func newBed(t *testing.T, uid int) *bed {
	t.Helper()
	dir, err := os.MkdirTemp(testlevel.Tmp(), "bej")
	e2etest.Must(t, err)
	t.Cleanup(func() { e2etest.Must(t, os.RemoveAll(dir)) })
	tree, err := filepath.Abs("../../..")
	e2etest.Must(t, err)
	e2etest.Watch(t, tree)
	b := &bed{t: t, dir: dir, uid: uid, said: &bytes.Buffer{}, trials: 3, program: filepath.Join(dir, "berth", "berth")}
	e2etest.Must(t, e2etest.Build(tree, filepath.Dir(b.program), "./agents/nop", "./agents/oracle", "./environments/local", "./verifiers/script"))
	(&e2etest.Task{Name: "e2e/t", Solve: e2etest.SolveTiny, Test: e2etest.TestTiny}).Write(t, filepath.Join(dir, "tasks"))
	e2etest.Write(t, dir, map[string]string{
		"berth.hcl": e2etest.Experiment("local", "", fmt.Sprintf("agent  = agent.oracle\n  repeat = %d", b.trials), "executor \"pilots\" {}\n"),
	})
	if uid != os.Getuid() {
		e2etest.Must(t, exec.CommandContext(t.Context(), "chown", "-R", fmt.Sprintf("%d:%d", uid, uid), dir).Run())
	}
	ctx, cancel := context.WithCancel(t.Context())
	b.began = b.command(ctx, b.program, "run", ".")
	b.began.Stdout, b.began.Stderr = b.said, b.said
	e2etest.Must(t, b.began.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = b.began.Wait() // its code is looked at
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	testlevel.Eventually(t, "the run begins", func() bool {
		m, _ := filepath.Glob(filepath.Join(dir, "runs", "*", cluster.Dir, "coordinators", "1.claim-0")) //nolint:errcheck // the pattern is good
		if len(m) != 1 {
			return false
		}
		b.run = filepath.Dir(filepath.Dir(filepath.Dir(m[0])))
		return true
	})
	return b
}

// command makes a command of the user, in the folder of the run's experiment, with an
// environment of its own.
func (b *bed) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.WaitDelay = b.dir, 10*time.Second
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.dir, "BERTH_RUNTIME_DIR=" + filepath.Join(b.dir, "r")}
	if b.uid != os.Getuid() {
		id := uint32(b.uid) //nolint:gosec // of a test's user
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
	}
	return cmd
}

// pilots returns how many pilots made attempts, and how many attempts have a result
// that passed.
func (b *bed) pilots() (worked, passed int) {
	b.t.Helper()
	s, err := cluster.Read(b.run)
	e2etest.Must(b.t, err)
	_, x, err := store.Read(b.run)
	e2etest.Must(b.t, err)
	for _, tr := range x.Trials {
		for _, a := range tr.Attempts {
			if a.Result != nil && a.Result.Outcome == record.Passed {
				passed++
			}
		}
	}
	for _, p := range s.Pilots { // one that declines is there, too
		if p.Published > 0 {
			worked++
		}
	}
	return worked, passed
}

// settled waits for the end of the run, whose trials passed.
func (b *bed) settled() {
	b.t.Helper()
	testlevel.Eventually(b.t, "one pilot has made attempts, and all trials have passed", func() bool {
		worked, passed := b.pilots()
		return worked == 1 && passed == b.trials
	})
}

// A pilot in a container as the Job describes it makes attempts with environment
// local. Where the container has the usual masks, it says so and takes nothing.
func TestAPodMakesAttempts(t *testing.T) {
	t.Parallel()
	testlevel.Root(t, "start the run as the user of a pod")
	docker := e2etest.FindEngine(t, "docker", "debian:bookworm-slim")
	text := e2etest.Read(t, examples, "kubernetes.yaml")
	b := newBed(t, decode(t, text).Spec.Template.Spec.SecurityContext.User)
	text = strings.ReplaceAll(strings.ReplaceAll(text, "/shared/runs/sweep", b.run), "/shared", b.dir)
	for _, tt := range []struct {
		without string // a line of the Job
		says    string
	}{
		{"procMount: Unmasked", "parts of this machine's /proc are masked, as in a container"},
		{"seccompProfile: { type: Unconfined }", "start it with a seccomp profile that allows them"},
	} {
		if !strings.Contains(text, tt.without) {
			t.Fatalf("the Job has no %s", tt.without)
		}
		code, out := asPod(t, docker, strings.Replace(text, tt.without, "", 1))
		if worked, _ := b.pilots(); code != 2 || worked > 0 || !strings.Contains(out, tt.says) {
			t.Errorf("without %s: code %d, %d pilots made attempts, and it said:\n%s", tt.without, code, worked, out)
		}
	}
	if code, out := asPod(t, docker, text); code != 0 {
		t.Errorf("code %d: %s", code, out)
	}
	b.settled()
}

// asPod runs the container of a Job with Docker, and returns its exit code and what it
// said.
func asPod(t *testing.T, docker e2etest.Engine, text string) (int, string) {
	t.Helper()
	pod := decode(t, text).Spec.Template.Spec
	c := &pod.Containers[0]
	args := []string{
		"run", "--rm", "--user", fmt.Sprintf("%d:%d", pod.SecurityContext.User, pod.SecurityContext.Group), "--workdir", c.Workdir,
		"--cap-drop", c.Security.Capabilities.Drop[0], "--memory", strings.TrimSuffix(c.Resources.Limits.Memory, "i"),
	}
	if !c.Security.Escalation {
		args = append(args, "--security-opt", "no-new-privileges")
	}
	if c.Security.ProcMount == "Unmasked" {
		args = append(args, "--security-opt", "systempaths=unconfined")
	}
	if c.Security.Seccomp.Type == "Unconfined" {
		args = append(args, "--security-opt", "seccomp=unconfined")
	}
	for _, v := range c.Env {
		args = append(args, "--env", v.Name+"="+v.Value)
	}
	for _, m := range c.Mounts {
		if m.Name == "shared" {
			args = append(args, "--volume", m.Path+":"+m.Path)
		} else {
			args = append(args, "--tmpfs", m.Path+":mode=1777,exec,size=1g")
		}
	}
	args = append(args, "--entrypoint", c.Command[0], c.Image)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := docker.Ask(ctx, t, append(append(args, c.Command[1:]...), c.Args...)...)
	out, err := cmd.CombinedOutput()
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		t.Fatalf("%v\n%s", err, out)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// PBS starts the script with a shell, in a folder of its own, with these variables.
func TestTheScriptOfPBSStartsAPilot(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs(examples + "pilot.pbs")
	e2etest.Must(t, err)
	if out, wrong := exec.CommandContext(t.Context(), "bash", "-n", script).CombinedOutput(); wrong != nil {
		t.Fatalf("%v\n%s", wrong, out)
	}
	b := newBed(t, os.Getuid())
	rel, err := filepath.Rel(b.dir, b.run)
	e2etest.Must(t, err)
	cmd := b.command(t.Context(), "bash", script)
	cmd.Dir = "/"
	cmd.Env = append(cmd.Env, "PBS_O_WORKDIR="+b.dir, "PBS_JOBID=12[0].server", "NCPUS=2", "TMPDIR="+t.TempDir(), "RUN="+rel, "BERTH="+b.program)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "2 attempts at a time") {
		t.Errorf("%v\n%s", err, out)
	}
	b.settled()
}
