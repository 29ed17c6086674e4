// Package remains reads what sandboxes have used from their control groups. It must
// not change a group.
package remains

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berth-eval/berth/plugins/environment"
)

// Of reads the control groups of a container, found by its PID 1. alive is
// false if PID 1 has ended, because its groups are then gone. A process that
// shares its group with others (rootless engines on version 1) has no group of
// its own, and its usage is unknown.
func Of(pid int) (r environment.Remains, alive bool) {
	if pid <= 0 {
		return r, false
	}
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return r, false
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 || !ownGroup(parts[2]) {
			continue
		}
		for c := range strings.SplitSeq(parts[1], ",") {
			group1(&r, c, filepath.Join("/sys/fs/cgroup", c, parts[2]))
		}
		if parts[1] == "" {
			group2(&r, filepath.Join("/sys/fs/cgroup", parts[2]))
		}
	}
	return r, true
}

// ownGroup says whether a control group is one container's: engines name it by
// the container's ID.
func ownGroup(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		part = strings.TrimSuffix(part, ".scope")
		for _, prefix := range []string{"docker-", "libpod-"} {
			part = strings.TrimPrefix(part, prefix)
		}
		if len(part) == 64 && strings.Trim(part, "0123456789abcdef") == "" {
			return true
		}
	}
	return false
}

// group1 reads a group of version 1.
func group1(r *environment.Remains, controller, dir string) {
	switch controller {
	case "memory":
		r.PeakMemoryMiB = MiB(number(dir, "memory.max_usage_in_bytes"))
		r.OOMKills = field(dir, "memory.oom_control", "oom_kill")
	case "cpuacct":
		r.CPU = time.Duration(number(dir, "cpuacct.usage"))
	case "cpu":
		r.Throttled = time.Duration(field(dir, "cpu.stat", "throttled_time"))
	}
}

// Group reads a control group of version 2.
func Group(dir string) (r environment.Remains) {
	group2(&r, dir)
	return r
}

func group2(r *environment.Remains, dir string) {
	if peak := number(dir, "memory.peak"); peak > 0 {
		r.PeakMemoryMiB = MiB(peak)
	}
	if n := field(dir, "memory.events", "oom_kill"); n > 0 {
		r.OOMKills = n
	}
	if n := field(dir, "cpu.stat", "usage_usec"); n > 0 && r.CPU == 0 {
		r.CPU = time.Duration(n) * time.Microsecond
	}
	if n := field(dir, "cpu.stat", "throttled_usec"); n > 0 {
		r.Throttled = time.Duration(n) * time.Microsecond
	}
}

// MiB returns a size in MiB, rounded up.
func MiB(bytes int64) int64 { return (bytes + 1<<20 - 1) >> 20 }

// number returns the number in a file, or 0.
func number(dir, name string) int64 {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// field is the number beside a word in a file.
func field(dir, name, word string) int64 {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), " ")
		if k == word {
			if n, err := strconv.ParseInt(v, 10, 64); err == nil {
				return n
			}
		}
	}
	return 0
}
