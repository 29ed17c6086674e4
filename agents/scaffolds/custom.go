package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/agent/cli"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/model"
)

// declaration describes a program that Berth has no code for, as the experiment
// configures it.
type declaration struct {
	Bundle   string                `berth:"bundle" doc:"NAME@VERSION of its bundle; absent: the program is in the image."`
	Command  []string              `berth:"command" doc:"Program and arguments; required. Placeholders here and in all texts below: {model}, {url} (the model's address, without a path), {token}, {message}, {session}, {home} (its own folder), {bundle}, {workdir}, {effort}, {max_turns}, {system_prompt}."`
	Dialects []string              `berth:"dialects" doc:"API dialects that it speaks, the preferred one first: anthropic, openai, openai-chat, gemini. Absent: it uses no model."`
	Files    map[string]customFile `berth:"file" doc:"A file to write in {home}; the label is its path there."`
	Logs     []string              `berth:"logs" doc:"Files and folders in {home} to keep in the attempt."`
}

// Custom is a CLI that the experiment declares.
type Custom struct {
	cli.Settings
	declaration

	Continue []string      `berth:"continue" doc:"Program and arguments for further messages of the same session; absent: every message starts a new session, and stages cannot share one."`
	Message  string        `berth:"message" default:"stdin" enum:"stdin,argument" doc:"How it gets the message: on standard input, or as {message} in command, at most 128 KiB."`
	Format   string        `berth:"format" default:"text" enum:"text,jsonl" doc:"What it prints: text, or one JSON event per line."`
	Events   []customEvent `berth:"event" doc:"How to read an event, with format = \"jsonl\". Several blocks may read the same event."`
}

type customFile struct {
	Text string `berth:"text" required:"true" doc:"What is in it."`
}

type customEvent struct {
	Kind      string            `berth:"kind" required:"true" enum:"session,say,think,call,result,usage,done,failed" doc:"What it reports: the id of the session; a message or reasoning of the model; a tool call, or its result; the usage of a request; success; failure."`
	When      map[string]string `berth:"when" doc:"Which events: values by path. A path is names and numbers with dots between: message.content.0.text. \"*\" is any value."`
	Each      string            `berth:"each" doc:"Path of a list: the paths below, and those of where, begin at each of its elements."`
	Where     map[string]string `berth:"where" doc:"Which elements to read: values by path."`
	ID        string            `berth:"id" doc:"Path, from the event, of the id that all parts of one message of the model share."`
	Text      string            `berth:"text" doc:"Path of the text; for a session, of its id."`
	Call      string            `berth:"call" doc:"Path of the id of a call."`
	Name      string            `berth:"name" doc:"Path of the name of the tool."`
	Arguments string            `berth:"arguments" doc:"Path of the arguments."`
	Failed    string            `berth:"failed" doc:"Path of a value that is true if a call failed."`
	Input     []string          `berth:"input" doc:"Paths of the request's token counts, which are added, including cached tokens."`
	Cached    []string          `berth:"cached" doc:"Paths of the counts of cached tokens in the request."`
	Output    []string          `berth:"output" doc:"Paths of the token counts of the response."`
}

// problems returns the problems of a declaration. version is the version in the
// settings.
func (d *declaration) problems(version string) (ps []config.Problem) {
	if d.Bundle != "" {
		if _, v, err := bundle.Parse(d.Bundle); err != nil || v == "" {
			ps = append(ps, config.Problem{Path: "bundle", Summary: "bundle is not a NAME@VERSION", Detail: fmt.Sprintf("Got %q.", d.Bundle)})
		}
	}
	if version != "" {
		ps = append(ps, config.Problem{Path: "version", Summary: "version has no meaning here", Detail: "Write it into bundle: NAME@VERSION."})
	}
	for i, is := range d.Dialects {
		if !slices.Contains([]model.Dialect{model.DialectAnthropic, model.DialectOpenAI, model.DialectOpenAIChat, model.DialectGemini}, model.Dialect(is)) {
			ps = append(ps, config.Problem{Path: config.Path(fmt.Sprintf("dialects[%d]", i)), Summary: "no such dialect", Detail: fmt.Sprintf("Got %q. There are anthropic, openai, openai-chat and gemini.", is)})
		}
	}
	return ps
}

