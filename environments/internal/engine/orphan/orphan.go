// Package orphan kills processes of a container that a crashed engine left.
//
// End must not be used for a container that still exists. The package knows no
// engine's API and looks only at this machine's processes.
package orphan

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// helpers are the prefixes of the names of engine programs that are parents of
// containers.
var helpers = []string{"containerd-shim", "conmon"}

// End kills what a crashed engine left of a container that it has since
// removed: the parent of its PID 1, and everything in its control group (a
// restarted daemon forgets both). It kills only what this user may kill. id is
// the engine's, of 64 digits: nothing else on the machine has it.
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
		p, err := os.FindProcess(pid) // by descriptor, so that the checked process is the killed one
		if err != nil {
			continue
		}
		if dir := filepath.Join("/proc", f.Name()); helps(dir, id) || begins(dir, id) || within(dir, id) {
			_ = p.Kill() // another user's stays
		}
		_ = p.Release()
	}
}

// helps reports whether a process is the parent that an engine created for a
// container.
func helps(dir, id string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil || !bytes.Contains(text, []byte(id)) {
		return false
	}
	argv := strings.Split(string(text), "\x00")
	return slices.Contains(argv[1:], id) &&
		slices.ContainsFunc(helpers, func(name string) bool { return strings.HasPrefix(filepath.Base(argv[0]), name) })
}

// begins reports whether a process is a runtime that waits for the start of a
// container (runc init, crun init), which will never come.
func begins(dir, id string) bool {
	argv, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil || !bytes.HasSuffix(argv, []byte("\x00init\x00")) {
		return false
	}
	env, err := os.ReadFile(filepath.Join(dir, "environ"))
	return err == nil && bytes.Contains(env, []byte("/"+id+"\x00"))
}

// within reports whether a process is in the control group of a container.
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
