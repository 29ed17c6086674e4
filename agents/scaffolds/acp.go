package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent/acp"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/agent/cli"
	"github.com/berth-eval/berth/plugins/config"
)

// ACP is the experiment's declaration of an agent that speaks the Agent Client
// Protocol.
type ACP struct {
	cli.Settings
	declaration

	Auth        string            `berth:"auth" doc:"Id of the authentication method to request (authMethods); absent: none."`
	Mode        string            `berth:"mode" doc:"Mode of the session, by its id; absent: the agent's own."`
	SetModel    string            `berth:"set_model" doc:"Model of the session, by its id; absent: the agent's own. \"{model}\" is the experiment's."`
	Options     map[string]string `berth:"options" doc:"Other options of the session, by their ids: reasoning_effort = \"{effort}\"."`
	Permissions map[string]string `berth:"permissions" doc:"Answers to requests for permission, by the kind of the call: allow or reject. Kinds are read, edit, delete, move, search, execute, think, fetch, switch_mode and other; \"default\" applies to kinds that are not listed, and is allow unless set."`
}

// kinds are the kinds of tool calls in the protocol.
var kinds = []string{"default", "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"}

// Validate implements config.Validator.
func (c *ACP) Validate() (ps []config.Problem) {
	ps = append(c.Settings.Validate(), c.problems(c.Version)...)
	for _, kind := range slices.Sorted(maps.Keys(c.Permissions)) {
		path := config.Path(fmt.Sprintf("permissions[%q]", kind))
		if !slices.Contains(kinds, kind) {
			ps = append(ps, config.Problem{Path: path, Summary: "no such kind of call", Detail: fmt.Sprintf("Got %q. There are %s.", kind, strings.Join(kinds, ", "))})
		}
		if is := c.Permissions[kind]; is != "allow" && is != "reject" {
			ps = append(ps, config.Problem{Path: path, Summary: "a permission is allow or reject", Detail: fmt.Sprintf("Got %q.", is)})
		}
	}
	return ps
}

// speaker returns the plugin of agents that speak the protocol.
func speaker() plugins.Plugin {
	return plugins.Agent(plugins.Info{
		Name: "acp", Version: version, Env: []string{bundle.EnvDir},
		Doc: "Any agent that speaks the Agent Client Protocol on its standard input and output, inside the sandbox, declared in the experiment.",
	}, ACP{}, cli.Of(func(c ACP) (cli.Scaffold, cli.Settings) { return c.scaffold(), c.Settings }))
}

func (c *ACP) scaffold() cli.Scaffold {
	texts := slices.Concat(slices.Collect(maps.Values(c.Env)), slices.Collect(maps.Values(c.Options)), []string{c.Mode, c.SetModel})
	s := c.declaration.scaffold("acp", texts...)
	s.Knobs = append(s.Knobs, cli.MCP)
	s.Start = func(r *cli.Run) (cli.Start, error) {
		return c.start(r, c.Command, c.Env, filler(r, "")), nil
	}
	s.Dialog = func(b *cli.Transcript) cli.Dialog { return acp.New(b, c.options()) }
	return s
}

func (c *ACP) options() acp.Options {
	return acp.Options{
		Auth: c.Auth, Allow: c.allows,
		Session: func(r *cli.Run) acp.Session {
			fill := filler(r, "")
			s := acp.Session{Mode: fill(c.Mode), Model: fill(c.SetModel), Config: map[string]string{}}
			for id, value := range c.Options {
				s.Config[id] = fill(value)
			}
			return s
		},
	}
}

func (c *ACP) allows(kind string) bool {
	is, ok := c.Permissions[kind]
	if !ok {
		is = c.Permissions["default"]
	}
	return is != "reject"
}
