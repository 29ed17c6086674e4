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
// none of them holds a secret. A plugin requests others in Describe.
var passed = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", runtimedir.Env}

// environ selects the variables of all that a plugin gets if it requests extra.
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

// tuning returns settings for the Go runtime of a plugin; other languages
// ignore them. A plugin waits most of the time: with half of the processors, or
// as many as the user grants the host, it wakes fewer threads for a call and
// leaves more processor time to sandboxes. Its heap is only a few megabytes: by
// default the garbage collector would run every few trials and wake those
// threads.
func tuning() []string {
	procs := os.Getenv("GOMAXPROCS")
	if procs == "" {
		procs = strconv.Itoa(max(1, runtime.NumCPU()/2))
	}
	return []string{"GOMAXPROCS=" + procs, "GOGC=400"}
}
