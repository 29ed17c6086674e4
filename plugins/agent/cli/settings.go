package cli

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/config"
)

// Settings are what experiments vary, under the same names for every CLI.
type Settings struct {
	Version         string            `berth:"version" doc:"Version of the bundle; absent: the one that this plugin was written for."`
	ReasoningEffort string            `berth:"reasoning_effort" doc:"How hard the model should think, in the CLI's own word; absent leaves it to the CLI."`
	MaxTurns        int64             `berth:"max_turns" default:"0" doc:"Replies of the model after which the CLI stops, where it has such a limit; 0: none. max_steps in per_trial bounds every agent."`
	SystemPrompt    string            `berth:"system_prompt" doc:"Text that is added to the CLI's own instructions."`
	AllowedTools    []string          `berth:"allowed_tools" doc:"The CLI's own tools that the model may use; absent: all."`
	DeniedTools     []string          `berth:"denied_tools" doc:"The CLI's own tools that the model may not use."`
	MCP             map[string]Server `berth:"mcp" doc:"An MCP server beside those of the task; the label is its name."`
	Skills          map[string]Skill  `berth:"skill" doc:"A skill beside those of the task; the label is its name."`
	Args            []string          `berth:"args" doc:"Further arguments for the CLI, after all others."`
	Env             map[string]string `berth:"env" doc:"Variables for the CLI, which win over those that Berth sets."`
}

// Server is an MCP server that an experiment adds.
type Server struct {
	Command []string          `berth:"command" doc:"Program and arguments, in the sandbox. Either this or url."`
	Env     map[string]string `berth:"env" doc:"Variables of the program."`
	URL     string            `berth:"url" doc:"Address of a server that speaks streamable HTTP."`
	Headers map[string]string `berth:"headers" doc:"Headers of each request to url."`
}

// Skill is a skill that an experiment adds.
type Skill struct {
	Text  string            `berth:"text" required:"true" doc:"SKILL.md: file(\"skills/NAME/SKILL.md\")."`
	Files map[string]string `berth:"files" doc:"Further files of the skill, by their path in its folder."`
}

// Knob is a setting that a CLI may support.
type Knob string

// The knobs, by the names of their settings.
const (
	Effort       Knob = "reasoning_effort"
	MaxTurns     Knob = "max_turns"
	SystemPrompt Knob = "system_prompt"
	AllowedTools Knob = "allowed_tools"
	DeniedTools  Knob = "denied_tools"
	MCP          Knob = "mcp"
	Skills       Knob = "skill"
)

// instead says what to do about a setting that a CLI does not support.
var instead = map[Knob]string{
	MaxTurns: ", or bound it with max_steps in per_trial", SystemPrompt: ", or let the task's instruction say it",
}

// Validate implements config.Validator.
func (s *Settings) Validate() (ps []config.Problem) {
	ps = config.NotNegative("max_turns", s.MaxTurns)
	for _, name := range slices.Sorted(maps.Keys(s.MCP)) {
		if m := s.MCP[name]; (len(m.Command) == 0) == (m.URL == "") {
			ps = append(ps, config.Problem{
				Path: config.Path(fmt.Sprintf("mcp[%q]", name)), Summary: "An MCP server is either a program or an address",
				Detail: fmt.Sprintf("%q has a command of %d words and the url %q. Write one of them.", name, len(m.Command), m.URL),
			})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Skills)) {
		for _, file := range append(slices.Sorted(maps.Keys(s.Skills[name].Files)), name) {
			if clean := path.Clean(file); clean != file || clean == "." || path.IsAbs(file) || strings.HasPrefix(clean, "..") {
				ps = append(ps, config.Problem{
					Path: config.Path(fmt.Sprintf("skill[%q]", name)), Summary: "A skill's file leads out of its folder", Detail: fmt.Sprintf("Got %q. Write a relative path.", file),
				})
			}
		}
	}
	return ps
}

// set returns the knobs that the configuration sets, without Skills: where a CLI has
// none, the first message says where they are.
func (s *Settings) set() (ks []Knob) {
	for k, on := range map[Knob]bool{
		Effort: s.ReasoningEffort != "", MaxTurns: s.MaxTurns > 0, SystemPrompt: s.SystemPrompt != "", AllowedTools: len(s.AllowedTools) > 0,
		DeniedTools: len(s.DeniedTools) > 0, MCP: len(s.MCP) > 0,
	} {
		if on {
			ks = append(ks, k)
		}
	}
	slices.Sort(ks)
	return ks
}

func (s *Settings) refusals(of *Scaffold) (out []string) {
	for _, k := range s.set() {
		if !slices.Contains(of.Knobs, k) {
			out = append(out, fmt.Sprintf("%s has nothing for %s: remove it%s", of.Name, k, instead[k]))
		}
	}
	if of.NoArgs && len(s.Args) > 0 {
		out = append(out, of.Name+" is started by a driver, which takes no arguments: remove args")
	}
	if e := s.ReasoningEffort; e != "" && len(of.Efforts) > 0 && !slices.Contains(of.Efforts, e) && slices.Contains(of.Knobs, Effort) {
		out = append(out, fmt.Sprintf("%s does not know the reasoning_effort %q, and would continue without it: write one of %s", of.Name, e, strings.Join(of.Efforts, ", ")))
	}
	return out
}

// servers returns the MCP servers of the task and of the settings.
func (s *Settings) servers(task []agent.Server) []agent.Server {
	out := slices.Clone(task)
	for _, name := range slices.Sorted(maps.Keys(s.MCP)) {
		m := s.MCP[name]
		server := agent.Server{Name: name, Transport: "streamable-http", URL: m.URL, Headers: m.Headers}
		if len(m.Command) > 0 {
			server = agent.Server{Name: name, Transport: "stdio", Command: m.Command[0], Args: m.Command[1:], Env: m.Env}
		}
		out = append(out, server)
	}
	for i := range out {
		if out[i] = launched(out[i]); out[i].Headers == nil {
			out[i].Headers = map[string]string{} // several CLIs leave out a server whose headers are null
		}
	}
	return out
}

// launched returns a server that is started through the program env, which sets
// its variables. Not every CLI can set variables itself, and every image has
// env.
func launched(s agent.Server) agent.Server {
	if len(s.Env) == 0 || s.Command == "" {
		return s
	}
	argv := []string{"env"}
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		argv = append(argv, k+"="+s.Env[k])
	}
	s.Args = append(append(argv[1:], s.Command), s.Args...)
	s.Command, s.Env = argv[0], nil
	return s
}

// skillFiles returns the skills of the settings as files below Home.
func (s *Settings) skillFiles() (files []File) {
	for _, name := range slices.Sorted(maps.Keys(s.Skills)) {
		k := s.Skills[name]
		files = append(files, File{Path: skillsDir + "/" + name + "/SKILL.md", Data: k.Text})
		for _, f := range slices.Sorted(maps.Keys(k.Files)) {
			files = append(files, File{Path: skillsDir + "/" + name + "/" + f, Data: k.Files[f]})
		}
	}
	return files
}

// skillsDir is the folder below Home for skills of the settings.
const skillsDir = "skills"
