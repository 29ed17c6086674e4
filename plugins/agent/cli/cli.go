// Package cli is what an agent that is a program of its own, a CLI that runs
// inside the sandbox, needs to be a plugin: a declaration of fifty to a hundred lines.
//
//	plugins.Serve(cli.Plugin(cli.Scaffold{
//		Name: "thing", Recipe: bundle.Recipe{Version: "1.2.3", NPM: []string{"thing@{version}"}},
//		Dialects: []model.Dialect{model.DialectOpenAIChat}, Knobs: []cli.Knob{cli.Effort},
//		Start:  func(r *cli.Run) (cli.Start, error) { return cli.Start{Argv: …, Stdin: r.Message}, nil },
//		Events: func(b *cli.Book) cli.Events { return &events{book: b} },
//	}))
//
// The helper mounts the bundle, sees what the image lacks (a home, a shell, a
// folder for temporary files), puts the configuration into a folder of its own,
// starts the CLI for each message, hands over what it prints line by line, as it
// is printed, and keeps it. docs/scaffolds.md says how one is added.
//
// It must not know any CLI, and nothing is installed or downloaded here.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/sandbox"
)

// Places in the sandbox.
const (
	// Home is a folder of the agent's own, which its user can write to: for
	// configuration and for the files of its sessions. The home of the user is
	// left alone, since it may be what the task is about.
	Home = "/var/lib/berth-agent"
	// Bundle is where the bundle is.
	Bundle = bundle.Place
	// Bash is a shell of the bundle, if the recipe has one under this name.
	Bash = Bundle + "/bin/bash"
)

// Scaffold declares a CLI.
type Scaffold struct {
	Name    string
	Version string // of the declaration, for people
	Doc     string
	// Recipe is what the bundle is made of; the zero value: the CLI is in the
	// image.
	Recipe bundle.Recipe
	// Dialects are what the CLI speaks, the best first.
	Dialects []model.Dialect
	// Knobs are the settings that the CLI has something for. Another that is
	// set is refused.
	Knobs []Knob
	// Efforts are the words for reasoning_effort, of a CLI that goes on without
	// one that it does not know; nil: it takes any, or complains itself.
	Efforts []string
	// NoArgs says that its command is a driver, for which further arguments mean
	// nothing: args is refused.
	NoArgs bool
	// Logs are files and folders below Home that are kept: sessions.
	Logs []string
	// ModelName is given to a CLI whose model has no name.
	ModelName string
	// Refuse says why it cannot work like this, beside the settings; nil
	// refuses nothing.
	Refuse func(s *Settings, r agent.CheckRequest) []string
	// Start says how the CLI is started for a message.
	Start func(r *Run) (Start, error)
	// Events begins to read what the CLI prints for a message.
	Events func(b *Book) Events
	// Dialog is for a CLI that is started once a session, and talked to: instead
	// of Events. Start is called each time, and counts the first time.
	Dialog func(b *Book) Dialog
}

// Events reads what a CLI prints. Calls come one after another.
type Events interface {
	// Line is one line of standard output, without its end. What it does not
	// know is nothing bad: the next version prints it.
	Line(line []byte)
	// End says what came of the turn. An error that wraps agent.ErrModel means
	// that the model did not answer.
	End(e Exit) (agent.Yield, error)
}

// Plugin is the plugin that a scaffold declares.
func Plugin(s Scaffold) plugins.Plugin {
	info := plugins.Info{Name: s.Name, Version: s.Version, Doc: s.Doc, Env: []string{bundle.EnvDir}}
	if s.Recipe.Version != "" {
		info.Bundle = &s.Recipe
	}
	return plugins.Agent(info, Settings{}, New(s))
}

// New is the agent that a scaffold declares.
func New(s Scaffold) agent.Agent {
	return Of(func(raw json.RawMessage) (Scaffold, Settings, error) {
		var c Settings
		if ps := config.Validate(raw, &c); len(ps) > 0 {
			return s, c, config.Problems(ps)
		}
		return s, c, nil
	})
}

// Of is an agent whose scaffold depends on its configuration. read is given an
// object, never nothing.
func Of(read func(json.RawMessage) (Scaffold, Settings, error)) agent.Agent { return &cliAgent{read} }

type cliAgent struct {
	read func(json.RawMessage) (Scaffold, Settings, error)
}

func (a *cliAgent) decode(raw json.RawMessage) (Scaffold, Settings, error) {
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	s, c, err := a.read(raw)
	if err != nil {
		err = fmt.Errorf("%w: %w", agent.ErrBadConfig, err)
	}
	return s, c, err
}

// Check implements agent.Agent.
func (a *cliAgent) Check(_ context.Context, r agent.CheckRequest) (agent.Needs, error) {
	needs := agent.Needs{Shell: true}
	s, c, err := a.decode(r.Config)
	if err != nil {
		return needs, err
	}
	needs.Dialects = s.Dialects
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
		return needs, nil //nolint:nilerr // it is in the refusals
	}
	needs.Bundles = []agent.Bundle{b.Mount()}
	return needs, nil
}

// open finds the bundle of a session.
func (s *Scaffold) open(c *Settings) (bundle.Bundle, error) {
	version := s.Recipe.Version
	if c.Version != "" {
		version = c.Version
	}
	return bundle.Open(bundle.Dir(os.Getenv), s.Name, version)
}

// Open implements agent.Agent.
func (a *cliAgent) Open(_ context.Context, setup agent.Setup) (agent.Session, error) {
	s, c, err := a.decode(setup.Config)
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
	x.book = newBook(m.Name, c.ReasoningEffort, setup.Scratch)
	if s.Dialog != nil {
		x.dialog = s.Dialog(x.book)
	}
	return x, nil
}

// errSteps ends a CLI that has used up its steps.
var errSteps = errors.New("no steps are left")
