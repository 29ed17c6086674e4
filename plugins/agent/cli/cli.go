// Package cli turns a command-line agent that runs inside the sandbox into a
// plugin. A declaration of fifty to a hundred lines is enough.
//
//	plugins.Serve(cli.Plugin(cli.Scaffold{
//		Name: "thing", Recipe: bundle.Recipe{Version: "1.2.3", NPM: []string{"thing@{version}"}},
//		Dialects: []model.Dialect{model.DialectOpenAIChat}, Knobs: []cli.Knob{cli.Effort},
//		Start:  func(r *cli.Run) (cli.Start, error) { return cli.Start{Argv: …, Stdin: r.Message}, nil },
//		Events: func(b *cli.Transcript) cli.Events { return &events{book: b} },
//	}))
//
// The package mounts the bundle, provides what the image lacks (a home, a
// shell, a folder for temporary files), writes the configuration into a folder
// of its own, starts the CLI for each message, and passes each line of output
// on as it is printed. The output is also kept in the attempt.
// docs/scaffolds.md explains how to add a CLI.
//
// The package must not know any CLI, and it installs and downloads nothing.
package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/sandbox"
)

// Places in the sandbox.
const (
	// Home is the agent's own folder, writable by its user, for configuration
	// and session files. The user's home is left alone because it may be part
	// of the task.
	Home = "/var/lib/berth-agent"
	// Bundle is the path of the bundle.
	Bundle = bundle.Place
	// Bash is the shell of the bundle, if the recipe contains one at this path.
	Bash = Bundle + "/bin/bash"
)

// Scaffold declares a CLI.
type Scaffold struct {
	Name    string
	Version string // of the declaration, for people
	Doc     string
	// Recipe describes the bundle; the zero value means that the image contains
	// the CLI.
	Recipe bundle.Recipe
	// Bundle is the name of the bundle, if it is that of another scaffold. Empty:
	// Name.
	Bundle string
	// Dialects are the API dialects that the CLI speaks, the preferred one
	// first.
	Dialects []model.Dialect
	// Knobs are the settings that the CLI supports. Any other setting is
	// refused, but for skill: the first message says where the skills are.
	Knobs []Knob
	// Transports are those of the MCP servers that the CLI supports, with the knob
	// MCP. Nil: stdio, sse and streamable-http.
	Transports []string
	// Efforts are the valid values of reasoning_effort, for a CLI that silently
	// ignores unknown ones. Nil: any value is passed on.
	Efforts []string
	// NoArgs says that the command is a driver, which takes no further
	// arguments: the setting args is refused.
	NoArgs bool
	// Logs are files and folders below Home to collect, such as session files.
	Logs []string
	// ModelName is the model name given to the CLI when the model has none.
	ModelName string
	// Refuse returns further reasons why the CLI cannot work with these
	// settings and request; nil refuses nothing.
	Refuse func(s *Settings, r agent.CheckRequest) []string
	// Anew says that every message begins a new conversation, because the CLI
	// cannot continue one. Several stages of a task cannot share a session then,
	// nor with Dialog, whose process ends with each stage.
	Anew bool
	// Prior says that Start uses Run.Prior.
	Prior bool
	// Start returns how to start the CLI for a message.
	Start func(r *Run) (Start, error)
	// Events returns a reader of the CLI's output for one message.
	Events func(b *Transcript) Events
	// Dialog replaces Events for a CLI that is started once per session and
	// receives its messages over a protocol. Start is called for every message,
	// but only its first result is used.
	Dialog func(b *Transcript) Dialog
}

// Events reads what a CLI prints. Calls come one after another.
type Events interface {
	// Line handles one line of standard output, without the line break. It must
	// ignore unknown lines: a later version of the CLI may print them.
	Line(line []byte)
	// End returns the result of the turn. An error that wraps agent.ErrModel
	// means that the model did not answer.
	End(e Exit) (agent.Yield, error)
}

// Plugin returns the plugin of a scaffold.
func Plugin(s Scaffold) plugins.Plugin {
	info := plugins.Info{Name: s.Name, Version: s.Version, Doc: s.Doc, Env: []string{bundle.EnvDir}}
	if s.Recipe.Version != "" {
		info.Bundle = &s.Recipe
	}
	return plugins.Agent(info, Settings{}, New(s))
}

