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

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/agenttest"
	"github.com/berth-eval/berth/plugins/agent/loop"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/model/chat"
	"github.com/berth-eval/berth/plugins/model/chat/chattest"
	"github.com/berth-eval/berth/plugins/trajectory"
)

func TestContract(t *testing.T) {
	t.Parallel()
	m := chattest.Serve(t, model.DialectOpenAIChat, func(chattest.Question) chattest.Answer {
		return chattest.Answer{Text: "### Actions\nclear, clear"}
	})
	agenttest.Run(t, agenttest.Subject{
		Plugin: served(), Config: json.RawMessage(`{"mode":"global"}`), Models: map[string]model.Endpoint{loop.DefaultModel: m.Endpoint},
	})
}

// game is a surface that counts what is done on it.
type game struct {
	calls []string
	after func(n int) environment.Step
}

const text = `{"type":"object","properties":{"content":{"type":"string"}},"required":["content"]}`

func offer() environment.Offer {
	o := environment.Offer{Observations: []string{"image", "grid"}, Steps: 50}
	for _, name := range []string{"Up", "Down", "Left", "Right"} {
		o.Actions = append(o.Actions, environment.Action{Name: name, Doc: "Moves."})
	}
	for _, name := range []string{"write_html", "write_css", "write_javascript"} {
		o.Actions = append(o.Actions, environment.Action{Name: name, Schema: json.RawMessage(text)})
	}
	return o
}

func (*game) Actions(context.Context) (environment.Offer, error) { return offer(), nil }

func (g *game) Observe(_ context.Context, want []string) (o environment.Observation, err error) {
	if slices.Contains(want, "grid") {
		o.JSON = json.RawMessage(fmt.Sprintf(`{"grid":"GRID-%d"}`, len(g.calls)))
	}
	if slices.Contains(want, "image") {
		o.Frames = []environment.Frame{{Name: "image", MediaType: "image/png", Data: []byte("\x89PNG\r\n\x1a\n")}}
	}
	return o, nil
}

func (g *game) Act(ctx context.Context, c environment.Call, want []string) (s environment.Step, err error) {
	g.calls = append(g.calls, strings.TrimSuffix(c.Name+string(c.Arguments), "{}"))
	if g.after != nil {
		s = g.after(len(g.calls))
	}
	s.Observation, err = g.Observe(ctx, want)
	return s, err
}

type memory struct{ steps []trajectory.Step }

func (m *memory) Step(s trajectory.Step) error { m.steps = append(m.steps, s); return nil }
func (m *memory) Log(string) error             { return nil }
func (m *memory) Artifact(string) error        { return nil }

func decode(text string, c *Config) error {
	if ps := config.Validate(json.RawMessage(text), c); len(ps) > 0 {
		return config.Problems(ps)
	}
	return nil
}

// turn runs one turn with a model that gives these replies, one after the other.
func turn(t *testing.T, g *game, settings string, replies ...string) (agent.Yield, *memory, []chattest.Question) {
	t.Helper()
	return turnOn(t, g, agent.Setup{}, agent.Message{Text: "Do it."}, settings, replies...)
}

func turnOn(t *testing.T, g *game, setup agent.Setup, message agent.Message, settings string, replies ...string) (agent.Yield, *memory, []chattest.Question) {
	t.Helper()
	m := chattest.Serve(t, model.DialectOpenAIChat, func(q chattest.Question) chattest.Answer {
		if q.Number > len(replies) {
			t.Errorf("the model is asked for reply %d", q.Number)
			return chattest.Answer{Status: 400}
		}
		return chattest.Answer{Text: replies[q.Number-1]}
	})
	client, err := chat.Dial(m.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var c Config
	if err = decode(settings, &c); err != nil {
		t.Fatal(err)
	}
	o, rec := offer(), &memory{}
	w, err := newWorker(&loop.Session[Config]{Setup: setup, Config: c, Model: client, Surface: g}, &o)
	if err != nil {
		t.Fatal(err)
	}
	y, err := w.Turn(t.Context(), message, loop.NewRecorder(rec, "m", 0))
	if err != nil {
		t.Fatal(err)
	}
	return y, rec, m.Questions()
}

func TestAGlobalPlanIsAskedForOnce(t *testing.T) {
	t.Parallel()
	g := &game{}
	y, rec, questions := turn(t, g, `{"mode":"global"}`, "I go around.\n### Actions\nUp, down, Jump,\nRight.")
	if got := strings.Join(g.calls, " "); got != "Up Down Right" || y.End != agent.Done || len(rec.steps) != 1 || len(rec.steps[0].ToolCalls) != 3 || !strings.Contains(string(rec.steps[0].Extra), trajectory.FinalCall) {
		t.Errorf("%s; %+v; %+v", got, y, rec.steps)
	}
	body := string(questions[0].Body)
	for _, want := range []string{"plan a task from beginning to end", "Do it.", "GRID-0", "data:image/png", "### Actions", "- Up: Moves.", `"temperature":0.1`, `"top_p":0.95`, `"max_completion_tokens":4000`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in the request: %s", want, body)
		}
	}
	if strings.Contains(body, "{{") {
		t.Errorf("a mark is left: %s", body)
	}
}