// scaffold returns the part that all declared programs share. texts are the
// texts with placeholders in addition to those of the declaration. If one
// contains the placeholder of a setting, the program supports that setting.
func (d *declaration) scaffold(name string, texts ...string) cli.Scaffold {
	s := cli.Scaffold{Name: name, Version: version, Logs: d.Logs, ModelName: "model"}
	if len(d.Command) == 0 {
		s.Refuse = func(*cli.Settings, agent.CheckRequest) []string {
			return []string{"no command is given: write command = [\"program\", \"argument\"] in its config, as docs/scaffolds.md shows"}
		}
	}
	if d.Bundle != "" {
		s.Name, s.Recipe.Version, _ = strings.Cut(d.Bundle, "@")
	}
	for _, is := range d.Dialects {
		s.Dialects = append(s.Dialects, model.Dialect(is))
	}
	texts = append(texts, d.Command...)
	for _, f := range d.Files {
		texts = append(texts, f.Text)
	}
	all := strings.Join(texts, " ")
	for word, knob := range map[string]cli.Knob{"{effort}": cli.Effort, "{max_turns}": cli.MaxTurns, "{system_prompt}": cli.SystemPrompt} {
		if strings.Contains(all, word) {
			s.Knobs = append(s.Knobs, knob)
		}
	}
	return s
}

// filler replaces placeholders with the values of a run.
func filler(r *cli.Run, message string) func(string) string {
	return strings.NewReplacer(
		"{model}", r.Model.Name, "{url}", r.URL, "{token}", r.Model.Token, "{message}", message, "{session}", r.Session, "{home}", cli.Home, "{bundle}", cli.Bundle,
		"{workdir}", r.Workdir, "{effort}", r.Settings.ReasoningEffort, "{max_turns}", strconv.FormatInt(r.Settings.MaxTurns, 10),
		"{system_prompt}", r.Settings.SystemPrompt,
	).Replace
}

// start starts command, with the files and variables of the declaration.
func (d *declaration) start(r *cli.Run, command []string, env map[string]string, fill func(string) string) cli.Start {
	start := cli.Start{Env: map[string]string{}}
	for _, a := range command {
		start.Argv = append(start.Argv, fill(a))
	}
	for k, v := range env {
		start.Env[k] = fill(v)
	}
	r.Settings.Env = nil // they are already added, with placeholders filled
	for _, path := range slices.Sorted(maps.Keys(d.Files)) {
		start.Files = append(start.Files, cli.File{Path: path, Data: fill(d.Files[path].Text)})
	}
	return start
}

// Validate implements config.Validator.
func (c *Custom) Validate() (ps []config.Problem) {
	ps = append(c.Settings.Validate(), c.problems(c.Version)...)
	if c.Message == "argument" && !strings.Contains(strings.Join(c.Command, " "), "{message}") {
		ps = append(ps, config.Problem{Path: "command", Summary: "the command does not get the message", Detail: "Put {message} into it, or write message = \"stdin\"."})
	}
	if (c.Format == "jsonl") != (len(c.Events) > 0) {
		ps = append(ps, config.Problem{Path: "format", Summary: "format and event do not match", Detail: "Events are read with format = \"jsonl\", and then there is at least one."})
	}
	return ps
}

// custom returns the plugin whose CLI the experiment declares.
func custom() plugins.Plugin {
	return plugins.Agent(plugins.Info{
		Name: "cli", Version: version, Env: []string{bundle.EnvDir},
		Doc: "Any CLI that runs inside the sandbox, declared in the experiment: its command, its files, and how its output is parsed.",
	}, Custom{}, cli.Of(func(c Custom) (cli.Scaffold, cli.Settings) { return c.scaffold(), c.Settings }))
}

