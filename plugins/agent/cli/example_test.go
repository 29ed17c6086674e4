package cli_test

import (
	"fmt"
	"strings"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/agent/cli"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// thing declares a CLI of npm that prints an event a line. main is one line:
// plugins.Serve(cli.Plugin(thing())).
func thing() cli.Scaffold {
	return cli.Scaffold{
		Name: "thing", Version: "1.0.0", Doc: "Thing, unmodified, inside the sandbox.",
		Recipe: bundle.Recipe{
			Version: "1.2.3", NPM: []string{"thing-linux-x64@{version}"}, Debian: []string{"libc6", "bash-static"},
			Links: map[string]string{"thing": "npm/node_modules/thing-linux-x64/bin/thing", "bash": "usr/bin/bash-static"},
		},
		Dialects: []model.Dialect{model.DialectOpenAIChat}, ModelName: "model",
		Knobs: []cli.Knob{cli.Effort, cli.MaxTurns, cli.SystemPrompt, cli.AllowedTools},
		Logs:  []string{"thing/sessions"},
		Start: func(r *cli.Run) (cli.Start, error) {
			s := r.Settings
			start := cli.Start{
				Argv:  []string{cli.Bundle + "/bin/thing", "--print", "--no-update"},
				Stdin: r.Message, Env: map[string]string{"THING_HOME": cli.Home + "/thing", "THING_TOKEN": r.Model.Token},
			}
			start.JSON("thing/config.json", map[string]any{"url": r.BaseURL(), "telemetry": false})
			start.Options(
				"--model", r.Model.Name, "--resume", r.Session, "--effort", s.ReasoningEffort, "--max-turns", r.MaxTurns(),
				"--system-file", start.Text("thing/system.md", s.SystemPrompt), "--tools", strings.Join(s.AllowedTools, ","),
			)
			return start, nil
		},
		Events: func(b *cli.Transcript) cli.Events { return &events{b, cli.Ending{Open: "it ended without a result"}} },
	}
}

// events reads what it prints for one message.
type events struct {
	book *cli.Transcript
	end  cli.Ending
}

func (e *events) Line(line []byte) {
	var v struct {
		Type    string      `json:"type"`
		Session string      `json:"session"`
		Message cli.Message `json:"message"` // another form would be a struct of its own
		Call    string      `json:"call"`
		Output  string      `json:"output"`
		Error   string      `json:"error"`
		Turns   bool        `json:"out_of_turns"`
	}
	if !cli.Parse(line, &v) {
		return
	}
	switch v.Type {
	case "start":
		e.book.Session = v.Session
	case "answer":
		e.book.Message(v.Message)
	case "tool":
		e.book.Result(v.Call, v.Output, v.Error != "")
	case "end":
		e.end = cli.Ending{Wrong: v.Error, Limit: v.Turns}
	}
}

func (e *events) End(x cli.Exit) (agent.Yield, error) { return e.book.Judge(x, e.end) }

// steps prints what is recorded.
type steps struct{}

func (steps) Step(s trajectory.Step) error {
	fmt.Printf("step: %s, %d calls\n", s.Message.Text, len(s.ToolCalls))
	return nil
}
func (steps) Log(string) error      { return nil }
func (steps) Artifact(string) error { return nil }

// A whole declaration, and what it makes of what its CLI has printed.
func ExampleScaffold() {
	printed := `{"type":"start","session":"s-1"}
{"type":"answer","message":{"text":"I look.","calls":[{"id":"c","name":"sh","arguments":{"command":"ls"}}],"usage":{"input_tokens":9,"output_tokens":2}}}
{"type":"tool","call":"c","output":"a.txt"}
{"type":"answer","message":{"text":"There is a.txt.","usage":{"input_tokens":12,"output_tokens":4}}}
{"type":"end"}
`
	y, err := cli.Read(thing(), strings.NewReader(printed), cli.Exit{}, steps{})
	fmt.Printf("%s: %s (%d tokens read), %v\n", y.End, y.Message, *y.Claim.Input, err)
	_, err = cli.Read(thing(), strings.NewReader(`{"type":"end","error":"status 503"}`), cli.Exit{}, steps{})
	fmt.Println(err)
	// Output:
	// step: I look., 1 calls
	// step: There is a.txt., 0 calls
	// done: There is a.txt. (21 tokens read), <nil>
	// model unavailable: status 503
}
