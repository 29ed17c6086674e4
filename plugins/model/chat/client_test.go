package chat_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/model/chat"
	"github.com/berth-eval/berth/plugins/model/chat/chattest"
)

func TestAReplyComesOverARealSocketInEachDialect(t *testing.T) {
	t.Parallel()
	for _, d := range chat.Dialects() {
		t.Run(string(d), func(t *testing.T) {
			t.Parallel()
			s := chattest.Serve(t, d, func(q chattest.Question) chattest.Answer {
				if q.Number == 1 {
					return chattest.Answer{Status: http.StatusServiceUnavailable, Body: "busy"}
				}
				return chattest.Answer{Text: "heard: " + q.Last, Thinking: "hm", Calls: []chat.Call{{ID: "1", Name: "f", Arguments: json.RawMessage(`{"x":1}`)}}}
			})
			s.Endpoint.Parameters = json.RawMessage(`{"seed": 7}`)
			c, err := chat.Dial(s.Endpoint)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			r, err := c.Ask(t.Context(), chat.Request{Messages: []chat.Message{{Role: chat.User, Text: "hello"}}})
			if err != nil || r.Text != "heard: hello" || r.Thinking != "hm" || len(r.Calls) != 1 || r.Tries != 2 || r.Usage.Input == nil {
				t.Errorf("got %+v, %v; want what was said, at the second try", r, err)
			}
			if q := s.Questions(); !strings.Contains(string(q[1].Body), `"seed":7`) {
				t.Errorf("the experiment's parameters are not in %s", q[1].Body)
			}
		})
	}
}

const schema = `{"type": "object", "required": ["verdict"], "properties": {"verdict": {"enum": ["pass", "fail"]}}}`

// asks asks each dialect for a reply that matches the schema.
func asks(t *testing.T, r chat.Request, answer func(chattest.Question) chattest.Answer, check func(*testing.T, chat.Reply, error, []chattest.Question)) {
	t.Helper()
	r.Schema = json.RawMessage(schema)
	for _, d := range chat.Dialects() {
		t.Run(string(d), func(t *testing.T) {
			t.Parallel()
			s := chattest.Serve(t, d, answer)
			c, err := chat.Dial(s.Endpoint)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			reply, err := c.Ask(t.Context(), r)
			check(t, reply, err, s.Questions())
		})
	}
}

var judge = chat.Request{System: "You judge.", Messages: []chat.Message{{Role: chat.User, Text: "Is it good?"}}}

func TestAModelThatRepliesProseIsAskedAgain(t *testing.T) {
	t.Parallel()
	asks(t, judge, func(q chattest.Question) chattest.Answer {
		return chattest.Answer{Text: []string{"It is good.", `{"verdict": "perhaps"}`, `{"verdict": "pass"}`}[q.Number-1], Usage: &[2]int64{10, 2}}
	}, func(t *testing.T, r chat.Reply, err error, q []chattest.Question) {
		t.Helper()
		if err != nil || string(r.JSON) != `{"verdict": "pass"}` || r.Tries != 3 || *r.Usage.Input != 30 || *r.Usage.Output != 6 {
			t.Errorf("got %s, %d tries, %+v, %v", r.JSON, r.Tries, r.Usage, err)
		}
		if !strings.Contains(q[2].Last, "value must be one of 'pass', 'fail'") || q[2].Turns != 2 {
			t.Errorf("the model is told %q after %d replies", q[2].Last, q[2].Turns)
		}
	})
}

func TestAModelThatRepliesNonsenseIsAskedTwiceMore(t *testing.T) {
	t.Parallel()
	asks(t, judge, chattest.Script(strings.Repeat("No. ", 100_000)), func(t *testing.T, _ chat.Reply, err error, q []chattest.Question) {
		t.Helper()
		if !errors.Is(err, chat.ErrBadReply) || len(q) != 3 || len(err.Error()) > 2000 {
			t.Errorf("%d questions, %.300v", len(q), err)
		}
		if errors.Is(err, agent.ErrModel) {
			t.Error("the model was there, but counts as the cause")
		}
		if n := len(q[2].Body); n > 100_000 {
			t.Errorf("the model sees %d bytes again", n)
		}
	})
}

