package orphan

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/testlevel"
)

// A helper of a removed container is killed; one of another container, and a
// program that only mentions the container, end as they like.
func TestHelpersOfARemovedContainerAreKilled(t *testing.T) {
	t.Parallel()
	sh := testlevel.Program(t, "sh", "dash")
	one, other := strings.Repeat("1a", 32), strings.Repeat("2b", 32)
	type helper struct {
		*exec.Cmd

		stdin io.Closer
		code  int
	}
	var all []helper
	for _, h := range []struct {
		name, id, env string
		code          int
	}{
		{"/usr/bin/conmon", one, "", -1},
		{"containerd-shim-runc-v2", one, "", -1},
		{"containerd-shim-runc-v2", other, "", 7},
		{"editor", one, "", 7},
		{"/usr/sbin/runc", "init", "_LIBCONTAINER_STATEDIR=/run/runc/" + one, -1},
		{"/usr/sbin/runc", "init", "_LIBCONTAINER_STATEDIR=/run/runc/" + other, 7},
		{"editor", "x", "_LIBCONTAINER_STATEDIR=/run/runc/" + one, 7},
	} {
		cmd := exec.CommandContext(t.Context(), sh)
		cmd.Args = []string{h.name, "-c", "read line; exit 7", "-id", h.id}
		cmd.Env = []string{h.env, "LAST=x"}
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, helper{cmd, in, h.code})
	}
	for _, id := range []string{"", "1a", strings.Repeat("z", 64), one} {
		End(id)
	}
	for _, h := range all {
		_ = h.stdin.Close()
		_ = h.Wait()
		if got := h.ProcessState.ExitCode(); got != h.code {
			t.Errorf("%q ended with %d, want %d", h.Args, got, h.code)
		}
	}
}

func TestProcessesOfAContainerAreKnownByTheirControlGroup(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("3c", 32)
	for text, want := range map[string]bool{
		"4:pids:/docker/" + id + "\n0::/\n":                           true,
		"0::/system.slice/docker-" + id + ".scope\n":                  true,
		"0::/user.slice/libpod-" + id + ".scope/container\n":          true,
		"0::/user.slice/libpod-conmon-" + id + ".scope\n":             true,
		"4:pids:/docker/" + strings.Repeat("4d", 32) + "\n0::/x" + id: false,
		"": false,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "cgroup"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := within(dir, id); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// A conmon whose runtime was killed ends, with the process that waits for its
// start. One whose runtime lives, has done its work, or is another user's tool
// goes on.
func TestAMonitorThatWaitsForAKilledRuntimeIsEnded(t *testing.T) {
	t.Parallel()
	sh := testlevel.Program(t, "bash", "bash") // whose exec can give a program another name
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "written"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const first = `(exec -a runc "$0" -c 'read line; exit 7' init <&3) &`
	for _, m := range []struct {
		name, script string // of the monitor
		args         []string
		code         int
	}{
		{"stuck", first, []string{"conmon", "-n", "orphan-test-1", "-p", dir + "/pid"}, -1},
		{"its runtime lives", `"$0" -c '` + strings.ReplaceAll(first, "'", `"`) + ` wait $!; exit $?' "$0" create &`, []string{"conmon", "-n", "orphan-test-2", "-p", dir + "/pid"}, 7},
		{"created", first, []string{"conmon", "-n", "orphan-test-3", "-p", dir + "/written"}, 7},
		{"somebody else's", first, []string{"conmon", "-n", "other-4", "-p", dir + "/pid"}, 7},
		{"no monitor", first, []string{"editor", "-n", "orphan-test-5", "-p", dir + "/pid"}, 7},
		{"its files are elsewhere", first, []string{"conmon", "-n", "orphan-test-6", "-p", dir + "/gone/pid"}, 7},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			in, out, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			ready, told, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer ready.Close()
			cmd := exec.CommandContext(t.Context(), sh)
			cmd.Args = append([]string{m.args[0], "-c", m.script + " echo >&4; wait $!; exit $?", sh}, m.args[1:]...)
			cmd.ExtraFiles = []*os.File{in, told}
			if err = cmd.Start(); err != nil {
				t.Fatal(err)
			}
			_ = told.Close()
			var b [1]byte
			if _, err = ready.Read(b[:]); err != nil && m.code != -1 { // which another of these tests may have ended
				t.Fatal(err)
			}
			for range 20 { // until the child is the program that it says
				EndStuck("orphan-test-")
				time.Sleep(10 * time.Millisecond) // the moment in which it becomes that program is met
			}
			_ = out.Close()
			_ = cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != m.code {
				t.Errorf("ended with %d, want %d", got, m.code)
			}
		})
	}
}
