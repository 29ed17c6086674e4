package main

import (
	"runtime"

	"github.com/berth-eval/berth/plugins/agent"
)

// npmArch is this machine's processor, as npm's packages call it.
var npmArch = map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]

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
