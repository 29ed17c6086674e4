package plugin

import (
	"os"
	"slices"
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
	return slices.Concat(environ(os.Environ(), extra), h.opts.Env)
}