func (c *Custom) scaffold() cli.Scaffold {
	s := c.declaration.scaffold("cli", append(slices.Collect(maps.Values(c.Env)), c.Continue...)...)
	s.Start, s.Anew = c.start, len(c.Continue) == 0
	s.Events = func(b *cli.Transcript) cli.Events {
		e := &customEvents{c: c, book: b}
		if slices.ContainsFunc(c.Events, func(v customEvent) bool { return v.Kind == "done" }) {
			e.end.Open = "it did not say that it is done"
		}
		return e
	}
	return s
}

func (c *Custom) start(r *cli.Run) (cli.Start, error) {
	message, stdin := "", r.Message
	if c.Message == "argument" {
		message, stdin = r.Message, ""
	}
	command := c.Command
	known := r.Session != "" || !strings.Contains(strings.Join(c.Continue, " "), "{session}")
	if r.Turn > 1 && known && len(c.Continue) > 0 {
		command = c.Continue
	}
	start := c.declaration.start(r, command, c.Env, filler(r, message))
	start.Stdin = stdin
	return start, nil
}

// customEvents reads the output in the way that the experiment declares.
type customEvents struct {
	c     *Custom
	book  *cli.Transcript
	lines []string // of standard output, unchanged
	end   cli.Ending
}

// Line implements cli.Events.
func (e *customEvents) Line(line []byte) {
	if e.c.Format == "text" {
		e.lines = append(e.lines, string(line))
		e.lines = e.lines[max(0, len(e.lines)-maxLines):]
		return
	}
	if !json.Valid(line) {
		return
	}
	root := gjson.ParseBytes(line)
	for i := range e.c.Events {
		v := &e.c.Events[i]
		if !fits(root, v.When) {
			continue
		}
		elements := []gjson.Result{root}
		if v.Each != "" {
			elements = at(root, v.Each).Array()
		}
		for _, element := range elements {
			if fits(element, v.Where) {
				e.read(v, at(root, v.ID).String(), element)
			}
		}
	}
}

// maxLines is how many lines at the end of a text become the message.
const maxLines = 2000

func (e *customEvents) read(v *customEvent, id string, from gjson.Result) {
	text, call := at(from, v.Text).String(), at(from, v.Call).String()
	switch v.Kind {
	case "session":
		e.book.Session = text
	case "say":
		e.book.Say(id, text)
	case "think":
		e.book.Think(id, text)
	case "call":
		e.book.Call(id, call, at(from, v.Name).String(), json.RawMessage(at(from, v.Arguments).Raw))
	case "result":
		e.book.Result(call, text, at(from, v.Failed).String() == "true")
	case "usage":
		e.book.Used(agent.Claim{Input: total(from, v.Input), Cached: total(from, v.Cached), Output: total(from, v.Output)})
	case "done":
		e.end.Message, e.end.Open = text, ""
	case "failed":
		e.end.Wrong = cmp.Or(text, unsaid)
	}
}

// End implements cli.Events.
func (e *customEvents) End(x cli.Exit) (agent.Yield, error) {
	if e.c.Format == "text" {
		e.book.Message(cli.Message{Text: strings.Join(e.lines, "\n")})
		e.book.Flush()
	}
	return e.book.Judge(x, e.end)
}

// at returns the value at a path: names and numbers with dots between.
func at(v gjson.Result, path string) gjson.Result {
	if path == "" {
		return gjson.Result{}
	}
	parts := strings.Split(path, ".")
	for i, p := range parts {
		parts[i] = gjson.Escape(p)
	}
	return v.Get(strings.Join(parts, "."))
}

// total adds the numbers at paths. It is nil if there are none.
func total(v gjson.Result, paths []string) (sum *int64) {
	for _, p := range paths {
		if n := at(v, p); n.Type == gjson.Number {
			if sum == nil {
				sum = new(int64)
			}
			*sum += n.Int()
		}
	}
	return sum
}

// fits reports whether v has the wanted values at their paths.
func fits(v gjson.Result, want map[string]string) bool {
	for path, value := range want {
		is := at(v, path).String()
		if value == "*" && is == "" || value != "*" && is != value {
			return false
		}
	}
	return true
}
