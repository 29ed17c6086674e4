package engines

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// spoils are actions of an agent that has not solved its task and wants another
// attempt: each makes a step after its turn fail. The scripts run as root of
// the sandbox.
var spoils = map[string]string{
	"aside": "for d in /tests /logs/verifier; do seq -f $d.aside-%.0f 9999 | xargs mkdir -p; mkdir -p $d; touch $d/x; done",
	"deep":  `perl -e 'chdir "/logs/artifacts"; for (1..23) { mkdir "d" x 194; chdir "d" x 194; open F, ">f" }'`,
	"names": `mkdir -p "/logs/artifacts/$(printf 'a\377b')/c"; touch "/logs/artifacts/$(printf 'a\377b')/c/f"`,
	"limits": `id=$(awk '/^Uid:/ {print $2}' /proc/1/status)
for l in nofile=4:4 nproc=1:1 fsize=0:0 stack=0:0; do setpriv --reuid "$id" --regid "$id" --clear-groups prlimit --pid 1 --$l || prlimit --pid 1 --$l; done`,
	"shell":   "rm -f /bin/bash /usr/bin/bash /bin/sh /usr/bin/sh /bin/dash /usr/bin/dash",
	"loader":  "rm -f /lib64/ld-linux-* /usr/lib64/ld-linux-* /lib/*/ld-linux-* /usr/lib/*/ld-linux-* /lib/ld-* /usr/lib/ld-*",
	"workdir": "cd /; rm -rf /app",
	"users":   "rm -f /etc/passwd /etc/group",
}

// Whatever an agent does to its sandbox, resulting errors are its own: it gets
// no further attempt, and does not pass.
func TestAnAgentEarnsNoFurtherAttemptByBreakingItsSandbox(t *testing.T) {
	t.Parallel()
	everywhere(t, breaks)
}

// breaks runs the tasks whose agents break their sandboxes.
func breaks(t *testing.T, p *place, plugin, mode string) {
	t.Helper()
	p.task("honest", "", e2etest.SolveTiny, e2etest.TestTiny)
	for name, script := range spoils {
		p.task(name, "", script, e2etest.TestTiny)
	}
	p.images(plugin)
	p.experiment(plugin, "", fmt.Sprintf("verify = %q\n  retry {\n    max  = 10\n    wait = \"0s\"\n  }\n  limits {\n    in_flight = 3\n  }", mode))
	s := p.start("run", ".")
	if code := p.end(s); code > 1 {
		t.Fatalf("exit code %d\n%s\n%s", code, s.out.String(), s.err.String())
	}
	show := p.show()
	if len(show.Trials) != len(spoils)+1 {
		t.Errorf("%d trials", len(show.Trials))
	}
	for _, tr := range show.Trials {
		wanted := []record.Outcome{record.Failed, record.AgentError, record.VerifierError, record.IntegrityViolation}
		if tr.Task == "engines/honest" {
			wanted = []record.Outcome{record.Passed}
		}
		wantOnce(t, &tr, wanted...)
	}
}

// wantOnce checks that a trial had only one attempt.
func wantOnce(t *testing.T, tr *output.ShowTrial, want ...record.Outcome) {
	t.Helper()
	if len(tr.Attempts) == 0 {
		t.Errorf("%s: no attempt", tr.Task)
		return
	}
	e := tr.Attempts[0].Error
	t.Logf("%-16s %d attempts  %s  %+v", tr.Task, len(tr.Attempts), tr.Outcome, e)
	if !slices.Contains(want, tr.Outcome) || len(tr.Attempts) != 1 || e != nil && e.Retry {
		t.Errorf("%s: %s after %d attempts, %+v; want one of %q after 1, and no retry", tr.Task, tr.Outcome, len(tr.Attempts), e, want)
	}
}

// images makes the tasks of a place start from Debian: an image of the engine
// or, for local, which has no images, a build that the host's programs replace.
func (p *place) images(plugin string) {
	t := p.test
	t.Helper()
	for _, dir := range globbed(t, filepath.Join(p.dir, "tasks", "*")) {
		rel := strings.TrimPrefix(dir, p.dir+"/")
		text, err := os.ReadFile(filepath.Join(dir, "task.toml"))
		if err != nil {
			t.Fatal(err)
		}
		image := fmt.Sprintf("docker_image = %q\n", debian)
		if plugin == "local" {
			image = ""
			p.write(filepath.Join(rel, "environment", "Dockerfile"), "FROM debian:bookworm-slim\nWORKDIR /app\n")
		}
		p.write(filepath.Join(rel, "task.toml"), strings.Replace(string(text), fmt.Sprintf("docker_image = %q\n", base), image, 1))
	}
}

func globbed(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v", pattern, err)
	}
	return files
}
