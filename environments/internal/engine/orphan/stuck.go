package orphan

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// EndStuck kills the conmon of containers whose names begin with a prefix and which
// can never start: the runtime (runc) was killed while it created the container,
// for instance for lack of memory, and the container's first process waits for a
// start that will not come. conmon then waits for the last words of the runtime,
// whose pipe that process holds open. Podman waits for conmon, with a lock that
// stops every list of containers. When conmon has ended, Podman reports an error.
//
// A container that is being created is not touched: its runtime is alive, or has
// written its pid file.
func EndStuck(prefix string) {
	folders, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	waiting := map[int]int{} // first processes of containers by their parents
	var monitors []int
	for _, f := range folders {
		pid, err := strconv.Atoi(f.Name())
		if err != nil {
			continue
		}
		dir := filepath.Join("/proc", f.Name())
		argv, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		switch {
		case err != nil:
		case bytes.HasSuffix(argv, []byte("\x00init\x00")):
			waiting[parent(dir)] = pid
		case creates(argv, prefix):
			monitors = append(monitors, pid)
		}
	}
	for _, pid := range monitors {
		first, ok := waiting[pid] // its own child, so the runtime between them is gone
		// The runtime may have written the pid file and ended since the file was looked for.
		argv, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if !ok || err != nil || !creates(argv, prefix) {
			continue
		}
		for _, pid := range []int{pid, first} {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill() // another user's stays
				_ = p.Release()
			}
		}
	}
}

// creates reports whether a command line is that of a conmon whose container has a
// name with the prefix, and no pid file.
func creates(cmdline []byte, prefix string) bool {
	argv := strings.Split(string(cmdline), "\x00")
	if !strings.HasPrefix(filepath.Base(argv[0]), "conmon") || !strings.HasPrefix(after(argv, "-n"), prefix) {
		return false
	}
	file := after(argv, "-p")
	_, err := os.Lstat(filepath.Dir(file)) // else the file is not for us to see
	_, missing := os.Lstat(file)
	return err == nil && errors.Is(missing, fs.ErrNotExist)
}

// after is the argument after an option; empty: there is none.
func after(argv []string, option string) string {
	if i := slices.Index(argv, option); i >= 0 && i+1 < len(argv) {
		return argv[i+1]
	}
	return ""
}

// parent is the parent of a process; 0: it is gone.
func parent(dir string) int {
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "\nPPid:\t")
	text, _, _ := strings.Cut(rest, "\n")
	pid, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return pid
}
