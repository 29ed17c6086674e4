package trial_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/task"
)

// A program of the system that an agent replaced decides the verdict in a
// snapshot, and not with the system files of the image.
func TestSystemFilesOfASnapshotAreThoseOfTheImage(t *testing.T) {
	t.Parallel()
	const replaces = `echo 41 > /app/answer; rm /usr/bin/cat; printf '#!/bin/sh\necho 42\n' > /usr/bin/cat; chmod 755 /usr/bin/cat
mkdir -p /usr/local/sbin; echo mine > /usr/local/sbin/tool; echo 'echo hi' > /root/.bashrc; rm -rf /etc/profile.d; rm /usr/bin/nproc`
	for _, tt := range []struct {
		name, does, tests string
		image             bool
		outcome           record.Outcome
		integrity         record.Integrity
		back              []string
	}{
		{"the damage", replaces, `test "$(cat /app/answer)" = 42`, false, record.Passed, record.Exposed, nil},
		{"put back", replaces, `test "$(cat /app/answer)" = 42`, true, record.Failed, record.Checked, []string{"/usr/bin/cat", "/usr/bin/nproc", "/usr/local/sbin/tool"}},
		{"as they were", replaces, `test "$(cat /app/answer)" = 41 && nproc && ! test -e /usr/local/sbin/tool && ! grep hi /root/.bashrc`, true, record.Passed, record.Checked, nil},
		{"a name that is not UTF-8", `echo mine > "$(printf '/usr/local/sbin/mine\377')"`, `for f in /usr/local/sbin/mine*; do test ! -e "$f" || exit 1; done`, true, record.Passed, record.Checked, nil},
		{"nothing of the system", "mkdir -p /app/x /root/.cache && echo 42 > /app/answer", `test "$(cat /app/answer)" = 42 && test -d /root/.cache`, true, record.Passed, record.Checked, nil},
		{"a folder is a link", `mkdir -p /app/evil; cp -a /usr/local/bin/. /app/evil; printf '#!/bin/sh\necho 42\n' > /app/evil/cat; chmod 755 /app/evil/cat
rm -rf /usr/local/bin; ln -s /app/evil /usr/local/bin; echo 41 > /app/answer`, `test "$(cat /app/answer)" = 42 || test -L /usr/local/bin`, true, record.Failed, record.Exposed, []string{"/usr/local/bin"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if mounts, _ := os.ReadFile("/proc/self/mountinfo"); tt.name == "a folder is a link" && bytes.Contains(mounts, []byte(" /usr/local/")) {
				t.Skip("this machine has a mount below /usr/local, so that nobody can replace the folders beside it")
			}
			b := newBench(t, does(tt.does), tests(tt.tests))
			b.task.Mode = task.ModeSnapshot
			if tt.image {
				b.cell.System = cell.SystemImage
			}
			r := b.run(t.Context(), t)
			want(t, r, tt.outcome, record.Yielded, tt.integrity)
			if tt.image != (r.Stages[0].System != nil) {
				t.Fatalf("stage %s", pretty(r.Stages[0]))
			}
			for _, name := range tt.back {
				if !slices.Contains(r.Stages[0].System.PutBack, name) || !found(r, "system_put_back") {
					t.Errorf("%s was not put back: %s", name, pretty(r.Stages[0].System))
				}
			}
			if strings.HasPrefix(tt.name, "nothing") && len(r.Stages[0].System.PutBack) > 0 {
				t.Errorf("put back: %s", pretty(r.Stages[0].System))
			}
		})
	}
}
