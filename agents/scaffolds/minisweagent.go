package main

import (
	_ "embed" // the driver
	"encoding/json"
	"fmt"
	"strings"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/agent/cli"
	"github.com/berth-eval/berth/plugins/model"
)

//go:embed minisweagent.py
var miniDriver string

func miniSWEAgent() cli.Scaffold {
	return cli.Scaffold{
		Name: "mini-swe-agent", Version: version,
		Doc: "mini-SWE-agent as it is on PyPI, inside the sandbox. A short driver prints its conversation as it goes on.",
		Recipe: python(bundle.Recipe{
			Version: "2.4.6",
			PyPI:    []string{"mini-swe-agent=={version}", "mcp==2.3.0"}, // which litellm needs and does not ask for
		}),
		Dialects:  []model.Dialect{model.DialectOpenAIChat, model.DialectAnthropic},
		Knobs:     []cli.Knob{cli.Effort, cli.MaxTurns, cli.SystemPrompt},
		Logs:      []string{"mini/conversation.json"},
		ModelName: "model",
		Start:     startMini,
		Events:    func(b *cli.Book) cli.Events { return &miniEvents{book: b} },
	}
}

func startMini(r *cli.Run) (cli.Start, error) {
	const home = cli.Home + "/mini"
	s := r.Settings
	name, base := "openai/"+r.Model.Name, r.URL+"/v1"
	if r.Model.Dialect == model.DialectAnthropic {
		name, base = "anthropic/"+r.Model.Name, r.URL
	}
	kwargs := map[string]any{}
	if s.ReasoningEffort != "" {
		kwargs["reasoning_effort"] = s.ReasoningEffort
	}
	system := ""
	if s.SystemPrompt != "" {
		system = "\n{% raw %}" + s.SystemPrompt + "{% endraw %}\n"
	}
	settings, err := json.Marshal(map[string]any{"agent": map[string]any{"step_limit": s.MaxTurns, "cost_limit": 0}, "model": kwargs, "system": system})
	if err != nil {
		return cli.Start{}, err
	}
	given, err := json.Marshal(map[string]any{"api_base": base, "api_key": r.Model.Token, "num_retries": 0})
	if err != nil {
		return cli.Start{}, err
	}
	return cli.Start{
		Argv:  []string{cli.Bundle + "/bin/python", "-I", home + "/drive.py", cli.Bundle, home, name, string(settings)},
		Env:   map[string]string{"BERTH_MODEL": string(given)},
		Files: []cli.File{{Path: "mini/drive.py", Data: miniDriver}}, Stdin: r.Message,
	}, nil
}

// miniEvents reads the conversation, a message a line.
type miniEvents struct {
	book  *cli.Book
	count int
	said  string
	exit  *miniMessage
	claim agent.Claim
}

type miniMessage struct {
	Role    string `json:"role"`
	Content any    `json:"content"`
	CallID  string `json:"tool_call_id"`
	Calls   []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
	Thinking string `json:"reasoning_content"`
	Extra    struct {
		Status     string `json:"exit_status"`
		Submission string `json:"submission"`
		Exception  string `json:"exception_str"`
		Response   struct {
			Usage *struct {
				Input   int64 `json:"prompt_tokens"`
				Output  int64 `json:"completion_tokens"`
				Details struct {
					Cached int64 `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			} `json:"usage"`
		} `json:"response"`
	} `json:"extra"`
}

func (m *miniMessage) text() string {
	switch is := m.Content.(type) {
	case nil:
		return ""
	case string:
		return is
	default:
		return fmt.Sprint(is)
	}
}

// Line implements cli.Events.
func (e *miniEvents) Line(line []byte) {
	var m miniMessage
	if json.Unmarshal(line, &m) != nil && m.Role == "" {
		return
	}
	switch m.Role {
	case "assistant":
		e.count++
		id := fmt.Sprintf("message %d", e.count)
		e.said = m.text()
		e.book.Think(id, m.Thinking)
		e.book.Say(id, e.said)
		for _, c := range m.Calls {
			e.book.Call(id, c.ID, c.Function.Name, c.Function.Arguments)
		}
		if u := m.Extra.Response.Usage; u != nil {
			one := agent.Claim{Input: &u.Input, Cached: &u.Details.Cached, Output: &u.Output}
			e.book.Use(id, one)
			e.claim = sum(e.claim, one)
		}
	case "tool":
		e.book.Result(m.CallID, m.text(), false)
	case "exit":
		e.exit = &m
	}
	e.book.Session = "conversation.json"
}

// End implements cli.Events.
func (e *miniEvents) End(x cli.Exit) (agent.Yield, error) {
	m, said, claim := e.exit, e.said, e.claim
	e.exit, e.said, e.claim = nil, "", agent.Claim{}
	if m == nil {
		return x.Crashed("it ended without saying why"), nil
	}
	y := agent.Yield{End: agent.Done, Message: strings.TrimSpace(m.Extra.Submission), ExitCode: x.ExitCode, Reason: m.Extra.Status, Claim: &claim}
	if y.Message == "" {
		y.Message = said
	}
	switch {
	case m.Extra.Status == "LimitsExceeded":
		y.End = agent.MaxSteps
	case m.Extra.Exception != "" && blamesModel(m.Extra.Status+": "+m.Extra.Exception):
		return y, cli.Down(m.Extra.Exception)
	case m.Extra.Status != "Submitted" || x.ExitCode != 0:
		y = x.Crashed(m.Extra.Status + ": " + m.Extra.Exception)
		y.Claim = &claim
	}
	return y, nil
}