// New returns the agent of a scaffold.
func New(s Scaffold) agent.Agent {
	return Of(func(c Settings) (Scaffold, Settings) { return s, c })
}

// Of returns an agent whose scaffold depends on its configuration.
func Of[C any](declared func(c C) (Scaffold, Settings)) agent.Agent {
	return &cliAgent{func(raw json.RawMessage) (s Scaffold, set Settings, err error) {
		c, err := agent.ReadConfig[C](raw)
		if err == nil {
			s, set = declared(c)
		}
		return s, set, err
	}}
}

type cliAgent struct {
	read func(json.RawMessage) (Scaffold, Settings, error)
}

// Check implements agent.Agent.
func (a *cliAgent) Check(_ context.Context, r agent.CheckRequest) (agent.Needs, error) {
	needs := agent.Needs{Shell: true}
	s, c, err := a.read(r.Config)
	if err != nil {
		return needs, err
	}
	needs.Dialects, needs.KeepsSession, needs.TakesPrior = s.Dialects, s.Dialog == nil && !s.Anew, s.Prior
	needs.Skills, needs.MCP = slices.Contains(s.Knobs, Skills), s.transports()
	for _, l := range s.Logs {
		needs.Logs = append(needs.Logs, Home+"/"+l)
	}
	if r.Role == agent.RoleUser {
		needs.Refusals = append(needs.Refusals, "it works in a sandbox, which a simulated user does not have: let another agent play the user")
	}
	needs.Refusals = append(needs.Refusals, c.refusals(&s)...)
	if s.Refuse != nil {
		needs.Refusals = append(needs.Refusals, s.Refuse(&c, r)...)
	}
	if s.Recipe.Version == "" && c.Version == "" {
		return needs, nil
	}
	b, err := s.open(&c)
	if err != nil {
		needs.Refusals = append(needs.Refusals, err.Error())
		return needs, nil //nolint:nilerr // reported as a refusal
	}
	needs.Bundles = []agent.Bundle{b.Mount()}
	return needs, nil
}

// transports returns those of the MCP servers that the CLI supports.
func (s *Scaffold) transports() []string {
	switch {
	case !slices.Contains(s.Knobs, MCP):
		return nil
	case s.Transports != nil:
		return s.Transports
	default:
		return []string{"stdio", "sse", "streamable-http"}
	}
}

// open finds the bundle of a session.
func (s *Scaffold) open(c *Settings) (bundle.Bundle, error) {
	version := s.Recipe.Version
	if c.Version != "" {
		version = c.Version
	}
	return bundle.Open(bundle.Dir(os.Getenv), cmp.Or(s.Bundle, s.Name), version)
}

// Open implements agent.Agent.
func (a *cliAgent) Open(_ context.Context, setup agent.Setup) (agent.Session, error) {
	s, c, err := a.read(setup.Config)
	if err != nil {
		return nil, err
	}
	m, ok := setup.Models["default"]
	switch {
	case len(s.Dialects) > 0 && !ok:
		return nil, fmt.Errorf("%w: no model was given: name one in the experiment, as model = model.NAME", agent.ErrBadConfig)
	case ok && m.Inside == "":
		return nil, fmt.Errorf("%w: the model cannot be reached from inside this sandbox", agent.ErrBadConfig)
	case ok && !slices.Contains(s.Dialects, m.Dialect):
		return nil, fmt.Errorf("%w: the model speaks %s, and %s speaks %v", agent.ErrBadConfig, m.Dialect, s.Name, s.Dialects)
	}
	if m.Name == "" {
		m.Name = s.ModelName
	}
	box, err := sandbox.Dial(setup.Shell)
	if err != nil {
		return nil, err
	}
	x := &session{scaffold: s, settings: c, setup: setup, model: m, shell: box, close: box.Close}
	x.book = newTranscript(m.Name, c.ReasoningEffort, setup.Scratch)
	x.book.agent.Name, x.book.agent.Version = s.Name, cmp.Or(s.Recipe.Version, x.book.agent.Version)
	if s.Dialog != nil {
		x.dialog = s.Dialog(x.book)
	}
	return x, nil
}

// errSteps stops a CLI that has used up its steps.
var errSteps = errors.New("no steps are left")