// The model is shown the last am pairs, and the newest om pictures.
func TestMemory(t *testing.T) {
	t.Parallel()
	const steps = 7
	var replies []string
	for i := range steps {
		replies = append(replies, fmt.Sprintf("REPLY-%d\n# action\nUp", i+1))
	}
	g := &game{after: func(n int) environment.Step { return environment.Step{Done: n == steps} }}
	y, _, questions := turn(t, g, `{"am":4,"om":2}`, replies...)
	if y.End != agent.Done || len(questions) != steps {
		t.Fatalf("%+v, %d requests", y, len(questions))
	}
	for i, q := range questions {
		body := string(q.Body)
		if got, want := strings.Count(body, "data:image/png"), min(i+1, 2); got != want {
			t.Errorf("request %d has %d pictures, want %d", i+1, got, want)
		}
		if got, want := strings.Count(body, "REPLY-"), min(i, 4); got != want {
			t.Errorf("request %d has %d replies, want %d", i+1, got, want)
		}
		want := i + 1
		if i > 4 {
			want = 4 // the first one stood before pairs that are left out
		}
		if got := strings.Count(body, "GRID-"); got != want {
			t.Errorf("request %d has %d texts, want %d: %s", i+1, got, want, body)
		}
	}
	last := string(questions[6].Body)
	for text, want := range map[string]bool{"GRID-6": true, "GRID-3": true, "GRID-2": false, "GRID-0": false, "REPLY-3": true, "REPLY-2": false, "Do it.": true} {
		if strings.Contains(last, text) != want {
			t.Errorf("%s in the last request: %v", text, !want)
		}
	}
}

