package engines

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run/cluster"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// pilotKey is the key of the model, which only the coordinator has.
const pilotKey = "canary-of-pilots-7f3a"

// onlyLo passes if the sandbox had the network device lo and no other one.
const (
	seesNetwork = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' > /app/done"
	onlyLo      = "if [ \"$(cat /app/done)\" = lo ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt"
)

// boxed writes tasks that start from archives, and an experiment on Podman. Each of
// the archives has a name of its own.
func (p *place) boxed(executor, url string, archives ...string) {
	p.test.Helper()
	for i, archive := range archives {
		name := fmt.Sprintf("box-%d", i+1)
		p.task(name, "", seesNetwork, onlyLo)
		file := filepath.Join("tasks", name, "task.toml")
		p.write(file, strings.Replace(p.read(file), fmt.Sprintf("%q", base), fmt.Sprintf("%q", "docker-archive:"+archive), 1))
	}
	p.write("berth.hcl", fmt.Sprintf(`experiment "pilots" {
  datasets    = [dataset.tasks]
  environment = environment.podman
  model       = model.m
  repeat      = 2
  matrix {
    agent = [agent.oracle, agent.nop, agent.loop]
  }
}
dataset "tasks" {
  format = "harbor"
  path   = "./tasks"
}
environment "podman" {
  plugin = "podman"
}
agent "oracle" {
  plugin = "oracle"
  oracle = true
}
agent "nop" {
  plugin = "nop"
}
agent "loop" {
  plugin = "minisweagent"
}
model "m" {
  provider = "openai-chat"
  name     = "m1"
  base_url = "%s/v1"
  api_key  = secret("E2E_PILOTS_KEY")
}
%s`, url, executor))
}

// storage gives Podman settings of a user, with a storage driver, and a scratch
// folder for pilots. It returns the folder.
func (p *place) storage(driver string) string {
	t := p.test
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "bg") //nolint:usetesting // not on a tmpfs, and not removed as this user
	e2etest.Must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if text, err := exec.CommandContext(ctx, "podman", "unshare", "rm", "-rf", dir).CombinedOutput(); err != nil {
			t.Errorf("%s stays: %v %s", dir, err, text)
		}
	})
	runtime := ""
	if _, err := exec.LookPath("runc"); err == nil { // crun refuses hosts with both versions of control groups
		runtime = "runtime = \"runc\"\n"
	}
	p.write(".config/containers/containers.conf", "[engine]\nevents_logger = \"file\"\ncgroup_manager = \"cgroupfs\"\n"+runtime)
	p.write(".config/containers/storage.conf", fmt.Sprintf("[storage]\ndriver = %q\n", driver))
	return dir
}

// copied copies the archive of the base image.
func (p *place) copied(to string) {
	p.test.Helper()
	text, err := os.ReadFile("/var/lib/berth-engines/base-docker-archive.tar")
	if err != nil {
		p.test.Skipf("no archive of the base image (%v)%s", err, e2etest.Help)
	}
	e2etest.Must(p.test, os.WriteFile(to, text, 0o600))
}

// coordinated starts a run that has a key, and returns its folder when pilots can
// begin.
func (p *place) coordinated() (*session, string) {
	p.test.Helper()
	before := p.env
	p.env = append(p.env[:len(p.env):len(p.env)], "E2E_PILOTS_KEY="+pilotKey)
	c := p.start("run", ".", "--no-live")
	p.env = before
	poll(p.test, "there is a coordinator", func() bool {
		if c.hasEnded() {
			p.test.Fatalf("the coordinator has ended: %s%s", c.out.String(), c.err.String())
		}
		found, _ := filepath.Glob(filepath.Join(p.dir, "runs", "*", cluster.Dir, "coordinators", "1.claim-0")) //nolint:errcheck // the pattern is good
		return len(found) == 1
	})
	return c, p.only()
}

// only returns the folder of the only run.
func (p *place) only() string {
	p.test.Helper()
	found, err := filepath.Glob(filepath.Join(p.dir, "runs", "*-*"))
	if err != nil || len(found) != 1 {
		p.test.Fatalf("runs: %q, %v", found, err)
	}
	return found[0]
}

// ended waits until a process has ended with code 0.
func (p *place) ended(s *session) {
	p.test.Helper()
	if code := p.end(s); code != 0 {
		p.test.Fatalf("%q: exit code %d\n%s%s", s.Args, code, s.out.String(), s.err.String())
	}
}

// Two pilots of an ordinary user on Podman make the same run as this machine alone.
// Each has storage of its own and loads one of the archives, sandboxes have only lo,
// and models are reached through the coordinator, which alone has the key.
func TestPilotsOnPodmanMakeTheSameRun(t *testing.T) {
	t.Parallel()
	m := machineFor(t, "podman", base)
	for _, driver := range []string{"overlay", "vfs"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			scratch := p.storage(driver)
			provider := &e2etest.Provider{Key: pilotKey, Command: seesNetwork + "; env; cat /proc/*/environ | tr '\\0' '\\n'"}
			server := httptest.NewServer(provider)
			t.Cleanup(server.Close)
			first, second := filepath.Join(p.dir, "first.tar"), filepath.Join(p.dir, "second.tar")
			p.copied(first)
			p.copied(second)
			p.boxed("", server.URL, first, second)
			before := p.env
			p.env = append(p.env, m.env(), "E2E_PILOTS_KEY="+pilotKey)
			p.berth(0, "run", ".", "--no-live")
			p.env = before
			alone := filepath.Join(p.dir, "alone")
			e2etest.Must(t, os.Rename(p.only(), alone))

			p.boxed(fmt.Sprintf("executor \"pilots\" {\n  scratch = %q\n}\n", scratch), server.URL, first, second)
			c, run := p.coordinated()
			one, two := p.start("pilot", run, "--workers", "2"), p.start("pilot", run, "--workers", "2")
			p.ended(c)
			p.ended(one)
			p.ended(two)
			_ = errors.New
			_ = record.Passed
			results := e2etest.SameRun(t, alone, run)
			t.Log(len(results))
		})
	}
}
