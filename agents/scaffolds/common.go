package main

import (
	"encoding/json"
	"maps"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/agent/cli"
)

// npmArch is this machine's processor, as npm's packages call it.
var npmArch = map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]

// node adds what a CLI for Node.js needs: the runtime, which npm has as a
// package, the libraries of C and C++, and a shell for images without one.
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

// python adds what a program of PyPI needs: Debian's Python with its libraries,
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

// quote is a text as JSON has it, and TOML.
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

// status finds the status of an answer in what a CLI says of it.
var status = regexp.MustCompile(`(?i)(?:\b(?:status|error|code|http)\W{0,12}|^\W*)([45][0-9]{2})\b`)

// connection are the words of CLIs for a model that is not there.
var connection = regexp.MustCompile(`(?i)\bconnection|\beconnre|\benotfound|\betimedout|timed? ?out|stream (closed|disconnected|ended)|fetch failed|network|socket|unreachable|overloaded|service.?unavailable|internal.?server.?error|rate.?limit|too many requests`)

// refusal are the words of CLIs for a model that would not answer.
var refusal = regexp.MustCompile(`(?i)content.?filter|refus|safety|policy violation`)

// blamesModel says whether what a CLI says of a failed request speaks of the
// model, and not of what it was asked.
func blamesModel(why string) bool {
	if m := status.FindStringSubmatch(why); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			return cli.Blames(n)
		}
	}
	return connection.MatchString(why)
}

// since is what was used since the total was before, which becomes now. A total
// that went down began anew.
func since(before *agent.Claim, now agent.Claim) *agent.Claim {
	c := agent.Claim{
		Input: less(before.Input, now.Input), Cached: less(before.Cached, now.Cached), Output: less(before.Output, now.Output), Cost: less(before.Cost, now.Cost),
	}
	*before = now
	return &c
}

func less[N int64 | float64](before, now *N) *N {
	if now == nil || before == nil || *before > *now {
		return now
	}
	d := *now - *before
	return &d
}

// sum adds two claims; what one does not say is what the other does.
func sum(a, b agent.Claim) agent.Claim {
	return agent.Claim{Input: plus(a.Input, b.Input), Cached: plus(a.Cached, b.Cached), Output: plus(a.Output, b.Output), Cost: plus(a.Cost, b.Cost)}
}

func plus[N int64 | float64](a, b *N) *N {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	s := *a + *b
	return &s
}
