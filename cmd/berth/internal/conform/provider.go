package conform

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/dialects/scripted"
	"github.com/berth-eval/berth/plugins/dialect"
)

// command is what the kit's message to an agent asks for. It ends with the
// line by which SWE-agent's loops know the last command.
const command = "echo 42 > answer.txt && echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"

// text is what the model of the kit says where no tool is offered: it does what
// the kit asks for, in the forms that loops around a model commonly read, and
// says that it is done. A judge reads that the work is good.
const text = "I write the number into the file, and am done.\n\n```bash\n" + command + "\n```\n\n" +
	`{"analysis": "A number is wanted in a file.", "plan": "Write it.", "commands": [{"keystrokes": "echo 42 > answer.txt\n", "duration": 0.1}], ` +
	`"task_complete": true, "pass": true, "passed": true, "verdict": "pass", "score": 1, "reason": "The number is in the file."}` + "\n"

// known is the dialects with the kit's model in the place of scripted ones. It
// calls tools: first one that takes a command, then one that says that the work
// is done, if the request offers them. see gets each request.
func known(see func(body []byte)) dialect.Set {
	set := dialects.All
	set.Script = func(path string) (func() dialect.Scripted, error) {
		if path == kitScript {
			return func() dialect.Scripted { return watched{kitModel{}, see} }, nil
		}
		open, err := dialects.All.Script(path)
		return func() dialect.Scripted { return watched{open(), see} }, err
	}
	return set
}

// kitScript stands for the kit's own model where a file of replies is named.
const kitScript = "the kit's own model"

// watched is a model that shows each request before it answers.
type watched struct {
	dialect.Scripted

	see func(body []byte)
}

// Send implements dialect.Scripted.
func (w watched) Send(ctx context.Context, q dialect.Request) (*http.Response, error) {
	w.see(q.Body.Bytes())
	return w.Scripted.Send(ctx, q)
}

type kitModel struct{}

// Send implements dialect.Scripted.
func (kitModel) Send(ctx context.Context, q dialect.Request) (*http.Response, error) {
	said, err := scripted.New(answer(q.Body))
	if err != nil {
		return nil, err
	}
	return said.Session().Send(ctx, q)
}

// answer is what the model says to a request.
func answer(body *dialect.Object) scripted.Reply {
	r := scripted.Reply{When: &scripted.When{}}
	talk, _ := scripted.Read(body) // what cannot be read is refused when it is answered
	tools := offered(body.Get("tools"))
	var i int
	if talk.Turn == 0 {
		i = slices.IndexFunc(tools, func(t tool) bool { return t.command() != "" })
	} else {
		i = slices.IndexFunc(tools, func(t tool) bool { return ends.MatchString(t.Name) })
	}
	if i < 0 {
		r.Text = text
		return r
	}
	r.Tools = []scripted.Tool{{Name: tools[i].Name, Arguments: tools[i].arguments()}}
	return r
}

// ends matches names of tools that end the work.
var ends = regexp.MustCompile(`(?i)^(finish|submit|complete|done|attempt_completion|task_complete|final_answer)`)

// tool is a tool that a request offers.
type tool struct {
	Name   string
	Schema schema
}

// schema is what a tool takes.
type schema struct {
	Type       any               `json:"type"`
	Properties map[string]schema `json:"properties"`
	Required   []string          `json:"required"`
	Enum       []any             `json:"enum"`
}

// offered reads tools as any dialect writes them.
func offered(raw json.RawMessage) (out []tool) {
	type written struct {
		Name        string `json:"name"`
		InputSchema schema `json:"input_schema"` // Anthropic
		Parameters  schema `json:"parameters"`   // OpenAI
		JSONSchema  schema `json:"parametersJsonSchema"`
	}
	var list []struct {
		written

		Function  written   `json:"function"`             // chat completions
		Functions []written `json:"functionDeclarations"` // Gemini
	}
	_ = json.Unmarshal(raw, &list) // what is none offers none
	for _, l := range list {
		for _, w := range append([]written{l.written, l.Function}, l.Functions...) {
			for _, s := range []schema{w.InputSchema, w.Parameters, w.JSONSchema} {
				if w.Name != "" && (len(s.Properties) > 0 || ends.MatchString(w.Name)) {
					out = append(out, tool{w.Name, s})
					break
				}
			}
		}
	}
	return out
}

// command is the property of a tool that takes a command of a shell; empty: it
// has none.
func (t tool) command() string {
	for _, name := range []string{"command", "cmd", "commands", "script", "bash_command", "shell_command", "input", "code", "keystrokes"} {
		if p, ok := t.Schema.Properties[name]; ok && (p.is("string") || p.is("array")) {
			return name
		}
	}
	return ""
}

// is says whether a value of the schema may be of that type.
func (s schema) is(kind string) bool {
	switch v := s.Type.(type) {
	case string:
		return strings.EqualFold(v, kind) // Gemini writes capitals
	case []any:
		return slices.Contains(v, any(kind))
	}
	return false
}

// arguments are what the tool is called with: the command, and a value for each
// property that it requires.
func (t tool) arguments() map[string]any {
	args := map[string]any{}
	for _, name := range t.Schema.Required {
		args[name] = t.Schema.Properties[name].value()
	}
	if name := t.command(); name != "" {
		args[name] = any(command)
		if t.Schema.Properties[name].is("array") {
			args[name] = []string{"sh", "-c", command}
		}
	}
	return args
}

// value is any value that the schema allows.
func (s schema) value() any {
	switch {
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.is("integer"), s.is("number"):
		return 1
	case s.is("boolean"):
		return false
	case s.is("array"):
		return []any{}
	case s.is("object"):
		return map[string]any{}
	}
	return "done"
}
