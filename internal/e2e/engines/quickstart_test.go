package engines

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/testlevel"
)

// rewards runs the quickstart in another environment and returns the rewards.
func rewards(t *testing.T, environment string, env ...string) map[string]string {
	t.Helper()
	p := newPlace(t, env...)
	if err := os.CopyFS(p.dir, os.DirFS(filepath.Join(tree, "examples", "quickstart"))); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(p.dir, "berth.hcl")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "environment = environment.local\n", "environment = environment."+environment+"\n", 1)
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	p.berth(0, "run", ".", "--no-live")
	got := map[string]string{}
	for _, tr := range p.show().Trials {
		score := "none"
		if a := tr.Attempts; len(a) == 1 && a[0].Score != nil {
			score = fmt.Sprintf("%s %g", a[0].Outcome, *a[0].Score)
		}
		got[tr.Task+" "+tr.CellKey] = score
	}
	return got
}

// The rewards are the same in every environment; a single word of the
// experiment names it.
func TestTheQuickstartHasTheSameRewardsEverywhere(t *testing.T) {
	t.Parallel()
	var first map[string]string
	for _, name := range []string{"local", "docker", "podman"} {
		t.Run(name, func(t *testing.T) {
			var env []string
			if name == "local" {
				p := newPlace(t)
				s := p.start("doctor", "--json")
				if p.end(s) != 0 {
					t.Skipf("no sandbox can be made here: %s", s.out.String())
				}
			} else {
				env = append(env, machineFor(t, name, debian).env())
			}
			got := rewards(t, name, env...)
			for _, task := range []string{"fix-script", "hello-file", "isolation"} {
				for agent, want := range map[string]string{"oracle": string(record.Passed) + " 1", "nop": string(record.Failed) + " 0"} {
					if r := got["berth/"+task+" agent="+agent]; r != want {
						t.Errorf("%s of %s: got %q, want %q", agent, task, r, want)
					}
				}
			}
			if first != nil && !maps.Equal(got, first) {
				t.Errorf("got %v, but %v in another environment", got, first)
			}
			first = got
		})
	}
}

// The sample that inspects its sandbox can fail: it does in a container with
// all privileges that the sample looks for.
func TestTheIsolationSampleFailsInAPrivilegedContainer(t *testing.T) {
	t.Parallel()
	m := machineFor(t, "docker", debian)
	docker := testlevel.Program(t, "docker", "docker-cli")
	sample := filepath.Join(tree, "examples", "quickstart", "tasks", "isolation")
	solve, err := os.ReadFile(filepath.Join(sample, "solution", "solve.sh"))
	if err != nil {
		t.Fatal(err)
	}
	test, err := os.ReadFile(filepath.Join(sample, "tests", "test.sh"))
	if err != nil {
		t.Fatal(err)
	}
	open := "--cap-add=SYS_ADMIN --security-opt=seccomp=unconfined --security-opt=systempaths=unconfined" // what --privileged is about
	for mode, want := range map[string]map[string]string{
		open: {
			"root in here is not root of the machine": "FAIL", "no disk, no switch and no mount of the machine is in reach": "FAIL", "/proc/sys is mounted read-only": "FAIL",
		},
		"--init=false": {
			"root in here is not root of the machine": "ok", "no disk, no switch and no mount of the machine is in reach": "ok", "/proc/sys is mounted read-only": "ok",
		},
	} {
		cmd := exec.CommandContext(t.Context(), docker, slices.Concat([]string{"run", "--rm", "--interactive", "--network", "none"}, strings.Fields(mode), []string{debian, "sh", "-s"})...)
		cmd.Env = append(os.Environ(), m.env())
		cmd.Stdin = strings.NewReader("mkdir -p /app /logs/verifier\n(\n" + string(solve) + "\n)\n" + string(test) + "\ncat /logs/verifier/reward.txt\n")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", mode, err, out)
		}
		for what, mark := range want {
			if !strings.Contains(string(out), fmt.Sprintf("%-6s%s\n", mark, what)) {
				t.Errorf("%s: want %q of %q in\n%s", mode, mark, what, out)
			}
		}
		if !strings.HasSuffix(string(out), "\n0\n") { // there is no /berth in it
			t.Errorf("%s: a reward:\n%s", mode, out)
		}
	}
}
