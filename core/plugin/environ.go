package plugin

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/plugins/runtimedir"
)

// passed are the variables of the host's environment that every plugin gets;
// no name here ever holds a secret. A plugin names further ones in Describe.
var passed = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", runtimedir.Env}

// environ is what of all a plugin gets that named extra.
func environ(all, extra []string) []string {
	var env []string
	for _, kv := range all {
		name, _, ok := strings.Cut(kv, "=")
		if ok && (slices.Contains(passed, name) || slices.Contains(extra, name) ||
			strings.HasPrefix(name, "LC_") || strings.HasPrefix(name, "XDG_")) {
			env = append(env, kv)
		}
	}
	return env
}

func (h *Host) environ(extra []string) []string {
	return slices.Concat(environ(os.Environ(), extra), tuning(), h.opts.Env)
}

// tuning is for the Go runtime of a plugin, which others do not read. A plugin
// waits most of the time: with half of the processors, or as many as the user
// says the host may use, it wakes fewer threads for a call, and sandboxes get
// the rest. Its heap is small, a few megabytes: the default collects it every few
// trials, with all that this wakes up.
func tuning() []string {
	procs := os.Getenv("GOMAXPROCS")
	if procs == "" {
		procs = strconv.Itoa(max(1, runtime.NumCPU()/2))
	}
	return []string{"GOMAXPROCS=" + procs, "GOGC=400"}
}
