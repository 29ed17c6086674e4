package enginetest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/environments/internal/engine"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox"
)

// What a sandbox of Limits may have: little enough to be reached soon.
const (
	fewCPUMilli   = 100
	fewMemoryMiB  = 64
	fewStorageMiB = 32
	fewPids       = 64
	fewShmMiB     = 8
)

// Limits tries each limit: one that is said to be enforced is reached, one that
// is not is named by Check, and what is not measured is said to be unknown.
func Limits(t *testing.T, e *engine.Environment, spec environment.Spec) {
	t.Helper()
	spec.Limits = environment.Limits{CPUMilli: fewCPUMilli, MemoryMiB: fewMemoryMiB, StorageMiB: fewStorageMiB, Pids: fewPids, ShmMiB: fewShmMiB}
	report, err := e.Check(bounded(t), spec)
	if err != nil || len(report.Refusals) > 0 {
		t.Fatalf("check: %+v, %v", report, err)
	}
	b := Open(t, e, spec)
	said := func(what string) bool {
		for _, d := range report.Degraded {
			if strings.Contains(d.Summary, "limit on "+what) {
				return true
			}
		}
		return false
	}
	for what, grant := range map[string]environment.Grant{
		"processors": b.Granted.CPU, "memory": b.Granted.Memory, "storage": b.Granted.Disk, "processes": b.Granted.Pids,
	} {
		t.Logf("%s: %s (%s)", what, grant, b.Granted.How)
		if grant == "" || (grant == environment.GrantEnforced) == said(what) {
			t.Errorf("%s: granted %q, and Check says %+v", what, grant, report.Degraded)
		}
	}
	b.shm(t)
	b.pids(t)
	b.disk(t)
	spun := b.spin(t)
	if b.Granted.Memory == environment.GrantEnforced {
		if r, wrong := b.run(t, fmt.Sprintf("dd if=/dev/zero of=/dev/null bs=%dM count=1", 3*fewMemoryMiB)); wrong != nil || r.OK() {
			t.Errorf("three times the memory: %+v, %v", r, wrong)
		}
	}
	r, err := e.Destroy(bounded(t), b.ID)
	must(t, err)
	b.remains(t, r, spun)
}

// run is Sh for a script that may fail.
func (b *Box) run(t *testing.T, script string) (sandbox.Result, error) {
	t.Helper()
	return b.shell.Exec(bounded(t), sandbox.Command{Argv: []string{"/bin/sh", "-c", script}})
}

func (b *Box) shm(t *testing.T) {
	t.Helper()
	f := strings.Fields(b.Sh(t, "df -k /dev/shm | tail -n 1"))
	if len(f) < 2 || f[1] != strconv.Itoa(fewShmMiB<<10) {
		t.Errorf("shared memory: %q; want %d MiB", f, fewShmMiB)
	}
}

// pids starts more processes than are allowed, or looks at the limit that
// holds for all sandboxes of this user, which others need.
func (b *Box) pids(t *testing.T) {
	t.Helper()
	if b.Granted.Pids != environment.GrantEnforced {
		f := strings.Fields(b.Sh(t, "grep 'Max processes' /proc/self/limits"))
		if n, err := strconv.Atoi(append(f, "", "", "")[2]); b.Granted.Pids != environment.GrantBestEffort || err != nil || n > 4096 {
			t.Errorf("processes are limited as %q, by %q", b.Granted.Pids, f)
		}
		return
	}
	// The shell that cannot fork ends; what it started lives on.
	if r, err := b.run(t, fmt.Sprintf("i=0; while [ $i -lt %d ]; do sleep 600 & i=$((i+1)); done", 2*fewPids)); err != nil || r.OK() {
		t.Errorf("%d processes: %+v, %v", 2*fewPids, r, err)
	}
	killed, err := b.Core.Quiesce(bounded(t))
	if err != nil || len(killed) < fewPids/4 || len(killed) > fewPids {
		t.Errorf("there were %d processes, %v; want up to %d", len(killed), err, fewPids)
	}
}

func (b *Box) disk(t *testing.T) {
	t.Helper()
	r, err := b.run(t, fmt.Sprintf("dd if=/dev/zero of=/big bs=1M count=%d", 2*fewStorageMiB))
	if err != nil || r.OK() == (b.Granted.Disk == environment.GrantEnforced) {
		t.Errorf("writes twice of what is granted as %q: %+v, %v", b.Granted.Disk, r, err)
	}
}

// spin uses two processors until its cgroup says that it was held back, or, where
// nothing would say so, for a moment. It returns how long that was.
func (b *Box) spin(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	b.Sh(t, "(while :; do :; done) & (while :; do :; done) & sleep 3; kill %1 %2")
	return time.Since(began)
}

// remains are compared with what was done.
func (b *Box) remains(t *testing.T, r environment.Remains, spun time.Duration) {
	t.Helper()
	t.Logf("remains: %+v", r)
	if b.Granted.Memory == environment.GrantEnforced {
		if r.OOMKills == 0 || r.PeakMemoryMiB < fewMemoryMiB/2 || r.PeakMemoryMiB > fewMemoryMiB+1 {
			t.Errorf("remains are %+v; want a kill, and a peak near %d MiB", r, fewMemoryMiB)
		}
	} else if r.OOMKills != 0 || r.PeakMemoryMiB != 0 || r.CPU != 0 || !strings.Contains(b.Granted.How, "unknown") {
		t.Errorf("nothing is measured here, but remains are %+v, and it says %q", r, b.Granted.How)
	}
	if b.Granted.CPU == environment.GrantEnforced && (r.Throttled <= 0 || r.CPU <= 0) {
		t.Errorf("spun for %v with a limit of %d thousandths of a processor, and was throttled for %v of %v", spun, fewCPUMilli, r.Throttled, r.CPU)
	}
}
