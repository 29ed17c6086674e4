package chat_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

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

func TestAWrongTokenIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	s := chattest.Serve(t, model.DialectOpenAIChat, chattest.Script("hi"))
	s.Endpoint.Token = "other"
	c, err := chat.Dial(s.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = c.Ask(t.Context(), chat.Request{}); err == nil || !strings.Contains(err.Error(), "wrong token") {
		t.Errorf("got %v; want what the endpoint said", err)
	}
}
