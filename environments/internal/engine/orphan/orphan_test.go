package orphan

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
