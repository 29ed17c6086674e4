package command

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

const probing = `#!/usr/bin/python3
from berth_plugin import Verdict, Verifier, serve

class ProbeVerifier(Verifier):
    """Runs the agent's program in a sandbox of its own."""
    name = "probe"
    needs = "own"

    def verify(self, request):
        sh = lambda script: request.shell.run(["sh", "-c", script], user=request.user, env=request.env, timeout=60)
        if sh("test -e /app/scratch || test -e /app/running").code == 0:
            return Verdict("fail", scores={"reward": 0}, rationale="it is the agent's sandbox")
        result = sh("test -e /tests/test.sh && sh /app/program > /app/output; cat /app/output")
        passed = result.stdout == b"42\n"
        return Verdict("pass" if passed else "fail", scores={"reward": 1 if passed else 0}, rationale=result.output)

serve(ProbeVerifier())
`

// A verifier with a sandbox of its own judges what the agent declared. The agent's
// sandbox, which says something else, has no say.
func TestAVerifierWithASandboxOfItsOwn(t *testing.T) {
	tree.NeedsSandbox(t)
	t.Parallel()
	dir := t.TempDir()
	pythonPlugin(t, dir, "probe", probing)
	task(t, filepath.Join(dir, "tasks"), "program", "cd /app; echo 'echo 42' > program; touch scratch; setsid sleep 100 > running 2>&1 &")
	one := filepath.Join(dir, "tasks", "program")
	e2etest.Write(t, one, map[string]string{
		"task.toml": "artifacts = [\"/app/program\"]\n" + e2etest.Read(t, one, "task.toml"), "tests/test.sh": "exit 1\n",
	})
	experiment(t, dir, "agent.oracle, agent.nop", "")
	e2etest.Write(t, dir, map[string]string{"verifier.hcl": "verifier \"script\" {\n  plugin = \"probe\"\n}\n"})
	berthWith(t, dir, nil, "plan").want(t, 0)
	r := berthWith(t, dir, nil, "run")
	if r.code != 0 || !strings.Contains(r.out, "2 trials planned = 1 passed + 1 failed") {
		t.Errorf("%d\n%s\n%s", r.code, r.out, r.stderr)
	}
}
