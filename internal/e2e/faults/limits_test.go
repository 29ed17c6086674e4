package faults

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// lower solves its task and lowers a limit of PID 1. If it may, it first takes
// the user id of PID 1.
const lower = `
: > /app/done
id=$(sed -n 's/^Uid:[[:space:]]*\([0-9]*\).*/\1/p' /proc/1/status)
mkdir -p /logs/artifacts
if setpriv --reuid "$id" --regid "$id" --clear-groups prlimit --pid 1 --nofile=64:64 || prlimit --pid 1 --nofile=64:64; then
	: > /logs/artifacts/lowered
fi
`

// If root of a sandbox lowers the limits of PID 1, the kernel refuses it. In a
// sandbox with a single user id it is detected: the work does not count, and
// there is no further attempt.
func TestWhoLowersTheLimitsOfPID1IsRefusedOrFoundOut(t *testing.T) {
	t.Parallel()
	testlevel.Program(t, "prlimit", "util-linux")
	users(t, func(p *place) {
		t := p.test
		p.task("limits", "", lower, testTiny)
		p.experiment("retry {\n    max  = 1\n    wait = \"0s\"\n  }\n  matrix {\n    agent = [agent.oracle]\n  }", "")
		p.berth("run", ".", "--no-live")
		var s output.ShowRun
		e2etest.Must(t, json.Unmarshal([]byte(p.berth("show", "last", "--json").want(t, 0).stdout), &s))
		tr := s.Trials[0]
		r := tr.Attempts[0]
		_, err := os.Stat(filepath.Join(r.Dir, "artifacts", "logs", "artifacts", "lowered"))
		refused := err != nil && tr.Outcome == record.Passed && r.Integrity == record.Checked
		kept := read(filepath.Join(r.Dir, record.ResultFile))
		found := tr.Outcome == record.AgentError && r.Integrity == record.Violated && strings.Contains(kept, "pid1_changed") && strings.Contains(kept, "limit NOFILE is 64:64")
		if !refused && !found || p.uid == stranger && !found || len(tr.Attempts) != 1 {
			t.Errorf("%s, %s, %d attempts\n%s", tr.Outcome, r.Integrity, len(tr.Attempts), kept)
		}
		p.clean()
	})
}
