// Package jobmemory reads what the kernel says about the memory of the control group
// that this process is in, such as the job of a scheduler. Both versions of control
// groups are known.
//
// It must not change a group, and must not decide what a killed process means.
package jobmemory

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Groups are the control groups whose limits of memory this process has. The zero
// value has none.
type Groups struct {
	dirs []string // the own group first, and those around it
	v1   bool
}

// Own returns the groups of this process.
func Own() *Groups { return find("/proc/self") }

// find reads files of proc, the folder of a process.
func find(proc string) *Groups {
	g := &Groups{}
	own := ""
	for line := range strings.Lines(read(filepath.Join(proc, "cgroup"))) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) != 3 || g.v1:
		case slices.Contains(strings.Split(parts[1], ","), "memory"):
			g.v1, own = true, parts[2]
		case parts[1] == "":
			own = parts[2]
		}
	}
	for line := range strings.Lines(read(filepath.Join(proc, "mountinfo"))) {
		before, after, _ := strings.Cut(line, " - ")
		where, kind := strings.Fields(before), strings.Fields(after)
		if len(where) < 5 || len(kind) < 3 || (kind[0] == "cgroup2") == g.v1 || g.v1 && !slices.Contains(strings.Split(kind[2], ","), "memory") {
			continue
		}
		// A container sees only a part of the groups, as the root of its mount.
		path, seen := strings.CutPrefix(own, strings.TrimSuffix(where[3], "/"))
		if !seen || !filepath.IsAbs(path) && path != "" || strings.HasPrefix(path, "/..") {
			continue
		}
		for path = filepath.Join("/", path); path != "/"; path = filepath.Dir(path) {
			g.dirs = append(g.dirs, filepath.Join(where[4], path))
		}
		g.dirs = append(g.dirs, where[4]) // of a container; that of a machine has no limit
		break
	}
	return g
}

// Kills implements trial.JobMemory. An ended process is counted in its own group,
// whichever limit was met.
func (g *Groups) Kills() int64 {
	if len(g.dirs) == 0 {
		return 0
	}
	file := "memory.events.local"
	if g.v1 {
		file = "memory.oom_control"
	}
	return number(filepath.Join(g.dirs[0], file), "oom_kill")
}

// FreeMiB implements trial.JobMemory: the least that any group leaves. What files have
// in memory and the kernel can give up is free.
func (g *Groups) FreeMiB() (left int64, limited bool) {
	limit, used, cached := "memory.max", "memory.current", "inactive_file"
	if g.v1 {
		limit, used, cached = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
	}
	least := int64(math.MaxInt64)
	for _, dir := range g.dirs {
		if most := number(filepath.Join(dir, limit), ""); most > 0 && most < unlimited {
			least = min(least, most-number(filepath.Join(dir, used), "")+number(filepath.Join(dir, "memory.stat"), cached))
			limited = true
		}
	}
	if !limited {
		return 0, false
	}
	return max(0, least) >> 20, true
}

// unlimited is more than any machine has. A group of version 1 without a limit has
// the largest number of pages as its limit.
const unlimited = 1 << 60

// number reads a number of a file of lines "name number", or with an empty name a file
// that has nothing else; 0 if there is none, such as "max".
func number(file, name string) int64 {
	for line := range strings.Lines(read(file)) {
		text, found := strings.CutPrefix(strings.TrimSpace(line), name)
		if n, err := strconv.ParseInt(strings.TrimPrefix(text, " "), 10, 64); found && err == nil {
			return n
		}
	}
	return 0
}

// read returns the content of a file; empty if it cannot be read.
func read(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return string(text)
}
