package plugin

import (
	"os"
	"slices"
	"strings"
)

// passed are the variables of the host's environment that every plugin gets;
// no name here ever holds a secret. A plugin names further ones in Describe.
var passed = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR"}

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
	return append(environ(os.Environ(), extra), h.opts.Env...)
}