// The pictures of the task are in every request, beside the newest ones of the
// surface.
func TestPicturesOfTheTaskStay(t *testing.T) {
	t.Parallel()
	view := t.TempDir()
	if err := os.WriteFile(filepath.Join(view, "page.png"), []byte("\x89PNG\r\n\x1a\nTASK"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, questions := turnOn(t, &game{}, agent.Setup{View: view}, agent.Message{Text: "Do it.", Files: []string{"page.png"}},
		`{"max_loop":3,"am":1}`, "# action\nUp", "# action\nUp", "# action\nUp")
	for i, q := range questions {
		body := string(q.Body)
		if n, own := strings.Count(body, "data:image/png"), strings.Count(body, "iVBORw0KGgpUQVNL"); n != 2 || own != 1 {
			t.Errorf("request %d has %d pictures, and %d of the task; want 2 and 1: %s", i+1, n, own, body)
		}
	}
}

func TestAReplyWithoutAnActionIsAskedForAgainTwice(t *testing.T) {
	t.Parallel()
	g := &game{}
	y, rec, questions := turn(t, g, `{"max_loop":2}`, "Hm.", "Hm?", "", "Hm!", "# action\nUp")
	if got := strings.Join(g.calls, " "); got != "Up" || len(questions) != 5 || y.End != agent.MaxSteps || !strings.Contains(y.Reason, "in 1 of them the model named no action") {
		t.Errorf("%s, %d requests, %+v", got, len(questions), y)
	}
	if len(rec.steps) != 5 || len(rec.steps[0].ToolCalls) != 0 || len(rec.steps[4].ToolCalls) != 1 {
		t.Errorf("%+v", rec.steps)
	}
	if b := string(questions[2].Body); !strings.Contains(b, "Hm?") || strings.Count(b, "no action that could be read") != 2 {
		t.Errorf("the third request: %s", b)
	}
	if b := string(questions[3].Body); strings.Contains(b, "Hm.") {
		t.Errorf("the step that was lost is still in the conversation: %s", b)
	}
}

// Refusals are told, and nothing of a score.
func TestWhatIsRefusedIsTold(t *testing.T) {
	t.Parallel()
	reward := 10.9
	g := &game{after: func(n int) environment.Step {
		if n == 1 {
			return environment.Step{Error: "there is a WALL", Reward: &reward, Info: json.RawMessage(`{"SECRET":1}`)}
		}
		return environment.Step{Truncated: true}
	}}
	y, _, questions := turn(t, g, `{"format":"list"}`, "### Actions\nUp", "### Actions\nLeft, Left")
	body := string(questions[1].Body)
	if y.End != agent.MaxSteps || !strings.Contains(body, "Up was refused: there is a WALL") || strings.Contains(body, "10.9") || strings.Contains(body, "SECRET") {
		t.Errorf("%+v, %s", y, body)
	}
	if len(g.calls) != 2 {
		t.Errorf("%q: nothing follows after the last action", g.calls)
	}
}

func TestPromptsOfTheExperiment(t *testing.T) {
	t.Parallel()
	_, _, questions := turn(t, &game{}, `{"max_loop":2,"prompt":"MINE of {{steps}}:\n{{actions}}{{format}}","format_prompt":"FORM","regenerate_prompt":"AGAIN","continue_prompt":"GO","temperature":-1,"top_p":-1,"max_tokens":0,"observations":["grid"]}`, "?", "Up", "# action\nUp")
	first, second, third := string(questions[0].Body), string(questions[1].Body), string(questions[2].Body)
	if !strings.Contains(first, `MINE of 50:\n- Up: Moves.`) || !strings.Contains(first, "FORM") || !strings.Contains(second, "AGAIN") || !strings.Contains(third, "GO") {
		t.Errorf("%s\n%s\n%s", first, second, third)
	}
	if strings.Contains(first, "temperature") || strings.Contains(first, "top_p") || strings.Contains(first, "max_completion") || strings.Contains(first, "image_url") {
		t.Errorf("what is left to the provider is sent, or a picture that nobody wants: %s", first)
	}
}

// What the agent sees at present stands where a prompt has its mark, and only there.
func TestAPromptHasWhatIsSeen(t *testing.T) {
	t.Parallel()
	_, _, questions := turn(t, &game{}, `{"max_loop":2,"prompt":"NOW <{{grid}}>","continue_prompt":"GO","observations":["grid"]}`, "# action\nUp", "# action\nUp")
	for i, want := range []string{"NOW <GRID-0>", "NOW <GRID-1>"} {
		body := string(questions[i].Body)
		if n := strings.Count(body, "GRID-"); n != 1 || !strings.Contains(strings.ReplaceAll(strings.ReplaceAll(body, `\u003c`, "<"), `\u003e`, ">"), want) {
			t.Errorf("request %d shows %d grids, want %q: %s", i+1, n, want, body)
		}
	}
	o := offer()
	c := Config{Prompt: "{{files}}"}
	if _, err := newWorker(&loop.Session[Config]{Config: c}, &o); err == nil || !strings.Contains(err.Error(), "a prompt has {{files}}, and the agent sees no files: it sees image, grid") {
		t.Errorf("%v", err)
	}
}

func TestReplies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ format, reply, want string }{
		{formatList, "### Actions\nUp, Up, Left", "Up Up Left"},
		{formatList, "### Actions: **Up**, `Down`.", "Up Down"},
		{formatList, "### Actions\nUp\n### Actions\nLeft\nRight", "Left Right"},
		{formatList, "Up, jump, Up", "Up Up"},
		{formatList, "I go up, then left", ""},
		{formatList, "### Actions\nup one, then left", ""},
		{formatList, "### Actions", ""},
		{formatWord, "I think.\n# action\nUp", "Up"},
		{formatWord, "# Action: `left`", "Left"},
		{formatWord, "# action\nUp or Down", ""},
		{formatWord, "I go Up, then Down.\n# action\nDown", "Down"},
		{formatWord, "Up", "Up"},
		{formatWord, "I go up and Left now", "Left"},
		{formatWord, "Upwards", ""},
		{formatWord, "# action\nJump", ""},
		{formatWord, "", ""},
		{formatBlocks, "Here:\n```html\n<p>x\n```\nand\n```css\np{}\n```", `write_html{"content":"\u003cp\u003ex\n"} write_css{"content":"p{}\n"}`},
		{formatBlocks, "~~~js\nlet a = '```'\n~~~", "write_javascript{\"content\":\"let a = '```'\\n\"}"},
		{formatBlocks, "````html\n```css\n````", "write_html{\"content\":\"```css\\n\"}"},
		{formatBlocks, "```html\n<p>not closed", `write_html{"content":"\u003cp\u003enot closed"}`},
		{formatBlocks, "```python\nprint()\n```\n```\n<p>\n```", ""},
		{formatBlocks, "```html\n\n```", ""},
	} {
		var got []string
		for _, c := range (&Config{Format: tt.format}).parse(tt.reply, offer().Actions) {
			got = append(got, c.Name+string(c.Arguments))
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%s, %q: %s; want %s", tt.format, tt.reply, s, tt.want)
		}
	}
}

