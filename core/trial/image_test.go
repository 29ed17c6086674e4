package trial_test

import (
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/task"
)

// A program of the system that an agent replaced decides the verdict in the agent's own
// sandbox, and not in one of the image.
func TestTheSystemOfAnotherSandboxIsThatOfTheImage(t *testing.T) {
	t.Parallel()
	const (
		replaces = `echo 41 > /app/answer; rm /usr/bin/cat; printf '#!/bin/sh\necho 42\n' > /usr/bin/cat; chmod 755 /usr/bin/cat
mkdir -p /usr/local/sbin; echo mine > /usr/local/sbin/tool; echo 'echo hi' > /root/.bashrc; rm -rf /etc/profile.d; rm /usr/bin/nproc`
		installs = `printf '#!/bin/sh\necho 42\n' > /usr/local/bin/installed; chmod 755 /usr/local/bin/installed`
		says42   = `test "$(cat /app/answer)" = 42`
	)
	for _, tt := range []struct {
		name, does, tests string
		mode              task.Mode
		work              []string
		outcome           record.Outcome
		integrity         record.Integrity
		finding           string
	}{
		{"the damage", replaces, says42, task.ModeRestarted, nil, record.Passed, record.Exposed, "system_changed"},
		{"not there", replaces, says42, task.ModeImage, nil, record.Failed, record.Checked, "system_left"},
		{"as they were", replaces, `test "$(cat /app/answer)" = 41 && nproc && ! test -e /usr/local/sbin/tool && ! grep hi /root/.bashrc`, task.ModeImage, nil, record.Passed, record.Checked, "system_left"},
		{"a name that is not UTF-8", `echo mine > "$(printf '/usr/local/sbin/mine\377')"; echo 1 > "$(printf '/app/\377')"`, `test "$(cat /app/*)" = 1; for f in /usr/local/sbin/mine*; do test ! -e "$f" || exit 1; done`, task.ModeImage, nil, record.Passed, record.Checked, ""},
		{"nothing of the system", "mkdir -p /app/x /root/.cache && echo 42 > /app/answer", says42 + ` && test -d /root/.cache`, task.ModeImage, nil, record.Passed, record.Checked, ""},
		{"a folder is a link", `mkdir -p /app/evil; cp -a /usr/local/bin/. /app/evil; printf '#!/bin/sh\necho 42\n' > /app/evil/cat; chmod 755 /app/evil/cat
rm -rf /usr/local/bin; ln -s /app/evil /usr/local/bin; echo 41 > /app/answer`, says42 + ` || test -L /usr/local/bin`, task.ModeImage, nil, record.Failed, record.Checked, ""},
		{"a link into the tests in live", `ln -s /tests/answer /app/answer; ln -s ../tests /app/all`, `! test -L /app/all && ` + says42, task.ModeLive, nil, record.Failed, record.Checked, "set_aside"},
		{"a link into the tests", `ln -s /tests/answer /app/answer; ln -s ../tests /app/all`, `! test -L /app/all && ` + says42, task.ModeImage, nil, record.Failed, record.Checked, "set_aside"},
		{"a file in the place of the logs", `rm -rf /logs; echo 42 > /app/answer; echo > /logs`, says42, task.ModeImage, nil, record.Passed, record.Checked, "set_aside"},
		{"a home is a link", `cp -a /root /app/home; echo 'exit 0' > /app/home/.bashrc; rm -rf /root; ln -s /app/home /root`, `test ! -L /root`, task.ModeImage, nil, record.Passed, record.Checked, ""},
		{"what was installed", installs, `test "$(installed)" = 42`, task.ModeImage, nil, record.Failed, record.Checked, "system_left"},
		{"what was installed is work", installs, `test "$(installed)" = 42`, task.ModeImage, []string{"/usr/local"}, record.Passed, record.Checked, "work_declared"},
		{"a folder of work in live", installs, `test "$(installed)" = 42`, task.ModeLive, []string{"/usr/local"}, record.Passed, record.Checked, "work_declared"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, does(tt.does), tests(tt.tests))
			b.task.Mode, b.cell.Work = tt.mode, tt.work
			withTests(t, b, map[string]string{"answer": "42"})
			r := b.run(t.Context(), t)
			want(t, r, tt.outcome, record.Yielded, tt.integrity)
			if tt.finding != "" && !found(r, tt.finding) {
				t.Errorf("no finding %s: %s", tt.finding, pretty(r.Findings))
			}
		})
	}
}

// The healthcheck of the image's own files runs again, and what it leaves running is
// ended before the tests. One that the agent changed does not run beside them.
func TestAHealthcheckOfTheAgentDoesNotRun(t *testing.T) {
	t.Parallel()
	testlevel.Program(t, "pgrep", "procps")
	for name, tt := range map[string]struct{ does, check, tests, finding string }{
		"the agent's": {`printf '#!/bin/sh\necho > /app/forged\n' > /app/health; chmod 755 /app/health`, `test ! -e /app/health || /app/health`, `! test -e /app/forged`, "healthcheck_not_run"},
		"the task's":  {`true`, `echo > /app/checked; setsid sleep 543 > /dev/null 2>&1 &`, `test -e /app/checked && ! pgrep -x sleep`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, does(tt.does+"; rm -f /app/checked"), tests(tt.tests))
			b.task.Mode = task.ModeImage
			b.task.Healthcheck = &task.Healthcheck{Argv: []string{"sh", "-c", tt.check}, Interval: task.Duration(time.Second), Timeout: task.Duration(time.Minute), Retries: 1}
			r := b.run(t.Context(), t)
			want(t, r, record.Passed, record.Yielded, record.Checked)
			if tt.finding != "" && !found(r, tt.finding) {
				t.Errorf("no finding %s: %s", tt.finding, pretty(r.Findings))
			}
		})
	}
}
