// Command human serves an agent that is a person: at a terminal, in a shell of the
// task's sandbox, or in a browser, on the task's surface. Limits, record and
// verification are those of any agent.
package main

import (
	"context"
	"errors"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/surface"
)

// Config is the body of an agent block's config.
type Config struct {
	Terminal string   `berth:"terminal" doc:"The person's terminal, such as /dev/pts/3: the command tty prints it. Run nothing else there. berth try and berth shell use their own terminal."`
	Surface  bool     `berth:"surface" default:"false" doc:"The person works on the task's surface, on a page in a browser of this machine, whose address is printed on the terminal. The log of the attempt names the file with the address, which only you can read."`
	Shell    []string `berth:"shell" doc:"Program that the terminal of the sandbox runs. Default: bash, or sh where there is none."`
	Words    bool     `berth:"words" default:"true" doc:"Ask for an answer to the user when the shell has ended."`
	Files    string   `berth:"files" doc:"Archive of kept files (files.tar.zst of an attempt) that is put into the sandbox first."`
}

func main() {
	plugins.Serve(plugins.Agent(plugins.Info{
		Name: "human", Version: "1.0.0",
		Doc: "A person who works on the task: in a terminal of the sandbox, or on the surface in a browser. For a human baseline.",
	}, Config{}, human{}))
}

type human struct{}

// Check implements agent.Agent.
func (human) Check(_ context.Context, r agent.CheckRequest) (agent.Needs, error) {
	c, err := agent.ReadConfig[Config](r.Config)
	needs := agent.Needs{Shell: !c.Surface, Terminal: !c.Surface, Surface: c.Surface, KeepsSession: true}
	if err != nil {
		return needs, err
	}
	if r.Role == agent.RoleUser {
		needs.Refusals = append(needs.Refusals, "it cannot play a simulated user: let another agent do that")
	}
	if c.Terminal == "" && !c.Surface {
		needs.Refusals = append(needs.Refusals, "it has no terminal of a person: run the command tty in a free terminal and write its answer as config { terminal = \"/dev/pts/…\" }, or use berth shell")
	}
	if c.Surface && (len(c.Shell) > 0 || c.Files != "") {
		needs.Refusals = append(needs.Refusals, "shell and files are about a terminal in the sandbox, and surface is given: leave one of them out")
	}
	if c.Terminal != "" {
		t, failed := open(c.Terminal)
		if failed != nil {
			needs.Refusals = append(needs.Refusals, failed.Error())
		} else {
			t.close()
		}
	}
	return needs, nil
}

// Open implements agent.Agent.
func (human) Open(ctx context.Context, s agent.Setup) (agent.Session, error) {
	c, err := agent.ReadConfig[Config](s.Config)
	if err != nil {
		return nil, err
	}
	one := &session{c: c, setup: s}
	if c.Surface {
		if one.on, err = surface.Dial(s.Surface); err == nil {
			err = one.offered(ctx)
		}
	} else if one.box, err = sandbox.Dial(s.Shell); err == nil {
		err = one.begin(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, one.end())
	}
	return one, nil
}

// session is one person at work. Exactly one of box and on is set.
type session struct {
	c     Config
	setup agent.Setup
	steps int64 // so far

	box *sandbox.Client
	shell
	on *surface.Client
	page
}

// Turn implements agent.Session.
func (s *session) Turn(ctx context.Context, m agent.Message, r agent.Recorder) (agent.Yield, error) {
	if s.on != nil {
		return s.play(ctx, m, r)
	}
	return s.work(ctx, m, r)
}

// Close implements agent.Session.
func (s *session) Close(context.Context, string, agent.Recorder) error { return s.end() }

func (s *session) end() (err error) {
	if s.on != nil {
		err = s.on.Close()
	}
	if s.box != nil {
		err = errors.Join(s.box.Close(), s.cast.Close())
	}
	return err
}

// spent reports whether the steps that the session may have are used up.
func (s *session) spent() bool {
	return s.setup.Limits.MaxSteps > 0 && s.steps >= s.setup.Limits.MaxSteps
}
