package engines

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// attacks are the actions of an agent, as root of its sandbox, to pass without
// solving its task. $attacker is a program of sandboxd's own tests, which
// describes its actions.
var attacks = map[string]string{
	// A process that the list of running processes does not show, and that
	// solves the task when its tests start.
	"headless": `setsid $attacker headless > /tmp/up 2>&1 < /dev/null & until [ -s /tmp/up ]; do :; done`,
	"chain":    `setsid $attacker chain > /tmp/up 2>&1 < /dev/null & until [ -s /tmp/up ]; do :; done`,
}

// An agent that hides a process which works during the tests does not pass as
// checked. Where tests are kept from what an agent leaves running, the process does
// not even reach them: on local, and on Podman without root.
func TestAHiddenProcessDoesNotPassAsChecked(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p *place, plugin, mode string) {
		for name, script := range attacks {
			p.attack(plugin, name, script)
		}
		for _, tr := range p.attacked(plugin, mode).Trials {
			r := tr.Attempts[len(tr.Attempts)-1]
			switch {
			case tr.Outcome == record.Passed && r.Integrity == record.Checked, len(tr.Attempts) != 1:
				t.Errorf("%s: %s, %s, %d attempts", tr.Task, tr.Outcome, r.Integrity, len(tr.Attempts))
			case mode == "live" && plugin == "docker" && (tr.Outcome != record.Passed || r.Integrity != record.Exposed):
				t.Errorf("%s: %s, %s; want the attack to do its work, or it proves nothing", tr.Task, tr.Outcome, r.Integrity)
			case mode == "restarted" && tr.Outcome != record.Failed:
				t.Errorf("%s: %s, want the process dead", tr.Task, tr.Outcome)
			}
		}
	})
}

// everywhere runs a test on each environment, in the two modes in which tests
// run in the agent's sandbox.
func everywhere(t *testing.T, f func(t *testing.T, p *place, plugin, mode string)) {
	t.Helper()
	for _, mode := range []string{"live", "restarted"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			everyPlugin(t, func(t *testing.T, p *place, plugin string) { f(t, p, plugin, mode) })
		})
	}
}

// attack writes a task whose solution is an attack.
func (p *place) attack(plugin, name, script string) {
	p.test.Helper()
	p.task(name, "", `attacker="$(dirname "$0")/attacker -berth-program"`+"\n"+script, "sleep 1\n"+e2etest.TestTiny)
	dir := filepath.Join(p.dir, "tasks", name)
	text, err := os.ReadFile(filepath.Join(dir, "task.toml"))
	if err == nil {
		image := `docker_image = "` + debian + `"`
		if plugin == "local" {
			image = ""
			p.write(filepath.Join("tasks", name, "environment", "Dockerfile"), "FROM debian:bookworm-slim\nWORKDIR /app\n")
		}
		p.write(filepath.Join("tasks", name, "task.toml"), strings.Replace(string(text), `docker_image = "`+base+`"`, image, 1))
		err = os.CopyFS(filepath.Join(dir, "solution"), os.DirFS(attacker(p.test)))
	}
	if err != nil {
		p.test.Fatal(err)
	}
}

// attacked runs the tasks and returns the results.
func (p *place) attacked(plugin, mode string) *output.ShowRun {
	p.test.Helper()
	p.experiment(plugin, "", "verify = \""+mode+"\"\n  retry {\n    max  = 1\n    wait = \"0s\"\n  }")
	s := p.start("run", ".")
	if code := p.end(s); code > 1 {
		p.test.Fatalf("exit code %d\n%s\n%s", code, s.out.String(), s.err.String())
	}
	return p.show()
}

// building is held while the program of attacks is built.
var building sync.Mutex

// attacker makes a folder with the program of attacks: the test binary of
// sandboxd, which runs as a separate program in a sandbox.
func attacker(t *testing.T) string {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	dir := filepath.Join(top, "attacker")
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	to := dir + ".new"
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(to, "attacker"), "./plugins/sandbox/sandboxd")
	cmd.Dir, cmd.Env = tree, append(slices.Clone(os.Environ()), "CGO_ENABLED=0", "GOFLAGS=")
	err := os.MkdirAll(to, 0o700)
	if err == nil {
		var out []byte
		if out, err = cmd.CombinedOutput(); err != nil {
			err = errors.Join(err, errors.New(string(out)))
		}
	}
	if err == nil {
		err = os.Rename(to, dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
