package engines

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// exporting runs an experiment whose run folder is on a disk that is too small for an
// artifact, makes the disk larger, and resumes the run. It has the disk in a mount
// namespace of its own.
const exporting = `
mount --make-rprivate / || exit 77
mount -t tmpfs -o size=3m none runs || exit 77
[ "$(stat -f -c %T runs)" = tmpfs ] || exit 77
"$1" run . --no-live; echo "the code is $?"
mount -o remount,size=64m runs || exit 77
"$1" resume last --no-live --require "passed = planned"; echo "then it is $?"
grep -ho '"run":"[0-9a-f]*"' runs/*/manifest.jsonl | head -n 1
`

// The disk is full while an artifact is exported from an engine. The attempt is not
// judged by a part of it: it has no result, the error names the disk, and the run is
// resumed when there is room.
func TestAFullDiskDuringTheExport(t *testing.T) {
	t.Parallel()
	testlevel.Program(t, "unshare", "util-linux")
	each(t, func(t *testing.T, m *machine) {
		p := newPlace(t, m.env())
		const big = "6291456"
		p.task("big", "", "head -c "+big+" /dev/urandom > /app/answer", "#!/bin/sh\n[ \"$(wc -c < /app/answer)\" = "+big+
			" ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n")
		toml := filepath.Join("tasks", "big", "task.toml")
		p.write(toml, "artifacts = [\"/app/answer\"]\n"+e2etest.Read(t, p.dir, toml))
		p.experiment(m.plugin, "", `verify = "separate"`)
		e2etest.Must(t, os.Mkdir(filepath.Join(p.dir, "runs"), 0o700))
		args := []string{"--mount", "sh", "-c", exporting, "sh", filepath.Join(bin, "berth")}
		if os.Getuid() != 0 {
			args = append([]string{"--user", "--map-current-user", "--keep-caps"}, args...)
		}
		cmd := exec.CommandContext(t.Context(), "unshare", args...)
		cmd.Dir, cmd.Env = p.dir, p.env
		b, err := cmd.CombinedOutput()
		out := string(b)
		if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == 77 {
			testlevel.Cannot(t, testlevel.NoNamespaces, out)
		}
		first, second, resumed := strings.Cut(out, "the code is ")
		if err != nil || !resumed || strings.HasPrefix(second, "0") || !strings.Contains(first, "no space left on device") || !strings.Contains(first, "resume with: berth resume") ||
			strings.Contains(first, "1 failed") || !strings.Contains(second, "then it is 0") {
			t.Errorf("%v:\n%s", err, out)
		}
		_, run, _ := strings.Cut(second, `"run":"`)
		run, _, _ = strings.Cut(run, `"`)
		if left, images := m.containers(t, run), m.snapshots(t, run); run == "" || len(left)+len(images) > 0 {
			t.Errorf("run %q left %v and %v", run, left, images)
		}
	})
}