// The published program splits at the heading and takes names letter by letter.
func TestStrictReplies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ format, reply, want string }{
		{formatWord, "I go up and Left now", ""},
		{formatWord, "# analyze\nThe box is left.\n# action\nUp", "Up"},
		{formatWord, "# action\n  Up \n\n", "Up"},
		{formatWord, "# action Up", "Up"},
		{formatWord, "### action\nUp", "Up"}, // it holds "# action"
		{formatWord, "Up", "Up"},
		{formatWord, "# action\nup", ""},
		{formatWord, "# action\nUp.", ""},
		{formatWord, "# action\n'Up'", ""},
		{formatWord, "# action: Up", ""},
		{formatWord, "# action\nUp\nbecause", ""},
		{formatWord, "# Action\nUp", ""},
		{formatWord, "#action\nUp", ""},
		{formatWord, "# action\nUp\n# action\nDown", "Up"},
		{formatWord, "# actions\nUp", ""},
		{formatWord, "I think.\nUp", ""},
		{formatWord, "", ""},
		{formatList, "### Analyze\nx\n### Actions\nUp, Up,Left\n", "Up Up Left"},
		{formatList, "Up, Down", "Up Down"},
		{formatList, "### Actions\nUp, jump, up, Left.", "Up"},
		{formatList, "### Actions\nUp\nDown", ""},
		{formatList, "### Actions: Up, Down", "Down"},
		{formatList, "### actions\nUp, Down", "Down"},
		{formatList, "### Actions\nUp\n### Actions\nDown", "Up"},
		{formatList, "I go Up, then Left", ""},
		{formatBlocks, "Here:\n```html\n<p>x\n```\nand\n```css\np{}\n```", `write_html{"content":"\u003cp\u003ex"} write_css{"content":"p{}"}`},
		{formatBlocks, "```html\n<p>open", `write_html{"content":"\u003cp\u003eopen"}`},
		{formatBlocks, "```html\n<p>\n```\n```python\nx\n```", ""},
		{formatBlocks, "```js\nx\n```", ""},
		{formatBlocks, "<p>no block", ""},
	} {
		var got []string
		for _, c := range (&Config{Format: tt.format, Parse: parseStrict}).parse(tt.reply, offer().Actions) {
			got = append(got, c.Name+string(c.Arguments))
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%s, %q: %s; want %s", tt.format, tt.reply, s, tt.want)
		}
	}
}

// A reply may be as long as a model can write.
func TestALongReplyIsRead(t *testing.T) {
	t.Parallel()
	const megabyte = 1 << 20
	if n := len((&Config{Format: formatList}).parse("### Actions\n"+strings.Repeat("Up, ", megabyte/4), offer().Actions)); n != maxActions {
		t.Errorf("%d actions of a list of 1 MB, want %d", n, maxActions)
	}
	if calls := (&Config{Format: formatWord}).parse("# action\n"+strings.Repeat("Up ", megabyte/3), offer().Actions); len(calls) != 1 {
		t.Errorf("%d actions of a word that is there often", len(calls))
	}
	if calls := (&Config{Format: formatBlocks}).parse("```html\n"+strings.Repeat("<p>\n", megabyte/4), offer().Actions); len(calls) != 1 || len(calls[0].Arguments) < megabyte {
		t.Errorf("%d actions of a block of 1 MB", len(calls))
	}
}

func TestWrongSettings(t *testing.T) {
	t.Parallel()
	for settings, want := range map[string]string{
		`{"om":6}`: "from 0 to am, which is 5", `{"am":0}`: "from 1 to 1000", `{"format":"lists"}`: "list, word or blocks",
		`{"max_loop":0}`: "out of range", `{"temperature":3}`: "from 0 to 2", `{"top_p":0}`: "up to 1", `{"max_tokens":-1}`: "negative", `{"mode":"globl"}`: "global",
	} {
		var c Config
		if err := decode(settings, &c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", settings, err, want)
		}
	}
}
