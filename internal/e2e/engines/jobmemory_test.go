package engines

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// An agent that reaches the memory limit of its own sandbox has failed, and gets no
// further attempt, also if this process has a limit of a job.
func TestTheLimitOfASandboxIsTheAgentsAlsoInAJob(t *testing.T) {
	t.Parallel()
	job := e2etest.MemoryGroup(t, 400)
	p := newPlace(t, machineFor(t, "docker", debian).env())
	p.task("hungry", "memory_mb = 64\n", "exec tail /dev/zero", testTiny)
	p.images("docker")
	p.experiment("docker", "", "retry {\n    max  = 1\n    wait = \"0s\"\n  }")
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `echo $$ > "$1" && exec "$2" run . --no-live`, "sh", filepath.Join(job, "cgroup.procs"), filepath.Join(bin, "berth"))
	cmd.Dir, cmd.Env = p.dir, p.env
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() > 1) {
		t.Fatalf("%v\n%s", err, out)
	}
	tr := p.show().Trials[0]
	r := e2etest.Result(t, tr.Attempts[0].Dir)
	var codes []string
	for _, f := range r.Findings {
		codes = append(codes, f.Code)
	}
	all := strings.Join(codes, " ")
	if r.Outcome != record.Failed || r.AgentEnd != record.Crashed || len(tr.Attempts) != 1 || !strings.Contains(all, "oom_kills") || strings.Contains(all, "job_oom_kills") {
		t.Errorf("%s, %s, %d attempts, findings %s, %+v", r.Outcome, r.AgentEnd, len(tr.Attempts), all, r.Error)
	}
}
