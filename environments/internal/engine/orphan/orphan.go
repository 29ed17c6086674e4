// Package orphan ends what an engine that crashed has left of a container.
//
// It must not be asked about a container that is still there, and knows no
// engine's API: it looks at this machine's processes alone.
package orphan

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// helpers are what the names of an engine's programs begin with that are
// parents of containers.
var helpers = []string{"containerd-shim", "conmon"}

// End ends what an engine that had crashed has left of a container that
// it has removed since: the parent of its PID 1, and whatever is in its control
// group (a daemon that starts again forgets both). It ends what this user may
// end. id is the engine's, of 64 digits: nothing else on the machine has it.
func End(id string) {
	if len(id) != 64 || strings.Trim(id, "0123456789abcdef") != "" {
		return
	}
	folders, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, f := range folders {
		pid, err := strconv.Atoi(f.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		p, err := os.FindProcess(pid) // by descriptor: what is looked at is what is ended
		if err != nil {
			continue
		}
		if dir := filepath.Join("/proc", f.Name()); helps(dir, id) || begins(dir, id) || within(dir, id) {
			_ = p.Kill() // another user's stays
		}
		_ = p.Release()
	}
}

// helps says whether a process is the parent that an engine made for a container.
func helps(dir, id string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil || !bytes.Contains(text, []byte(id)) {
		return false
	}
	argv := strings.Split(string(text), "\x00")
	return slices.Contains(argv[1:], id) &&
		slices.ContainsFunc(helpers, func(name string) bool { return strings.HasPrefix(filepath.Base(argv[0]), name) })
}

// begins says whether a process is a runtime's that waits for the start of a
// container, which nobody will give it (runc init, crun init).
func begins(dir, id string) bool {
	argv, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil || !bytes.HasSuffix(argv, []byte("\x00init\x00")) {
		return false
	}
	env, err := os.ReadFile(filepath.Join(dir, "environ"))
	return err == nil && bytes.Contains(env, []byte("/"+id+"\x00"))
}

// within says whether a process is in the control group of a container.
func within(dir, id string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		for part := range strings.SplitSeq(strings.TrimSpace(line), "/") {
			part = strings.TrimSuffix(part, ".scope")
			if part == id || strings.HasSuffix(part, "-"+id) {
				return true
			}
		}
	}
	return false
}
