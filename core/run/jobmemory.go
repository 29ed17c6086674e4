package run

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/core/trial"
)

// jobMemory are the control groups whose limits of memory this process has: its own
// one first, and those around it. It implements trial.JobMemory.
type jobMemory struct {
	at     string   // where the file system of the groups is
	groups []string // paths below it
	v1     bool
}

// memoryOfJob finds the groups in files of proc, a folder such as /proc/self. It has
// none if the kernel does not show them.
func memoryOfJob(proc string) *jobMemory {
	m := &jobMemory{}
	own := ""
	text, _ := os.ReadFile(filepath.Join(proc, "cgroup")) //nolint:errcheck // empty is unknown
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) != 3 || m.v1:
		case slices.Contains(strings.Split(parts[1], ","), "memory"):
			m.v1, own = true, parts[2]
		case parts[1] == "":
			own = parts[2]
		}
	}
	text, _ = os.ReadFile(filepath.Join(proc, "mountinfo")) //nolint:errcheck // as above
	for line := range strings.Lines(string(text)) {
		before, after, _ := strings.Cut(line, " - ")
		where, kind := strings.Fields(before), strings.Fields(after)
		if len(where) < 5 || len(kind) < 3 || (kind[0] == "cgroup2") == m.v1 || m.v1 && !slices.Contains(strings.Split(kind[2], ","), "memory") {
			continue
		}
		// A container sees only a part of the groups, as the root of its mount.
		path, seen := strings.CutPrefix(own, strings.TrimSuffix(where[3], "/"))
		if !seen || !filepath.IsAbs(path) && path != "" || strings.HasPrefix(path, "/..") {
			continue
		}
		m.at = where[4]
		for path = filepath.Join("/", path); path != "/"; path = filepath.Dir(path) {
			m.groups = append(m.groups, path)
		}
		m.groups = append(m.groups, "/") // of a container; that of a machine has no limit
		break
	}
	return m
}

// Kills implements trial.JobMemory. Version 1 counts each ended process in its own
// group, whichever limit it met. So does version 2 in memory.events.local, which also
// counts there how often the limit of this very group was met. memory.events is of no
// use: a sandbox that meets its own limit is counted there as well.
func (m *jobMemory) Kills() (k trial.Kills) {
	for i, group := range m.groups {
		dir := filepath.Join(m.at, group)
		if m.v1 {
			return trial.Kills{Processes: numbers(filepath.Join(dir, "memory.oom_control"))["oom_kill"]}
		}
		events := numbers(filepath.Join(dir, "memory.events.local"))
		if i == 0 {
			k.Processes = events["oom_kill"]
		}
		k.Shortages += events["oom"]
	}
	return k
}

// Limit implements trial.JobMemory. The lowest limit is the one that is met.
func (m *jobMemory) Limit() string {
	file, least, where := "memory.max", int64(math.MaxInt64>>1), ""
	if m.v1 {
		file = "memory.limit_in_bytes"
	}
	for _, group := range m.groups {
		text, err := os.ReadFile(filepath.Join(m.at, group, file))
		n, bad := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && bad == nil && n < least {
			least, where = n, group
		}
	}
	if where == "" {
		return "the memory of this machine"
	}
	return fmt.Sprintf("the memory limit of this job (%d MiB, control group %s)", least>>20, where)
}

// numbers reads a file of lines "name number".
func numbers(file string) map[string]int64 {
	all := map[string]int64{}
	text, err := os.ReadFile(file)
	if err != nil {
		return all
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			all[name] = n
		}
	}
	return all
}
