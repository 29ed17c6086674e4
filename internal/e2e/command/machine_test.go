package command

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// On local, a program that somebody installs on the machine while the agent works is
// not the agent's. What the agent itself puts beside it is.
func TestAnInstallationOnTheMachineIsNotTheAgents(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	testlevel.Root(t, "mount a folder on /usr/local, for the test alone")
	unshare := testlevel.Program(t, "unshare", "util-linux")
	// It ends when the machine has one more program than at its start.
	const waits = `count() { ls /usr/local/bin | wc -l; }; n=$(count); until [ "$(count)" -gt "$n" ]; do sleep 0.1; done; `
	for name, tt := range map[string]struct{ solve, want string }{
		"the machine's": {solve: waits + "touch /app/done"},
		"the agent's":   {solve: "echo x > /usr/local/bin/own; " + waits + "touch /app/done", want: "/usr/local/bin/own"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, machine := t.TempDir(), t.TempDir()
			bin := filepath.Join(machine, "bin")
			e2etest.Must(t, os.Chmod(machine, 0o755)) //nolint:gosec // as /usr/local
			e2etest.Must(t, os.Mkdir(bin, 0o755))     //nolint:gosec // as /usr/local/bin
			task(t, filepath.Join(dir, "tasks"), "wait", tt.solve)
			experiment(t, dir, "agent.oracle", "")
			cmd := exec.CommandContext(t.Context(), unshare, "--mount", "sh", "-c", `mount --bind "$0" /usr/local && exec "$@"`, machine, tree.Binary, "run", "experiment.hcl")
			cmd.Dir, cmd.WaitDelay = dir, 10*time.Second
			cmd.Env = append(os.Environ(), "NO_COLOR=1", "XDG_CACHE_HOME="+filepath.Join(dir, "cache"), "XDG_DATA_HOME="+filepath.Join(dir, "data"))
			var out strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &out
			e2etest.Must(t, cmd.Start())
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			installs := time.NewTicker(50 * time.Millisecond)
			defer installs.Stop()
			for i := 0; ; i++ {
				select {
				case err := <-ended:
					if err != nil {
						t.Fatalf("%v\n%s", err, out.String())
					}
				case <-installs.C:
					e2etest.Must(t, os.WriteFile(filepath.Join(bin, fmt.Sprint("tool", i)), nil, 0o755)) //nolint:gosec // a program
					continue
				}
				break
			}
			attempts := e2etest.Found(t, 1, dir, "runs", "*", "trials", "*", "attempt-1")
			r := e2etest.Result(t, attempts[0])
			at := slices.IndexFunc(r.Findings, func(f record.Finding) bool { return f.Code == "system_changed" })
			if r.Outcome != record.Passed || (at >= 0) != (tt.want != "") || at >= 0 && !strings.Contains(r.Findings[at].Text, tt.want) {
				t.Errorf("%s, %+v; want %q to be the agent's", r.Outcome, r.Findings, tt.want)
			}
		})
	}
}
