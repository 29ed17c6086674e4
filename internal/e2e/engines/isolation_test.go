package engines

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/internal/testlevel"
)

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
