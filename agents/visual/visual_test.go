package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/loop"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/model/chat"
	"github.com/berth-eval/berth/plugins/model/chat/chattest"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// page is a surface that counts observations, and does what a test says.
type page struct {
	calls []string
	seen  int
	act   func(environment.Call) environment.Step
}

func offer() environment.Offer {
	return environment.Offer{
		Actions: []environment.Action{
			{Name: "click", Doc: "Clicks.", Schema: json.RawMessage(`{"type":"object","properties":{"bid":{"type":"string"},"button":{"enum":["left","right"],"default":"left"}},"required":["bid"]}`)},
			{Name: sayAction, Schema: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`)},
			{Name: infeasibleAction, Schema: json.RawMessage(`{"type":"object","properties":{"reason":{"type":"string"}},"required":["reason"]}`)},
		},
		Observations: []string{"screenshot", "axtree", "elements", "url"}, Steps: 9,
	}
}

func (*page) Actions(context.Context) (environment.Offer, error) { return offer(), nil }

func (p *page) Observe(_ context.Context, want []string) (environment.Observation, error) {
	p.seen++
	o := environment.Observation{JSON: json.RawMessage(fmt.Sprintf(`{"axtree":"TREE-%d","url":"https://x/%d","elements":"EL"}`, p.seen, p.seen))}
	if slices.Contains(want, "screenshot") {
		o.Frames = []environment.Frame{{Name: "screenshot", MediaType: "image/png", Data: []byte("\x89PNG\r\n\x1a\n")}}
	}
	return o, nil
}

func (p *page) Act(ctx context.Context, c environment.Call, want []string) (s environment.Step, err error) {
	p.calls = append(p.calls, c.Name+string(c.Arguments))
	if p.act != nil {
		s = p.act(c)
	}
	s.Observation, err = p.Observe(ctx, want)
	return s, err
}

type memory struct{ steps []trajectory.Step }

func (m *memory) Step(s trajectory.Step) error { m.steps = append(m.steps, s); return nil }
func (m *memory) Log(string) error             { return nil }
func (m *memory) Artifact(string) error        { return nil }

// turn runs one turn with a model that gives these replies.
func turn(t *testing.T, p *page, c Config, task string, replies ...string) (agent.Yield, *memory, []chattest.Question) {
	t.Helper()
	return turnOf(t, p, c, offer(), task, replies...)
}

func turnOf(t *testing.T, p *page, c Config, o environment.Offer, task string, replies ...string) (agent.Yield, *memory, []chattest.Question) {
	t.Helper()
	asked := 0
	m := chattest.Serve(t, model.DialectOpenAI, func(chattest.Question) chattest.Answer {
		if asked++; asked > len(replies) {
			t.Errorf("the model is asked for reply %d", asked)
			return chattest.Answer{Text: `{"answer": "too many"}`}
		}
		return chattest.Answer{Text: replies[asked-1]}
	})
	client, err := chat.Dial(m.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if c.Memory == 0 {
		c.Memory = 2
	}
	rec := &memory{}
	y, err := newWorker(&loop.Session[Config]{Config: c, Model: client, Surface: p}, &o).Turn(t.Context(), agent.Message{Text: task}, loop.NewRecorder(rec, "m", 0))
	if err != nil {
		t.Fatal(err)
	}
	return y, rec, m.Questions()
}

func TestItSeesActsAndAnswers(t *testing.T) {
	t.Parallel()
	p := &page{}
	y, rec, questions := turn(t, p, Config{Prefix: "PREFIX"}, "Do it.", "I click.\n```\nclick('12', button='right')\n```", "click('13')", "```json\n{\"answer\": 42}\n```")
	if y.End != agent.Done || y.Message != `{"answer": 42}` || y.Reason != "" {
		t.Errorf("%+v", y)
	}
	if got := strings.Join(p.calls, " "); got != `click{"bid":"12","button":"right"} click{"bid":"13"}` {
		t.Error(got)
	}
	if len(rec.steps) != 3 || len(rec.steps[0].ToolCalls) != 1 || rec.steps[0].Observation == nil {
		t.Errorf("%d steps: %+v", len(rec.steps), rec.steps)
	}
	first, last := string(questions[0].Body), string(questions[2].Body)
	for _, want := range []string{"PREFIX", "Do it.", "TREE-1", "input_image", "click(bid: string, button of [left right] = ", "You may act 9 times"} {
		if !strings.Contains(first, strings.ReplaceAll(want, `"`, `\"`)) {
			t.Errorf("no %q in the first request: %s", want, first)
		}
	}
	if strings.Contains(first, "EL\"") {
		t.Error("the elements are sent")
	}
	if strings.Contains(last, "TREE-1") || !strings.Contains(last, "TREE-2") || !strings.Contains(last, "TREE-3") || strings.Count(last, "input_image") != 2 {
		t.Errorf("the last two observations are sent in full: %s", last)
	}
}

// The pictures of an instruction are sent with it, and stay.
func TestItGetsThePicturesOfTheInstruction(t *testing.T) {
	t.Parallel()
	view := t.TempDir()
	if err := os.WriteFile(filepath.Join(view, "a.png"), []byte("\x89PNG\r\n\x1a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := chattest.Serve(t, model.DialectOpenAI, func(q chattest.Question) chattest.Answer {
		return chattest.Answer{Text: []string{"click('1')", "click('2')", `{"answer": 1}`}[q.Turns]}
	})
	client, err := chat.Dial(m.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	o := offer()
	s := &loop.Session[Config]{Config: Config{Memory: 1}, Setup: agent.Setup{View: view}, Model: client, Surface: &page{}}
	if _, err = newWorker(s, &o).Turn(t.Context(), agent.Message{Text: "Do it.", Files: []string{"a.png"}}, loop.NewRecorder(&memory{}, "m", 0)); err != nil {
		t.Fatal(err)
	}
	for i, q := range m.Questions() {
		if n := strings.Count(string(q.Body), "input_image"); n != 2 { // the instruction's, and the newest of the page
			t.Errorf("request %d has %d pictures, want 2", i+1, n)
		}
	}
}

func TestHowTurnsEnd(t *testing.T) {
	t.Parallel()
	const form = "Look.\nRESULT FORMAT:\n{\"title\": \"…\", \"year\": 0}\n"
	refuse := func(c environment.Call) (s environment.Step) {
		if c.Name == "click" {
			s.Error = "ValueError: covered"
		}
		return s
	}
	for _, tt := range []struct {
		name, task string
		act        func(environment.Call) environment.Step
		replies    []string
		end        agent.End
		message    string
		reason     string
		calls      int
	}{
		{"keys of the form", form, nil, []string{`{"title": "x"}`, `{"title": "x", "year": 3}`}, agent.Done, `{"title": "x", "year": 3}`, "1 replies of the model could not be read", 1},
		{"the first message is the answer", "t", nil, []string{"click('1')\nsend_msg_to_user('first')\nclick('2')"}, agent.Done, "first", "", 2},
		{"the message with which the surface is done", "t", func(c environment.Call) environment.Step { return environment.Step{Done: c.Name == sayAction} }, []string{"send_msg_to_user('first')"}, agent.Done, "first", "", 1},
		{"a message that is refused", "t", func(c environment.Call) (s environment.Step) {
			if c.Name == sayAction {
				s.Error = "ValueError: not now"
			}
			return s
		}, []string{"send_msg_to_user('first')", `{"answer": 1}`}, agent.Done, `{"answer": 1}`, "", 1},
		{"infeasible", "t", nil, []string{`report_infeasible("no such page")`}, agent.Done, "no such page", "the agent says that the task cannot be done", 1},
		{"nonsense three times, then an action", "t", nil, []string{"Hm.", "Hm?", "click(1+1)", "click('1')", `{"answer": 1}`}, agent.Done, `{"answer": 1}`, "3 replies", 4},
		{"nonsense until no steps are left", "t", func(environment.Call) environment.Step { return environment.Step{Truncated: true} }, []string{"Hm."}, agent.MaxSteps, "", "no steps are left", 1},
		{"a refusal stops the rest of a reply", "t", refuse, []string{"click('1') click('2')", `{"answer": 1}`}, agent.Done, `{"answer": 1}`, "", 1},
		{"wrong arguments count as a step, too", "t", nil, []string{"click('1', 'left', 'x')", "clik(7)", `{"answer": 1}`}, agent.Done, `{"answer": 1}`, "", 2},
		{"the surface is done", "t", func(environment.Call) environment.Step { return environment.Step{Done: true} }, []string{"click('1')"}, agent.Done, "", "the surface is done", 1},
		{"no actions are left", "t", func(environment.Call) environment.Step {
			return environment.Step{Truncated: true, Error: "ValueError: covered"}
		}, []string{"click('1')"}, agent.MaxSteps, "", "no steps are left", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := &page{act: tt.act}
			y, rec, _ := turn(t, p, Config{}, tt.task, tt.replies...)
			last := rec.steps[len(rec.steps)-1]
			if final := strings.Contains(string(last.Extra), trajectory.FinalCall); final != (tt.end == agent.Done && len(last.ToolCalls) > 0) {
				t.Errorf("the last step has %d calls and %s", len(last.ToolCalls), last.Extra)
			}
			if y.End != tt.end || y.Message != tt.message || !strings.HasPrefix(y.Reason, tt.reason) || tt.reason == "" && y.Reason != "" || len(p.calls) != tt.calls {
				t.Errorf("got %+v after %q", y, p.calls)
			}
		})
	}
}

// The answer of each task has the form that its prompt shows, whatever the
// placeholders in it.
func TestFormsOfAnswers(t *testing.T) {
	t.Parallel()
	for form, keys := range map[string][]string{
		"# RESULT FORMAT\n ```json\n {\n  \"count\": <N>\n }\n ```":                        {"count"},
		"## RESULT FORMAT\n\n{\"count\": <N>, \"callsigns\": [\"<CS1>\", \"...\"]}":        {"count", "callsigns"},
		"Result format: {\"a\": {\"b\": 1}, \"c\": \"x: {\", \"d\": [<N>, …],}":            {"a", "c", "d"},
		"Answer in the RESULT FORMAT below.\n# RESULT FORMAT\n{\"time\": \"<HH:MM UTC>\"}": {"time"},
		"RESULT FORMAT: a number":           nil,
		"RESULT FORMAT {\"a\": <N>":         nil,
		"RESULT FORMAT {\"a\\":              nil,
		"The format of the result is a map": nil,
	} {
		if got := resultKeys(form); !slices.Equal(got, keys) {
			t.Errorf("%q: %q, want %q", form, got, keys)
		}
	}
}

// All published tasks with a form have its keys, and the right answer ends the turn.
func TestPublishedForms(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../shared/published/gauntletbench/tasks/flight_analyser.yaml")
	if err != nil {
		t.Skipf("published tasks are not here: %v", err)
	}
	var list struct {
		Tasks []struct {
			ID     string
			Prompt string
			GT     struct{ Answer string } `yaml:"gt"`
		}
	}
	if err = yaml.Unmarshal(text, &list); err != nil || len(list.Tasks) != 7 {
		t.Fatal(len(list.Tasks), err)
	}
	for _, of := range list.Tasks {
		right := strings.Replace(of.GT.Answer, ",\n}", "\n}", 1)
		y, _, _ := turn(t, &page{}, Config{}, of.Prompt, "I am sure.\n```json\n"+right+"\n```")
		if y.End != agent.Done || y.Message != strings.TrimSpace(right) || y.Reason != "" {
			t.Errorf("%s: %+v", of.ID, y)
		}
	}
}

// With the option end, a reply that cannot be read ends the turn; where there is no
// bound of steps, the third one in a row does.
func TestUnreadableEnds(t *testing.T) {
	t.Parallel()
	p := &page{}
	y, _, _ := turn(t, p, Config{Unreadable: unreadableEnd}, "t", "Hm.")
	if y.End != agent.Crashed || !strings.Contains(y.Reason, "no action that can be read") || len(p.calls) != 0 {
		t.Errorf("%+v after %q", y, p.calls)
	}
	endless := offer()
	endless.Steps, p = 0, &page{}
	if y, _, _ = turnOf(t, p, Config{}, endless, "t", "Hm.", "Hm.", "click('1')", "Hm.", "Hm.", "Hm."); y.End != agent.Crashed || len(p.calls) != 5 {
		t.Errorf("without a bound of steps: %+v after %q", y, p.calls)
	}
}

// With the history actions, a request has the task, what is seen now, and what was
// done so far; and the prompt may be the experiment's.
func TestHistoryOfActions(t *testing.T) {
	t.Parallel()
	p := &page{act: func(c environment.Call) (s environment.Step) {
		if strings.Contains(string(c.Arguments), "13") {
			s.Error = "ValueError: covered"
		}
		return s
	}}
	y, _, questions := turn(t, p, Config{History: historyActions, Prompt: "MINE {{steps}}\n{{actions}}"}, "Do it.",
		"click('12')", "Hm.", "click('1')\nclick('13')", `{"answer": 1}`)
	if y.Message != `{"answer": 1}` || len(p.calls) != 4 {
		t.Fatalf("%+v after %q", y, p.calls)
	}
	last := string(questions[3].Body)
	for _, want := range []string{
		"MINE 9", "- click(bid", "Do it.", "TREE-5", `click({\"bid\":\"12\"})\nnoop({\"wait_ms\":500})\nclick({\"bid\":\"1\"}); click(`,
		"Error of the last action", "ValueError: covered",
	} {
		if !strings.Contains(last, want) {
			t.Errorf("no %q in %s", want, last)
		}
	}
	for _, not := range []string{"TREE-1", "TREE-4", "You work on a task", "assistant"} {
		if strings.Contains(last, not) {
			t.Errorf("%q in %s", not, last)
		}
	}
}
