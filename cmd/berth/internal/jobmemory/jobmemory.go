// Package jobmemory reads what the kernel says about the memory of the control group
// that this process is in, such as the job of a scheduler. Both versions of control
// groups are known.
//
// It must not change a group, and must not decide what a killed process means.
package jobmemory

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/berth-eval/berth/core/trial"
)

// Groups are the control groups whose limits of memory this process has. The zero
// value has none. It is safe for concurrent use.
type Groups struct {
	at    string   // where the file system of the groups is
	paths []string // below it: the own group first, and those around it
	v1    bool

	mu   sync.Mutex
	last trial.Kills
}

// Own returns the groups of this process.
func Own() *Groups { return find("/proc/self") }

// find reads files of proc, the folder of a process.
func find(proc string) *Groups {
	g := &Groups{}
	own := ""
	text, _ := os.ReadFile(filepath.Join(proc, "cgroup")) //nolint:errcheck // empty is unknown
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) != 3 || g.v1:
		case slices.Contains(strings.Split(parts[1], ","), "memory"):
			g.v1, own = true, parts[2]
		case parts[1] == "":
			own = parts[2]
		}
	}
	text, _ = os.ReadFile(filepath.Join(proc, "mountinfo")) //nolint:errcheck // as above
	for line := range strings.Lines(string(text)) {
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
		g.at = where[4]
		for path = filepath.Join("/", path); path != "/"; path = filepath.Dir(path) {
			g.paths = append(g.paths, path)
		}
		g.paths = append(g.paths, "/") // of a container; that of a machine has no limit
		break
	}
	return g
}

// Kills implements trial.JobMemory. Version 1 counts each ended process in its own
// group, whichever limit it met. So does version 2 in memory.events.local, which also
// counts there how often the limit of this very group was met. memory.events is of no
// use: a sandbox that meets its own limit is counted there as well.
func (g *Groups) Kills() trial.Kills {
	var k trial.Kills
	for i, group := range g.paths {
		events := g.events(group)
		if i == 0 {
			k.Processes = events["oom_kill"]
		}
		k.Shortages += events["oom"] // not in version 1
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// A file that could not be read once must not look like a rise afterwards.
	g.last = trial.Kills{Processes: max(g.last.Processes, k.Processes), Shortages: max(g.last.Shortages, k.Shortages)}
	return g.last
}

// events returns what the kernel has counted in one group, without those below it.
func (g *Groups) events(group string) map[string]int64 {
	if g.v1 {
		return numbers(filepath.Join(g.at, group, "memory.oom_control"))
	}
	return numbers(filepath.Join(g.at, group, "memory.events.local"))
}

// FreeMiB implements trial.JobMemory: the least that any group leaves. What files have
// in memory and the kernel can give up is free.
func (g *Groups) FreeMiB() (left int64, limited bool) {
	least := int64(math.MaxInt64)
	for _, group := range g.paths {
		limit, used, cached := g.usage(filepath.Join(g.at, group))
		if limit > 0 && limit < unlimited {
			least, limited = min(least, limit-used+cached), true
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

// usage returns the limit of a group, what its processes and files have in memory,
// and how much of this the kernel can give up, all in bytes. A limit of 0 is none.
func (g *Groups) usage(dir string) (limit, used, cached int64) {
	if g.v1 {
		return number(filepath.Join(dir, "memory.limit_in_bytes")), number(filepath.Join(dir, "memory.usage_in_bytes")),
			numbers(filepath.Join(dir, "memory.stat"))["total_inactive_file"]
	}
	return number(filepath.Join(dir, "memory.max")), number(filepath.Join(dir, "memory.current")),
		numbers(filepath.Join(dir, "memory.stat"))["inactive_file"]
}

// Limit implements trial.JobMemory. It is the lowest limit that was ever met. If none
// was, the machine has no memory left.
func (g *Groups) Limit() string {
	least, where := int64(math.MaxInt64), ""
	for _, group := range g.paths {
		dir := filepath.Join(g.at, group)
		limit, met := number(filepath.Join(dir, "memory.max")), g.events(group)["max"]
		if g.v1 {
			limit, met = number(filepath.Join(dir, "memory.limit_in_bytes")), number(filepath.Join(dir, "memory.failcnt"))
		}
		if limit > 0 && limit < least && met > 0 {
			least, where = limit, group
		}
	}
	if where == "" {
		return "the memory of this machine"
	}
	return fmt.Sprintf("the memory limit of this job (%d MiB, control group %s)", least>>20, where)
}

// number reads a file that has a number; 0 if it has none, such as "max".
func number(file string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0
	}
	return n
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
