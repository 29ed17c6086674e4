package main

import (
	"encoding/json"
	"maps"
	"reflect"
	"runtime"
	"strings"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/bundle"
)

// npmArch is this machine's processor in the names of npm packages.
var npmArch = map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]

// node adds what a CLI for Node.js needs: the runtime, which is an npm package,
// the libraries of C and C++, and a shell for images without one.
func node(r bundle.Recipe) bundle.Recipe {
	runtime := "node-linux-" + npmArch
	r.NPM = append(r.NPM, runtime+"@24.21.0")
	r.Debian = append(r.Debian, "libc6", "libstdc++6", "libgcc-s1", "bash-static")
	links := map[string]string{"node": "npm/node_modules/" + runtime + "/bin/node", "bash": "usr/bin/bash-static"}
	maps.Copy(links, r.Links)
	r.Links = links
	r.Drop = append(r.Drop, "npm/node_modules/"+runtime+"/{include,share,lib}", "npm/node_modules/**/*.{map,md,markdown,d.ts,d.mts,d.cts}")
	return r
}

// python adds what a PyPI program needs: Debian's Python with its libraries,
// and a shell for images without one.
func python(r bundle.Recipe) bundle.Recipe {
	r.Debian = append(
		r.Debian, "python3.13-minimal", "libpython3.13-minimal", "libpython3.13-stdlib", "libc6", "libstdc++6", "libgcc-s1", "libexpat1", "zlib1g", "libssl3t64",
		"libzstd1", "libffi8", "liblzma5", "libbz2-1.0", "libsqlite3-0", "libuuid1", "libncursesw6", "libtinfo6", "libreadline8t64", "bash-static",
	)
	links := map[string]string{"bash": "usr/bin/bash-static", "python": "usr/bin/python3.13"}
	maps.Copy(links, r.Links)
	r.Links = links
	return r
}

// quote returns a text in quotes that are valid in JSON and TOML.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(b)
}

func quotes(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = quote(s)
	}
	return strings.Join(out, ", ")
}

// Messages about how a turn ended.
const (
	midway   = "it ended in the middle of a turn"
	noResult = "it ended without a result"
	unsaid   = "it reported a failure"
)

// given returns m without empty strings, lists and maps, and without the number
// 0.
func given(m map[string]any) map[string]any {
	maps.DeleteFunc(m, func(_ string, v any) bool {
		switch is := reflect.ValueOf(v); is.Kind() {
		case reflect.Map, reflect.Slice, reflect.String:
			return is.Len() == 0
		default:
			return v == int64(0)
		}
	})
	return m
}

// mcpServers returns servers in the form that most CLIs share. remote is the
// CLI's name for a server that speaks streamable HTTP.
func mcpServers(list []agent.Server, remote string) map[string]map[string]any {
	out := map[string]map[string]any{}
	for _, s := range list {
		switch s.Transport {
		case "stdio":
			out[s.Name] = map[string]any{"command": s.Command, "args": append([]string{}, s.Args...)}
		case "sse":
			out[s.Name] = map[string]any{"type": "sse", "url": s.URL, "headers": s.Headers}
		default:
			out[s.Name] = map[string]any{"type": remote, "url": s.URL, "headers": s.Headers}
		}
	}
	return out
}
