// Command brokenplugins serves plugins that each break their contract in one
// way, chosen by the name it is started under. It is what the conformance kits
// are tried on: a kit that passes one of them tests nothing.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/trajectory"
	"github.com/berth-eval/berth/plugins/verifier"
)

func main() {
	name := filepath.Base(os.Args[0])
	info := plugins.Info{Name: name, Version: "1.0.0", Doc: "Broken in one way, for trying the conformance kits."}
	none := verifier.Traits{Needs: verifier.NeedsNone}
	switch name {
	case "scribbler": // writes into the view
		plugins.Serve(plugins.Verifier(info, nil, none, verify(func(_ context.Context, r verifier.Request) (verifier.Verdict, error) {
			err := os.WriteFile(filepath.Join(r.View, "notes"), []byte("mine"), 0o600)
			return verifier.Verdict{Decision: verifier.Fail}, err
		})))
	case "fickle": // judges by what it was asked before
		var asked atomic.Int64
		plugins.Serve(plugins.Verifier(info, nil, none, verify(func(context.Context, verifier.Request) (verifier.Verdict, error) {
			decisions := []verifier.Decision{verifier.Fail, verifier.Scored}
			return verifier.Verdict{Decision: decisions[asked.Add(1)%2]}, nil
		})))
	case "generous": // passes what is not there
		plugins.Serve(plugins.Verifier(info, nil, none, verify(func(context.Context, verifier.Request) (verifier.Verdict, error) {
			return verifier.Verdict{Decision: verifier.Pass, Scores: map[string]verifier.Score{"reward": {Value: 1}}}, nil
		})))
	case "nan": // a score that is no number
		plugins.Serve(plugins.Verifier(info, nil, none, verify(func(context.Context, verifier.Request) (verifier.Verdict, error) {
			return verifier.Verdict{Decision: verifier.Scored, Scores: map[string]verifier.Score{"reward": {Value: math.Inf(1)}}}, nil
		})))
	case "particular": // judges only with a configuration; not broken
		plugins.Serve(plugins.Verifier(info, particular{}, none, verify(func(_ context.Context, r verifier.Request) (verifier.Verdict, error) {
			var c particular
			if err := config.Decode(r.Config, &c); err != nil || c.Word != "please" {
				return verifier.Verdict{Decision: verifier.Pass}, err
			}
			return verifier.Verdict{Decision: verifier.Fail}, nil
		})))
	case "rambler": // records steps that are none
		plugins.Serve(plugins.Agent(info, nil, rambler{}))
	case "forgetful": // loses sight of its sandboxes
		plugins.Serve(plugins.Environment(info, nil, &forgetful{box{running: map[string]*exec.Cmd{}}}))
	case "clinging": // removes nothing
		plugins.Serve(plugins.Environment(info, nil, &clinging{box{running: map[string]*exec.Cmd{}}}))
	case "stranded": // whose engine is not there; not broken, and cannot be tried
		plugins.Serve(plugins.Environment(info, nil, &stranded{}))
	case "unfurnished": // whose registry is not reached; not broken, and cannot be tried
		plugins.Serve(plugins.Environment(info, nil, &unfurnished{}))
	default:
		fmt.Fprintf(os.Stderr, "brokenplugins: no plugin is broken as %q\n", name)
		os.Exit(2)
	}
}

// particular is the configuration of a verifier that passes everything without
// the right word.
type particular struct {
	Word string `berth:"word" doc:"What makes it judge."`
}

type verify func(context.Context, verifier.Request) (verifier.Verdict, error)

func (v verify) Verify(ctx context.Context, r verifier.Request, _ func(string)) (verifier.Verdict, error) {
	return v(ctx, r)
}

type rambler struct{}

func (rambler) Check(context.Context, agent.CheckRequest) (agent.Needs, error) {
	return agent.Needs{}, nil
}

func (rambler) Open(context.Context, agent.Setup) (agent.Session, error) { return rambler{}, nil }

func (rambler) Turn(_ context.Context, _ agent.Message, r agent.Recorder) (agent.Yield, error) {
	step := trajectory.Step{Source: trajectory.User, Message: trajectory.Text("hm"), ToolCalls: []trajectory.ToolCall{{ID: "1", Name: "x", Arguments: json.RawMessage(`{}`)}}}
	return agent.Yield{End: agent.Done}, r.Step(step)
}

func (rambler) Close(context.Context, string, agent.Recorder) error { return nil }

// box is bubblewrap around the host's programs.
type box struct {
	mu      sync.Mutex
	running map[string]*exec.Cmd
}

func (*box) Check(context.Context, environment.Spec) (environment.Report, error) {
	return environment.Report{}, nil
}

const view = `--unshare-all --die-with-parent --as-pid-1 --clearenv --uid 0 --gid 0 --cap-add ALL --ro-bind /usr /usr
	--symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev --perms 1777 --tmpfs /tmp`

func (b *box) Create(_ context.Context, s environment.Spec) (environment.Sandbox, error) {
	if _, err := os.Stat(s.Control); err != nil {
		return environment.Sandbox{}, err
	}
	cmd := exec.Command("bwrap", append(strings.Fields(view), "--ro-bind", s.Control, "/berth", "/berth/sandboxd")...) //nolint:noctx // outlives the call
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return environment.Sandbox{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	id := strconv.Itoa(cmd.Process.Pid)
	b.running[id] = cmd
	return environment.Sandbox{ID: id, Image: environment.ImageFacts{Base: "host"}}, nil
}

func (b *box) end(id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	cmd := b.running[id]
	if cmd == nil {
		return nil
	}
	delete(b.running, id)
	_ = cmd.Process.Kill() // it may have ended
	if err := cmd.Wait(); err != nil {
		if _, ended := errors.AsType[*exec.ExitError](err); !ended {
			return err
		}
	}
	return nil
}

type forgetful struct{ box }

func (f *forgetful) Destroy(_ context.Context, id string) (environment.Remains, error) {
	return environment.Remains{}, f.end(id)
}

func (*forgetful) List(context.Context, string) ([]string, error) { return nil, nil }

type clinging struct{ box }

func (*clinging) Destroy(context.Context, string) (environment.Remains, error) {
	return environment.Remains{}, nil
}

func (c *clinging) List(context.Context, string) (ids []string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.running {
		ids = append(ids, id)
	}
	return ids, nil
}

type stranded struct{ clinging }

func (*stranded) Check(context.Context, environment.Spec) (environment.Report, error) {
	return environment.Report{Refusals: []environment.Problem{{Summary: "No engine runs here", Detail: "Start it."}}}, nil
}

type unfurnished struct{ clinging }

func (*unfurnished) Check(context.Context, environment.Spec) (environment.Report, error) {
	return environment.Report{}, nil
}

func (*unfurnished) Prepare(context.Context, environment.Image, json.RawMessage, func(string)) (environment.Image, error) {
	return environment.Image{}, errors.New("pull: no such host")
}
