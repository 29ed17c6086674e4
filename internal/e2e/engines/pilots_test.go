package engines

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run/cluster"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
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

// copied copies the archive of the base image to a file of the place.
func (p *place) copied(name string) string {
	p.test.Helper()
	text, err := os.ReadFile("/var/lib/berth-engines/base-docker-archive.tar")
	if err != nil {
		p.test.Skip("the base image is not there as a file" + e2etest.Help)
	}
	p.write(name, string(text))
	return filepath.Join(p.dir, name)
}

// coordinated starts a run that has a key, and returns its folder when pilots can
// begin.
func (p *place) coordinated() (*session, string) {
	p.test.Helper()
	before := p.env
	p.env = append(slices.Clip(p.env), "E2E_PILOTS_KEY="+pilotKey)
	c := p.start("run", ".", "--no-live")
	p.env = before
	testlevel.Eventually(p.test, "there is a coordinator", func() bool {
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

// unpiloted checks that nothing of pilots is left on this machine: no process, storage
// or mount.
func (p *place) unpiloted(scratch string) {
	t := p.test
	t.Helper()
	p.berth(0, "gc", "--scratch", scratch)
	testlevel.Eventually(t, "the processes of the run are gone", func() bool { return len(processes(p.dir+"/"))+len(processes(scratch)) == 0 })
	for _, pattern := range []string{"jobs/*", "images/*/overlay-containers/*/userdata", "images/*/vfs-containers/*/userdata"} {
		left, err := filepath.Glob(filepath.Join(scratch, "berth-*", "podman", pattern))
		if err != nil || len(left) > 0 {
			t.Errorf("left of pilots: %q, %v", left, err)
		}
	}
	if table, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(table), scratch) {
		t.Errorf("mounts are left, %v: %s", err, table)
	}
}

// Two pilots of an ordinary user on Podman make the same run as this machine alone.
// Each has storage of its own and loads one of the archives, sandboxes have only lo,
// and models are reached through the coordinator, which alone has the key.
func TestPilotsOnPodmanMakeTheSameRun(t *testing.T) {
	t.Parallel()
	m := machineFor(t, "podman", base)
	drivers := []string{"overlay"}
	if testlevel.All() {
		drivers = append(drivers, "vfs")
	}
	for _, driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			scratch := p.storage(driver)
			provider := &e2etest.Provider{Key: pilotKey, Command: seesNetwork + "; env; cat /proc/*/environ | tr '\\0' '\\n'"}
			server := httptest.NewServer(provider)
			t.Cleanup(server.Close)
			first, second := p.copied("first.tar"), p.copied("second.tar")
			p.boxed("", server.URL, first, second)
			before := p.env
			p.env = append(p.env, m.env(), "E2E_PILOTS_KEY="+pilotKey)
			p.berth(0, "run", ".", "--no-live")
			p.env = before
			alone := filepath.Join(p.dir, "alone")
			e2etest.Must(t, os.Rename(p.only(), alone))
			asked := provider.Served.Load()

			p.boxed(fmt.Sprintf("executor \"pilots\" {\n  scratch = %q\n}\n", scratch), server.URL, first, second)
			c, run := p.coordinated()
			one, two := p.start("pilot", run, "--in-flight", "1"), p.start("pilot", run, "--in-flight", "1")
			p.ended(c)
			p.ended(one)
			p.ended(two)
			made := map[string]int{}
			for at, r := range e2etest.SameRun(t, alone, run) {
				made[r.Worker.Pilot]++
				if want := map[bool]record.Outcome{true: record.Failed, false: record.Passed}[r.Cell["agent"] == "nop"]; r.Outcome != want {
					t.Errorf("%s of %v: %s, %+v", at, r.Cell, r.Outcome, r.Error)
				}
			}
			if len(made) != 2 {
				t.Errorf("attempts of pilots: %v", made)
			}
			if n := provider.Served.Load() - asked; n != asked || asked != 4 || provider.Strange.Load() > 0 {
				t.Errorf("%d requests alone, %d of pilots, %d without the key", asked, n, provider.Strange.Load())
			}
			for _, dir := range []string{run, scratch} {
				if found, err := exec.CommandContext(t.Context(), "grep", "-rls", pilotKey, dir).Output(); err == nil || len(found) > 0 {
					t.Errorf("the key is in files of pilots: %s", found)
				}
			}
			p.unpiloted(scratch)
		})
	}
}