// A limit of the experiment that cuts a reply off is widened once, and no reply is
// made up from half of one.
func TestAReplyThatWasCutOffIsAskedForAgainWithMoreRoom(t *testing.T) {
	t.Parallel()
	limits := map[model.Dialect]string{
		model.DialectOpenAI: `{"max_output_tokens": 20}`, model.DialectOpenAIChat: `{"max_tokens": 20}`,
		model.DialectAnthropic: `{"max_tokens": 20}`, model.DialectGemini: `{"generationConfig": {"maxOutputTokens": 20, "seed": 1}}`,
	}
	for _, d := range chat.Dialects() {
		for name, second := range map[string]chattest.Answer{
			"whole": {Text: `{"verdict": "pass"}`}, "cut again": {Text: `{"verdict": "pass"}`, Stop: chat.Length},
			"refused": {Status: http.StatusBadRequest, Body: `{"error": {"message": "max_tokens is too large"}}`},
		} {
			t.Run(string(d)+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := chattest.Serve(t, d, func(q chattest.Question) chattest.Answer {
					if q.Number == 1 {
						return chattest.Answer{Text: `{"verdict": "pass"`, Stop: chat.Length, Usage: &[2]int64{10, 20}}
					}
					return second
				})
				s.Endpoint.Parameters = json.RawMessage(limits[d])
				c, err := chat.Dial(s.Endpoint)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(c.Close)
				r := judge
				r.Schema = json.RawMessage(schema)
				reply, err := c.Ask(t.Context(), r)
				q := s.Questions()
				if len(q) != 2 || q[1].Turns != 0 || !strings.Contains(string(q[0].Body), `:20`) || !strings.Contains(string(q[1].Body), strconv.Itoa(chat.DefaultMaxTokens)) {
					t.Fatalf("%d questions, the last is %s", len(q), q[len(q)-1].Body)
				}
				if good := name == "whole"; good != (err == nil) || good != (string(reply.JSON) == `{"verdict": "pass"}`) || !good && !errors.Is(err, chat.ErrBadReply) {
					t.Errorf("got %s, %v", reply.JSON, err)
				}
			})
		}
	}
}

// A server that takes no schema gets it in words, once and for all.
func TestAnEndpointWithoutSchemas(t *testing.T) {
	t.Parallel()
	asks(t, judge, func(q chattest.Question) chattest.Answer {
		if strings.Contains(string(q.Body), `"format"`) || strings.Contains(string(q.Body), `"response_format"`) || strings.Contains(string(q.Body), `"responseJsonSchema"`) {
			return chattest.Answer{Status: http.StatusBadRequest, Body: `{"error": {"message": "json_schema is not supported by this model"}}`}
		}
		return chattest.Answer{Text: `{"verdict": "fail"}`}
	}, func(t *testing.T, r chat.Reply, err error, q []chattest.Question) {
		t.Helper()
		if err != nil || string(r.JSON) != `{"verdict": "fail"}` || len(q) != 2 || !strings.Contains(string(q[1].Body), "has to match this JSON Schema") {
			t.Errorf("got %s, %v after %d questions", r.JSON, err, len(q))
		}
	})
}

func TestAReplyThatCallsToolsIsNotChecked(t *testing.T) {
	t.Parallel()
	r := judge
	r.Tools = []chat.Tool{{Name: "look", Parameters: json.RawMessage(`{"type":"object"}`)}}
	asks(t, r, func(chattest.Question) chattest.Answer {
		return chattest.Answer{Text: "I look first.", Calls: []chat.Call{{ID: "1", Name: "look", Arguments: json.RawMessage(`{}`)}}}
	}, func(t *testing.T, r chat.Reply, err error, q []chattest.Question) {
		t.Helper()
		if err != nil || r.JSON != nil || len(r.Calls) != 1 || len(q) != 1 {
			t.Errorf("got %+v, %v", r, err)
		}
	})
}
