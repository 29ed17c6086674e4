package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berth-eval/berth/plugins/agent/bundle"
)

// process is a process as described by the kernel.
type process struct {
	pid, parent int
	exe         string        // path of its program, in its own mount namespace
	cpu         time.Duration // and of the children that it waited for, in steps of 10 ms
}

// processes are processes by their PIDs.
type processes map[int]process

// family returns all descendants of a process. Those that end meanwhile may be
// missing.
func family(root int) processes {
	all := processes{}
	dirs, _ := filepath.Glob("/proc/[0-9]*") // a pattern that is right
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue
		}
		p := process{pid: pid}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) < 15 {
			continue
		}
		p.parent, _ = strconv.Atoi(fields[1])
		for _, s := range fields[11:15] {
			n, _ := strconv.ParseInt(s, 10, 64)
			p.cpu += time.Duration(n) * 10 * time.Millisecond
		}
		all[pid] = p
	}
	out := processes{}
	for pid, p := range all {
		for at := p; at.pid != root && at.pid > 1; at = all[at.parent] {
			if at.parent == root {
				p.exe, _ = os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
				out[pid] = p
				break
			}
		}
	}
	return out
}

// programs returns the processes that run a file of a bundle.
func (ps processes) programs() processes {
	out := processes{}
	for pid, p := range ps {
		if strings.HasPrefix(p.exe, bundle.Place+"/") {
			out[pid] = p
		}
	}
	return out
}

// cpu returns the processor time of the processes that are not in others.
func (ps processes) cpu(others processes) (sum time.Duration) {
	for pid, p := range ps {
		if _, is := others[pid]; !is {
			sum += p.cpu
		}
	}
	return sum
}
