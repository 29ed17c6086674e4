package command

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// The built program refuses every broken experiment of cmd/berth/internal/config with exit
// code 2, reports at least as many problems as the golden text, and leaves no
// process behind.
func TestValidateOfBrokenExperiments(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(tree.Root, "cmd", "berth", "internal", "config", "testdata", "broken", "*.hcl"))
	if err != nil || len(files) < 25 {
		t.Fatalf("%d broken experiments, %v", len(files), err)
	}
	dir := t.TempDir()
	for _, file := range files {
		name := filepath.Base(file)
		cmd, out, stderr := tree.Command(t, dir, "validate", file)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		r := ended(t, cmd, cmd.Run(), out, stderr)
		if r.code != 2 || r.out != "" || !strings.Contains(r.stderr, "Error: ") {
			t.Errorf("%s: code %d\nstdout: %s\nstderr: %s", name, r.code, r.out, r.stderr)
		}
		if left := session(t, cmd.Process.Pid); len(left) > 0 {
			t.Errorf("%s: left running: %q", name, left)
		}
		v := answer[types.Validate](t, berth(t, dir, "validate", file, "--json"), "cli-validate")
		if v.Valid || len(v.Diagnostics) == 0 {
			t.Errorf("%s: as JSON: %+v", name, v)
		}
	}
}

// session lists the processes of a session, by its leader.
func session(t *testing.T, leader int) []string {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	e2etest.Must(t, err)
	var found []string
	for _, s := range stats {
		b, err := os.ReadFile(s)
		if err != nil {
			continue // it ended
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		if f := strings.Fields(rest); len(f) > 3 && f[0] != "Z" && f[3] == strconv.Itoa(leader) {
			found = append(found, string(b))
		}
	}
	return found
}
