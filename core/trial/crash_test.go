package trial_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/task"
)

// ownMachine starts a separate plugin host with copies of the programs and one
// more agent of this module, so that a test kills only its own processes.
func ownMachine(t *testing.T) machine {
	t.Helper()
	m := getMachine(t)
	dir, err := os.MkdirTemp("", "bk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err = os.CopyFS(filepath.Join(dir, "plugins"), os.DirFS(filepath.Join(m.dir, "plugins"))); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "grpcnotrace", "-trimpath", "-buildvcs=false", "-o", filepath.Join(dir, "plugins", "berth-plugin-oracle"), "github.com/berth-eval/berth/agents/oracle")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, buildErr := build.CombinedOutput(); buildErr != nil {
		t.Fatalf("build: %v\n%s", buildErr, out)
	}
	host, err := plugin.New(plugin.Options{Dirs: []string{filepath.Join(dir, "plugins")}, Env: []string{"HOME=" + dir}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(host.Stop)
	return machine{dir: dir, sandboxd: m.sandboxd, host: host}
}

// running returns the processes that run a program below dir.
func running(dir string) (pids []int) {
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return nil
	}
	for _, l := range links {
		var pid int
		if exe, err := os.Readlink(l); err == nil && strings.HasPrefix(exe, dir+"/") {
			if _, err = fmt.Sscanf(l, "/proc/%d/exe", &pid); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// onHost also takes the agent from the plugin host.
type onHost struct{ *bench }

func (p onHost) Agent(ctx context.Context, name string) (agent.Agent, record.PluginUsed, error) {
	return p.m.host.Agent(ctx, name)
}

func (p onHost) Incarnation(environment string) int { return p.m.host.Incarnation(environment) }

// TestPluginsAreKilledInATurn kills real plugin processes while a real agent
// works. The attempt ends as plugin_crashed, the sandbox and its processes are
// removed, and the next attempt on the same host works.
func TestPluginsAreKilledInATurn(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"oracle", "local"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, does("true"), tests("test -e /app/done"))
			b.m = ownMachine(t)
			asleep := fmt.Sprintf("1000.%07d", rand.IntN(1e7)) // of this test alone
			withSolution(t, b, "sleep "+asleep+"; touch /app/done")
			killed := make(chan int, 1)
			b.live = func(e record.Event) {
				if e.Type == record.EventPhaseStart && e.Phase == record.PhaseTurn {
					go func() {
						killed <- killWhenBusy(t.Context(), "sleep\x00"+asleep+"\x00", filepath.Join(b.m.dir, "plugins", "berth-plugin-"+name))
					}()
				}
			}
			in := b.input()
			in.Plugins = onHost{b}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			r, err := trial.Run(ctx, in)
			if err != nil {
				t.Fatal(err)
			}
			if n := <-killed; n == 0 {
				t.Error("nothing was killed")
			}
			if r.Outcome != record.PluginCrashed || r.Integrity != record.Unknown || r.Error == nil || !r.Error.Retry {
				t.Errorf("got %s\n%s", r.Outcome, pretty(r))
			}
			nothingLeft(t, b)
			b.live, b.dir = nil, t.TempDir()
			withSolution(t, b, "touch /app/done")
			in = b.input()
			in.Plugins = onHost{b}
			if r, err = trial.Run(ctx, in); err != nil || r.Outcome != record.Passed {
				t.Errorf("the next attempt: %v\n%s", err, pretty(r))
			}
		})
	}
}

// killWhenBusy waits until the solution sleeps, and kills the processes of a
// program.
func killWhenBusy(ctx context.Context, asleep, program string) int {
	sleeps := func(name string) bool {
		line, _ := os.ReadFile(name) //nolint:errcheck // it may have ended
		return string(line) == asleep
	}
	for ctx.Err() == nil {
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline") //nolint:errcheck // the pattern is good
		if slices.ContainsFunc(lines, sleeps) {
			break
		}
		time.Sleep(5 * time.Millisecond) // Eventually ends a test, which this goroutine cannot do
	}
	n := 0
	for _, pid := range running(filepath.Dir(program)) {
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && exe == program && syscall.Kill(pid, syscall.SIGKILL) == nil {
			n++
		}
	}
	return n
}

func nothingLeft(t *testing.T, b *bench) {
	t.Helper()
	if _, err := os.Lstat(b.runtime); err == nil {
		t.Errorf("the runtime folder %s is still there", b.runtime)
	}
	testlevel.Eventually(t, "no sandboxes are left", func() bool {
		env, _, err := b.m.host.Environment(t.Context(), "local")
		var left []string
		if err == nil {
			left, err = env.List(t.Context(), b.input().Run)
		}
		return err == nil && len(left) == 0
	})
}

// withSolution gives the task a reference solution and the cell an oracle.
func withSolution(t *testing.T, b *bench, script string) {
	t.Helper()
	dir := filepath.Join(b.task.Dir, "solution")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "solve.sh"), []byte(script), 0o600)); err != nil {
		t.Fatal(err)
	}
	b.task.Resources = []task.Resource{{
		Name: "solution", Path: "solution", Audience: []task.Role{task.RoleOracle}, Place: "/solution", Phase: task.PlaceTurn, Folder: true,
		Entries: []task.Entry{{Path: "solve.sh", Mode: 0o755}},
	}}
	b.task.Stages[0].Reference = &task.Reference{Resource: "solution", Argv: []string{"sh", "/solution/solve.sh"}}
	b.cell.Agent = cell.Agent{Plugin: "oracle", Oracle: true}
}
