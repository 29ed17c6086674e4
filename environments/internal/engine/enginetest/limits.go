package enginetest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/berth-eval/berth/environments/internal/engine"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox"
)

// What a sandbox of limits may have: little enough to be reached soon.
var few = environment.Limits{CPUMilli: 100, MemoryMiB: 64, StorageMiB: 32, Pids: 64, ShmMiB: 8}

// limits tries what the kit does not of limits: one that is not enforced is named by
// Check, shared memory has its size, and what remains of a sandbox says what it used,
// or that this is unknown.
func limits(t *testing.T, made func() *engine.Environment, spec environment.Spec) {
	e := made()
	spec.Limits = few
	report, err := e.Check(bounded(t), spec)
	if err != nil || len(report.Refusals) > 0 {
		t.Fatalf("check: %+v, %v", report, err)
	}
	b := Open(t, e, spec)
	for what, grant := range map[string]environment.Grant{
		"processors": b.Granted.CPU, "memory": b.Granted.Memory, "storage": b.Granted.Disk, "processes": b.Granted.Pids,
	} {
		t.Logf("%s: %s (%s)", what, grant, b.Granted.How)
		said := slices.ContainsFunc(report.Degraded, func(d environment.Problem) bool { return strings.Contains(d.Summary, "limit on "+what) })
		if grant == "" || (grant == environment.GrantEnforced) == said {
			t.Errorf("%s: granted %q, and Check says %+v", what, grant, report.Degraded)
		}
	}
	if f := strings.Fields(b.Sh(t, "df -k /dev/shm | tail -n 1")); len(f) < 2 || f[1] != strconv.FormatInt(few.ShmMiB<<10, 10) {
		t.Errorf("shared memory: %q; want %d MiB", f, few.ShmMiB)
	}
	if b.Granted.Pids != environment.GrantEnforced { // by the limit of all sandboxes of this user
		f := strings.Fields(b.Sh(t, "grep 'Max processes' /proc/self/limits"))
		if n, bad := strconv.Atoi(append(f, "", "", "")[2]); b.Granted.Pids != environment.GrantBestEffort || bad != nil || n > 4096 {
			t.Errorf("processes are limited as %q, by %q", b.Granted.Pids, f)
		}
	}
	b.Sh(t, "(while :; do :; done) & (while :; do :; done) & sleep 3; kill %1 %2")
	if b.Granted.Memory == environment.GrantEnforced {
		script := fmt.Sprintf("dd if=/dev/zero of=/dev/null bs=%dM count=1", 3*few.MemoryMiB)
		if r, wrong := b.shell.Exec(bounded(t), sandbox.Command{Argv: []string{"/bin/sh", "-c", script}}); wrong != nil || r.OK() {
			t.Errorf("three times the memory: %+v, %v", r, wrong)
		}
	}
	r, err := e.Destroy(bounded(t), b.ID)
	must(t, err)
	t.Logf("remains: %+v", r)
	if b.Granted.Memory == environment.GrantEnforced {
		if r.OOMKills == 0 || r.PeakMemoryMiB < few.MemoryMiB/2 || r.PeakMemoryMiB > few.MemoryMiB+1 {
			t.Errorf("remains are %+v; want a kill, and a peak near %d MiB", r, few.MemoryMiB)
		}
	} else if r.OOMKills != 0 || r.PeakMemoryMiB != 0 || r.CPU != 0 || !strings.Contains(b.Granted.How, "unknown") {
		t.Errorf("nothing is measured here, but remains are %+v, and it says %q", r, b.Granted.How)
	}
	if b.Granted.CPU == environment.GrantEnforced && (r.Throttled <= 0 || r.CPU <= 0) {
		t.Errorf("two processors were used with a limit of %d thousandths of one, and it was throttled for %v of %v", few.CPUMilli, r.Throttled, r.CPU)
	}
}
