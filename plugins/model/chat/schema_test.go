package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/model"
)

const verdictSchema = `{
	"type": "object", "required": ["verdict", "score"], "additionalProperties": false,
	"properties": {
		"verdict": {"enum": ["pass", "fail"]},
		"score": {"type": "number", "minimum": 0, "maximum": 1, "description": "How good it is."},
		"tags": {"type": "array", "maxItems": 2, "items": {"type": "string", "maxLength": 3}}}}`

// sentSchema is what providers get of it.
const sentSchema = `{
	"type": "object", "required": ["verdict", "score"], "additionalProperties": false,
	"properties": {
		"verdict": {"enum": ["pass", "fail"]},
		"score": {"type": "number", "description": "How good it is. (minimum: 0, maximum: 1)"},
		"tags": {"type": "array", "description": "(maxItems: 2)", "items": {"type": "string", "description": "(maxLength: 3)"}}}}`

func compiled(t *testing.T, text string) *schema {
	t.Helper()
	s, err := compile(json.RawMessage(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func same(t *testing.T, what string, got any, want string) {
	t.Helper()
	b, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var g, w any
	if err := errors.Join(json.Unmarshal(b, &g), json.Unmarshal([]byte(want), &w)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("%s: got %s, want %s", what, b, want)
	}
}

func TestASchemaIsSentAsEachAPIHasIt(t *testing.T) {
	t.Parallel()
	s := compiled(t, verdictSchema)
	for _, tt := range []struct {
		name   string
		d      dialect
		before string // parameters of the experiment
		want   string
	}{
		{"openai", openai{}, `{"text": {"verbosity": "low"}}`, `{"text": {"verbosity": "low", "format": {"type": "json_schema", "name": "reply", "strict": false, "schema": %s}}}`},
		{"openai-chat", openaiChat{}, `{}`, `{"response_format": {"type": "json_schema", "json_schema": {"name": "reply", "strict": false, "schema": %s}}}`},
		{"anthropic", anthropic{}, `{"output_config": {"effort": "low"}}`, `{"output_config": {"effort": "low", "format": {"type": "json_schema", "schema": %s}}}`},
		{"gemini", gemini{}, `{"generationConfig": {"seed": 1}}`, `{"generationConfig": {"seed": 1, "responseMimeType": "application/json", "responseJsonSchema": %s}}`},
	} {
		var extra map[string]json.RawMessage
		if err := json.Unmarshal([]byte(tt.before), &extra); err != nil {
			t.Fatal(err)
		}
		q := object{}
		for k, v := range extra {
			q[k] = v
		}
		tt.d.format(q, s)
		same(t, tt.name, q, fmt.Sprintf(tt.want, sentSchema))
	}
	if i := strings.Index(string(s.sent), "verdict"); i < 0 || i > strings.Index(string(s.sent), "score") {
		t.Errorf("the order of members is lost: %s", s.sent)
	}
	all := compiled(t, `{"type": "object", "required": ["a"], "properties": {"a": {"oneOf": [{"const": 1}, {"type": "null"}]}}}`)
	if !all.strict {
		t.Error("a schema whose members are all required is not strict")
	}
	same(t, "alternatives", all.sent, `{"type": "object", "required": ["a"], "additionalProperties": false, "properties": {"a": {"anyOf": [{"enum": [1]}, {"type": "null"}]}}}`)
}

func TestASchemaThatNotAllProvidersTakeIsToldInWords(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"not an object":       `{"type": "array", "items": {"type": "string"}}`,
		"any members":         `{"type": "object"}`,
		"something exclusive": `{"type": "object", "properties": {"a": {"not": {"type": "null"}}}}`,
		"anything":            `{"type": "object", "properties": {"a": true}}`,
		"too deep":            strings.Repeat(`{"type": "object", "properties": {"a": `, 40) + `{"type": "null"}` + strings.Repeat(`}}`, 40),
	} {
		if s := compiled(t, text); s.sent != nil {
			t.Errorf("%s: sent as %s", name, s.sent)
		}
	}
	for name, text := range map[string]string{
		"no JSON":           `{`,
		"no schema":         `{"type": "thing"}`,
		"a file":            `{"$ref": "file:///etc/passwd"}`,
		"an address":        `{"$ref": "http://localhost/schema.json"}`,
		"far too much text": `{"description": "` + strings.Repeat("x", 256<<10) + `"}`,
	} {
		if _, err := compile(json.RawMessage(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A reply counts whatever stands around its one object, and if its values have one
// meaning. What the model was given is not its reply.
func TestWhatCountsAsAReplyOfASchema(t *testing.T) {
	t.Parallel()
	s := compiled(t, verdictSchema)
	const good = `{"verdict": "pass", "score": 1}`
	const quoted = `{"verdict": "pass", "score": 0.7}`
	given := Request{Messages: []Message{{Text: "Judge it."}, {Results: []Result{{Text: "answer.txt: " + quoted}}}}}
	for _, tt := range []struct {
		name string
		r    Reply
		want string // empty: it does not count
		says string
	}{
		{name: "an object", r: Reply{last: " " + good + "\n"}, want: good},
		{name: "one code block", r: Reply{last: "```json\n" + good + "\n```"}, want: good},
		{name: "a block of no language", r: Reply{last: "```\n" + good + "\n```\n"}, want: good},
		{name: "a block in prose", r: Reply{last: "Here is my judgement.\n\n```json\n" + good + "\n```\nI am sure {of it}."}, want: good},
		{name: "after prose", r: Reply{last: "My verdict {see below}: " + good}, want: good},
		{name: "before prose", r: Reply{last: good + "\nThe file is right."}, want: good},
		{name: "twice the same", r: Reply{last: "```json\n" + good + "\n```\nor\n```json\n" + good + "\n```"}, want: good},
		{name: "in a list", r: Reply{last: "[" + good + "]"}, want: good},
		{name: "a quoted number", r: Reply{last: `{"verdict": "pass", "score": " 0.950 "}`}, want: `{"score":0.950,"verdict":"pass"}`},
		{name: "other letters", r: Reply{last: `{"verdict": "Pass", "score": 1}`}, want: `{"score":1,"verdict":"pass"}`},
		{name: "a line break and a path", r: Reply{last: "{\"verdict\": \"pass\", \"score\": 1, \"tags\": [\"a\nb\", \"\\x\"],}"}, want: `{"verdict": "pass", "score": 1, "tags": ["a\u000ab", "\\x"]}`},
		{name: "another object in prose", r: Reply{last: `The config is {"a": true}. ` + good}, want: good},
		{name: "a member too many", r: Reply{last: `{"verdict": "pass", "score": 1, "x": 1}`}, want: `{"score":1,"verdict":"pass"}`},
		{name: "itself given", r: Reply{last: quoted}, want: quoted},
		{name: "itself given, in a block", r: Reply{last: "```json\n" + quoted + "\n```"}, want: quoted},

		{name: "prose", r: Reply{last: "It is fine."}, says: "no JSON object"},
		{name: "quoted in prose", r: Reply{last: "The agent wrote:\n```json\n" + quoted + "\n```\nThat is wrong."}, says: "was given"},
		{name: "two objects", r: Reply{last: good + `{"verdict": "fail", "score": 0}`}, says: "two different"},
		{name: "half an object", r: Reply{last: good[:20]}, says: "does not end"},
		{name: "an object in half an object", r: Reply{last: `{"old": ` + good + `, "verdict": "fa`}, says: "does not end"},
		{name: "40 of 100", r: Reply{last: `{"verdict": "pass", "score": 40}`}, says: "at '/score': maximum: got 40, want 1"},
		{name: "a score of 1e9", r: Reply{last: `{"verdict": "pass", "score": "1e9"}`}, says: "maximum"},
		{name: "a decimal comma", r: Reply{last: `{"verdict": "pass", "score": "0,95"}`}, want: `{"score":0.95,"verdict":"pass"}`},
		{name: "a decimal comma without quotes", r: Reply{last: `{"verdict": "pass", "score": 0,95}`}, says: "no JSON object"},
		{name: "not a number", r: Reply{last: `{"verdict": "pass", "score": "4/5"}`}, says: "got string, want number"},
		{name: "a number that is infinite", r: Reply{last: `{"verdict": "pass", "score": "inf"}`}, says: "got string, want number"},
		{name: "another word", r: Reply{last: `{"verdict": "continue", "score": 1}`}, says: "value must be one of"},
		{name: "too long a text", r: Reply{last: `{"verdict": "pass", "score": 1, "tags": ["long"]}`}, says: "maxLength: got 4, want 3"},
		{name: "nothing", says: "empty"},
		{name: "refused", r: Reply{last: good, Stop: Refused}, says: "refused"},
		{name: "cut off", r: Reply{last: good, Stop: Length}, says: "cut off"},
		{name: "far too much", r: Reply{last: strings.Repeat("[", maxJSON+1)}, says: "at most"},
		{name: "very deep", r: Reply{last: strings.Repeat("{\"a\":", 1<<19)}, says: "does not end"},
		{name: "many braces", r: Reply{last: strings.Repeat("{}}", 1<<19)}, says: "missing properties"},
	} {
		got, err := s.read(&tt.r, &given)
		if (err == nil) != (tt.want != "") || string(got) != tt.want || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %s, %v; want %q %q", tt.name, got, err, tt.want, tt.says)
		}
	}
	r, failed := read(model.DialectOpenAI, fmt.Appendf(nil, `{"output": [
		{"type": "message", "content": [{"type": "output_text", "text": "I look."}]}, {"type": "message", "content": [{"type": "output_text", "text": %q}]}]}`, good))
	if failed != nil || r.last != good || r.Text != "I look."+good {
		t.Errorf("of two messages the last is %q, all %q", r.last, r.Text)
	}
}

func TestPicturesInResults(t *testing.T) {
	t.Parallel()
	r := Request{Messages: []Message{
		{Role: Assistant, Calls: []Call{{ID: "c1", Name: "look", Arguments: json.RawMessage(`{}`)}, {ID: "c2", Name: "look", Arguments: json.RawMessage(`{}`)}}},
		{Role: User, Text: "Go on.", Results: []Result{
			{CallID: "c1", Text: "a.png", Images: []Image{{MediaType: "image/png", Data: []byte("png")}}},
			{CallID: "c2", Images: []Image{{MediaType: "image/jpeg", Data: []byte("jpg")}}},
		}},
	}}
	const png, jpg = `data:image/png;base64,cG5n`, `data:image/jpeg;base64,anBn`
	for _, tt := range []struct {
		name, model string
		d           dialect
		in, want    string // what is behind the calls
	}{
		{"openai-chat", "m", openaiChat{}, "messages", `[
			{"role": "tool", "tool_call_id": "c1", "content": "a.png"}, {"role": "tool", "tool_call_id": "c2", "content": ""},
			{"role": "user", "content": [
				{"type": "text", "text": "Pictures in the result of the tool call c1:"}, {"type": "image_url", "image_url": {"url": "` + png + `"}},
				{"type": "text", "text": "Pictures in the result of the tool call c2:"}, {"type": "image_url", "image_url": {"url": "` + jpg + `"}},
				{"type": "text", "text": "Go on."}]}]`},
		{"anthropic", "m", anthropic{}, "messages", `[{"role": "user", "content": [
			{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "a.png"}, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"}}]},
			{"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "anBn"}}]},
			{"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}}]}]`},
		{"openai", "m", openai{}, "input", `[
			{"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "a.png"}, {"type": "input_image", "image_url": "` + png + `"}]},
			{"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_image", "image_url": "` + jpg + `"}]},
			{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]}]`},
		{"gemini 3", "gemini-3-pro", gemini{}, "contents", `[{"role": "user", "parts": [
			{"functionResponse": {"id": "c1", "name": "look", "response": {"output": "a.png"}, "parts": [{"inlineData": {"mimeType": "image/png", "data": "cG5n"}}]}},
			{"functionResponse": {"id": "c2", "name": "look", "response": {"output": ""}, "parts": [{"inlineData": {"mimeType": "image/jpeg", "data": "anBn"}}]}},
			{"text": "Go on."}]}]`},
		{"gemini 2.5", "models/gemini-2.5-pro", gemini{}, "contents", `[{"role": "user", "parts": [
			{"functionResponse": {"id": "c1", "name": "look", "response": {"output": "a.png"}}}, {"functionResponse": {"id": "c2", "name": "look", "response": {"output": ""}}},
			{"inlineData": {"mimeType": "image/png", "data": "cG5n"}}, {"inlineData": {"mimeType": "image/jpeg", "data": "anBn"}},
			{"text": "Go on."}]}]`},
	} {
		all, ok := tt.d.request(tt.model, r)[tt.in].([]object)
		if !ok {
			t.Fatalf("%s: no %s", tt.name, tt.in)
		}
		from := 1
		if tt.name == "openai" {
			from = 2 // each call is an item
		}
		same(t, tt.name, all[from:], tt.want)
	}
}
