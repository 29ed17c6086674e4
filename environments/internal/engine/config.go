package engine

import (
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/berth-eval/berth/plugins/config"
)

// Config is the body of an `environment` block of an engine.
type Config struct {
	Socket    string        `berth:"socket" doc:"Address of the engine's API on this machine, as unix:///path. Empty: where the engine's own tools look for it."`
	Base      string        `berth:"base" default:"docker.io/library/debian:bookworm-slim" doc:"Image for a task that names none."`
	Pull      string        `berth:"pull" default:"missing" enum:"missing,always,never" doc:"When an image is pulled: if it is missing, before every run, or never."`
	PullTime  time.Duration `berth:"pull_time" default:"15m" doc:"Longest pull of an image, where the task does not say."`
	BuildTime time.Duration `berth:"build_time" default:"30m" doc:"Longest build of an image, where the task does not say."`
	BuildNet  string        `berth:"build_network" default:"default" enum:"default,none" doc:"Network of the commands of a Dockerfile while it is built: that of the engine, from which they can reach services of this machine, or none."`
	Pids      int64         `berth:"pids" default:"4096" doc:"Most processes of a sandbox, where the task names no limit."`
	Mounts    []Mount       `berth:"mount" doc:"A folder of this machine that every sandbox sees, read-only; may be repeated."`
}

// Mount is a folder that the experiment adds.
type Mount struct {
	Source string `berth:"source" required:"true" doc:"Absolute path on this machine."`
	Target string `berth:"target" required:"true" doc:"Absolute path in the sandbox."`
}

// Validate has no side effects and reports every problem.
func (c *Config) Validate() (ps []config.Problem) {
	if c.Socket != "" {
		if _, err := SocketPath(c.Socket); err != nil {
			ps = append(ps, config.Problem{Path: "socket", Summary: "Not a socket of this machine", Detail: err.Error()})
		}
	}
	if c.Base == "" {
		ps = append(ps, config.Problem{Path: "base", Summary: "No base image", Detail: "Name an image, or leave base out."})
	}
	positive := func(name config.Path, d time.Duration) {
		if d <= 0 {
			ps = append(ps, config.Problem{Path: name, Summary: "Not a positive time", Detail: fmt.Sprintf("Got %s. Write a duration such as \"10m\".", d)})
		}
	}
	positive("pull_time", c.PullTime)
	positive("build_time", c.BuildTime)
	if c.Pids < 32 {
		ps = append(ps, config.Problem{
			Path: "pids", Summary: "Too few processes",
			Detail: fmt.Sprintf("Got %d. PID 1, its threads and a shell with a few children need 32; write 32 or more.", c.Pids),
		})
	}
	for i, m := range c.Mounts {
		at := config.Path("mount").Index(i)
		if !path.IsAbs(m.Source) {
			ps = append(ps, config.Problem{Path: at.Attr("source"), Summary: "Not an absolute path", Detail: fmt.Sprintf("Got %q.", m.Source)})
		}
		if !path.IsAbs(m.Target) {
			ps = append(ps, config.Problem{Path: at.Attr("target"), Summary: "Not an absolute path", Detail: fmt.Sprintf("Got %q.", m.Target)})
		}
	}
	return ps
}

// SocketPath is the path of an address of the form unix:///path. Any other is
// refused, with why.
func SocketPath(address string) (string, error) {
	if p, ok := strings.CutPrefix(address, "unix://"); ok && path.IsAbs(p) {
		return path.Clean(p), nil
	}
	return "", fmt.Errorf("%q is not a socket of this machine: a sandbox is reached through a folder of this machine that is mounted into it, "+
		"which an engine on another machine cannot do: run berth where the engine is, and write unix:///path/of/the.sock", address)
}
