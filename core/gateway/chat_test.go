package gateway

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/model/chat"
)

const chatScript = `replies:
  - thinking: Let me see.
    text: I add.
    tools: [{name: add, arguments: {a: 1}}]
    usage: {input: 1000, cached: 400, output: 50, reasoning: 20}
  - when: {last: "^2$", system: Be brief, tool: add}
    text: Two.
    stop: length
    usage: {input: 1100, output: 9}
  - {when: {last: "^3"}, text: The sum is 3., usage: {input: 20, output: 5}}
  - {when: {last: could not be read}, text: '{"sum": 3}', usage: {input: 20, output: 5}}
`

// The client of our own agents works in every dialect: its requests are
// understood and it reads the replies, also in a second turn.
func TestOurOwnClientInEveryDialect(t *testing.T) {
	t.Parallel()
	for _, d := range chat.Dialects() {
		t.Run(string(d), func(t *testing.T) {
			t.Parallel()
			b := start(t, scripted(t, chatScript))
			e := b.e
			e.Dialect = d
			c, err := chat.Dial(e)
			testlevel.Must(t, err)
			t.Cleanup(c.Close)
			r := chat.Request{
				System: "Be brief.", Tools: []chat.Tool{{Name: "add", Description: "Adds.", Parameters: json.RawMessage(`{"type":"object"}`)}},
				Messages: []chat.Message{{Role: chat.User, Text: "Add.", Images: []chat.Image{{MediaType: "image/png", Data: []byte("png")}}}},
			}
			got, err := c.Ask(t.Context(), r)
			testlevel.Must(t, err)
			thought := "Let me see."
			if got.Text != "I add." || got.Thinking != thought || len(got.Calls) != 1 || got.Calls[0].Name != "add" || !strings.Contains(string(got.Calls[0].Arguments), `"a":1`) {
				t.Errorf("got %+v", got)
			}
			u := got.Usage
			if u.Input == nil || *u.Input != 1000 || *u.Cached != 400 || *u.Output != 50 || d != model.DialectAnthropic && *u.Reasoning != 20 {
				t.Errorf("usage %+v", u)
			}
			r.Messages = append(r.Messages, chat.Message{Role: chat.Assistant, Text: got.Text, Calls: got.Calls},
				chat.Message{Role: chat.User, Results: []chat.Result{{CallID: got.Calls[0].ID, Text: "2"}}})
			if got, err = c.Ask(t.Context(), r); err != nil || got.Text != "Two." || got.Stop != chat.Length || got.Tries != 1 {
				t.Errorf("got %+v, %v", got, err)
			}
			byForm(t, c, r)
			if s := b.Usage()[0]; s.Requests != 4 || s.InputTokens != 2140 || s.OutputTokens != 69 {
				t.Errorf("metered %+v", s)
			}
		})
	}
}

// byForm asks for a reply in a form, after a result with a picture.
func byForm(t *testing.T, c *chat.Client, r chat.Request) {
	t.Helper()
	r.Schema = json.RawMessage(`{"type": "object", "required": ["sum"], "properties": {"sum": {"type": "integer"}}}`)
	r.Messages[2].Results[0] = chat.Result{CallID: r.Messages[2].Results[0].CallID, Text: "3", Images: []chat.Image{{MediaType: "image/png", Data: []byte("png")}}}
	if got, err := c.Ask(t.Context(), r); err != nil || string(got.JSON) != `{"sum": 3}` || got.Tries != 2 {
		t.Errorf("with a schema: %+v, %v", got, err)
	}
}
