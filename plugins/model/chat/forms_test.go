package chat

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	wire "github.com/berth-eval/berth/plugins/dialect"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/model/answer"
)

// forms are the forms in which the servers of a dialect give one answer: the text
// "Hello", 1234 tokens of input of which the cache had 1000, 56 of output. Each
// combination of a place and a form of usage, of content and of an end is tried.
// In a template, ‹content›, ‹usage› and ‹end› stand for one of them.
type forms struct {
	whole    []string // one for each place of usage
	contents []string
	records  []string
	ends     []string

	stream []string // one for each place of usage; ‹content› is a text
	stops  []string // the ends of a stream
}

var thinks = []string{
	`[{"type":"thinking","thinking":"hm"},{"type":"text","text":"Hello"}]`, `"<think>\nhm\n</think>\n\nHello"`, `"hm\n</think>\nHello"`, `"<reasoning>hm</reasoning>Hello"`,
	`"Hello"`, `[{"type":"text","text":"Hello"}]`, `["Hel","lo"]`, `{"type":"text","text":"Hello"}`,
}

var allForms = map[model.Dialect]forms{
	model.DialectOpenAIChat: {
		whole: []string{
			`{"model":"m","choices":[{"message":{"content":‹content›}‹end›}],"usage":‹usage›}`,
			`{"model":"m","choices":[{"message":{"content":‹content›}‹end›}],"x_groq":{"id":"r","usage":‹usage›}}`,
			`{"model":"m","choices":[{"message":{"content":‹content›}‹end›,"usage":‹usage›}],"usage":null}`,
			`{"model":"m","choices":[{"message":{"content":‹content›,"usage":‹usage›}‹end›}],"usage":{}}`,
			`{"model":"m","choices":{"message":{"content":‹content›,"tool_calls":"none","refusal":7}‹end›},"usage":‹usage›,"id":7,"created":"now"}`,
		},
		contents: append([]string{`[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"Hello"}]`}, thinks...),
		records: []string{
			`{"prompt_tokens":1234,"completion_tokens":56,"total_tokens":1290,"prompt_tokens_details":{"cached_tokens":1000}}`,
			`{"prompt_tokens":1234,"completion_tokens":56,"total_tokens":1290,"cached_tokens":1000,"prompt_tokens_details":null}`,
			`{"prompt_tokens":1234,"completion_tokens":56,"prompt_cache_hit_tokens":1000,"prompt_cache_miss_tokens":234}`,
			`{"prompt_tokens":234,"completion_tokens":56,"cache_read_input_tokens":1000}`,
			`{"prompt_tokens":1234,"total_tokens":1290,"cached_tokens":1000,"completion_tokens":null}`,
			`{"input_tokens":1234,"output_tokens":56,"input_tokens_details":{"cached_tokens":1000}}`,
			`{"prompt_tokens":1234,"completion_tokens":16,"total_tokens":1290,"cached_tokens":1000,"completion_tokens_details":{"reasoning_tokens":40}}`,
		},
		ends: []string{`,"finish_reason":"stop"`, `,"finish_reason":null`, ``, `,"finish_reason":"of_its_own"`, `,"finish_reason":1`},
		stream: []string{
			"data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"},\"finish_reason\":null}]}\n\ndata: {\"choices\":[],\"usage\":‹usage›}\n\n‹end›",
			"data: {\"choices\":[{\"delta\":{\"content\":[{\"text\":\"Hello\"}]},\"finish_reason\":\"\"}],\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":0}}\n\ndata: {\"choices\":[{\"delta\":{},\"usage\":‹usage›}]}\n\n‹end›",
			"data:{\"choices\":[{\"delta\":{\"content\":\"Hello\"}}],\"usage\":{\"prompt_tokens\":1234,\"completion_tokens\":1}}\r\n\r\ndata:{\"choices\":[{\"delta\":{}}],\"x_groq\":{\"usage\":‹usage›}}\r\n\r\n‹end›",
			"data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"}}],\"usage\":‹usage›}\n\n: a comment\n\ndata: {\"choices\":[{\"delta\":{}}],\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":0}}\n\n‹end›",
			"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"arguments\":{\"a\":1}}}],\"content\":null}}],\"usage\":‹usage›}\n\n‹end›",
		},
		stops: []string{
			"data: {\"choices\":[],\"usage\":{}}\n\n", "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
			"data: [DONE]\n\n", "data: [DONE]\n", "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}", "data: {\"choices\":[{\"finish_reason\":3}]}\n\n",
		},
	},
	model.DialectAnthropic: {
		whole: []string{
			`{"type":"message","model":"m","content":‹content›,"usage":‹usage›‹end›}`, `{"model":"m","content":‹content›,"x_router":{"usage":‹usage›}‹end›}`,
			`{"type":"message","id":7,"role":null,"content":‹content›,"usage":‹usage›,"container":[]‹end›}`,
		},
		contents: thinks,
		records: []string{
			`{"input_tokens":234,"cache_read_input_tokens":1000,"cache_creation_input_tokens":null,"output_tokens":56,"server_tool_use":null}`,
			`{"input_tokens":1234,"input_tokens_details":{"cached_tokens":1000},"output_tokens":56}`,
			`{"prompt_tokens":1234,"completion_tokens":56,"total_tokens":1290,"prompt_tokens_details":{"cached_tokens":1000}}`,
		},
		ends: []string{`,"stop_reason":"end_turn"`, `,"stop_reason":null`, ``, `,"stop_reason":"of_its_own"`, `,"stop_reason":{}`},
		stream: []string{
			"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[],\"usage\":{\"input_tokens\":0,\"output_tokens\":0}}}\n\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"Hello\"}}\n\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":‹usage›}\n\n‹end›",
			"data: {\"type\":\"message_start\",\"message\":{\"usage\":‹usage›}}\n\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":7}}\n\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":0}}\n\n‹end›",
			"data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\ndata: {\"type\":\"message_delta\",\"delta\":{\"usage\":‹usage›}}\n\n‹end›",
		},
		stops: []string{
			"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n", "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n", "data: [DONE]\n\n", "data: {\"type\":\"message_stop\"}\n",
		},
	},
	model.DialectOpenAI: {
		whole: []string{
			`{"object":"response","model":"m","output":[{"type":"message","content":‹content›}],"usage":‹usage›‹end›}`,
			`{"model":"m","output":{"type":"message","content":‹content›},"metrics":{"usage":‹usage›}‹end›}`,
			`{"id":7,"error":{},"output":[{"type":"message","content":‹content›}],"usage":‹usage›,"incomplete_details":"none"‹end›}`,
		},
		contents: append([]string{`[{"type":"output_text","text":"Hello","annotations":[]}]`}, thinks...),
		records: []string{
			`{"input_tokens":1234,"input_tokens_details":{"cached_tokens":1000},"output_tokens":56,"output_tokens_details":{"reasoning_tokens":40},"total_tokens":1290}`,
			`{"prompt_tokens":1234,"cached_tokens":1000,"completion_tokens":56}`, `{"input_tokens":234,"cache_read_input_tokens":1000,"output_tokens":56,"total_tokens":1290}`,
		},
		ends: []string{`,"status":"completed"`, `,"status":null`, ``, `,"status":4`},
		stream: []string{
			"data: {\"type\":\"response.output_text.delta\",\"delta\":\"Hello\"}\n\ndata: {\"type\":\"response.in_progress\",\"response\":{\"usage\":‹usage›}}\n\n‹end›",
			"data: {\"type\":\"response.created\",\"response\":{\"usage\":null,\"error\":null}}\n\ndata: {\"type\":\"response.output_text.delta\",\"delta\":{\"text\":\"Hello\"}}\n\ndata: {\"type\":\"usage\",\"usage\":‹usage›}\n\n‹end›",
		},
		stops: []string{
			"data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[],\"usage\":{\"input_tokens\":0,\"output_tokens\":0}}}\n\n", "data: {\"type\":\"response.incomplete\",\"response\":{}}\n\n",
			"data: [DONE]\n\n", "data: {\"type\":\"response.done\",\"response\":7}\n",
		},
	},
	model.DialectGemini: {
		whole: []string{
			`{"modelVersion":"m","candidates":[{"content":{"parts":‹content›}‹end›}],"usageMetadata":‹usage›}`, `{"candidates":[{"content":‹content›‹end›}],"usage_metadata":‹usage›,"promptFeedback":{}}`,
			`{"candidates":{"content":{"parts":‹content›},"usageMetadata":‹usage›‹end›},"responseId":7}`,
		},
		contents: append([]string{`[{"thought":true,"text":"hm"},{"text":"Hello"}]`}, thinks...),
		records: []string{
			`{"promptTokenCount":1234,"cachedContentTokenCount":1000,"candidatesTokenCount":16,"thoughtsTokenCount":40,"totalTokenCount":1290}`,
			`{"promptTokenCount":1234,"cachedContentTokenCount":1000,"candidatesTokenCount":16,"totalTokenCount":1290}`,
			`{"prompt_token_count":1234,"cached_content_token_count":1000,"candidates_token_count":56}`, `{"prompt_tokens":1234,"cached_tokens":1000,"completion_tokens":56}`,
		},
		ends: []string{`,"finishReason":"STOP"`, `,"finishReason":null`, ``, `,"finishReason":1`},
		stream: []string{
			"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hello\"}]}}],\"usageMetadata\":{\"promptTokenCount\":1234,\"totalTokenCount\":1234}}\n\ndata: {\"candidates\":[{}],\"usageMetadata\":‹usage›}\n\n‹end›",
			"data: {\"candidates\":[{\"content\":{\"parts\":\"Hello\"}}],\"usageMetadata\":‹usage›}\n\ndata: {\"usageMetadata\":{\"trafficType\":\"ON_DEMAND\"}}\n\n‹end›",
		},
		stops: []string{"data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\n\n", "data: {\"candidates\":[{\"finishReason\":\"MAX_TOKENS\"}]}\r\n\r\n", "data: [DONE]\n\n", "data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}"},
	},
}

// numbers are the forms of a number.
var numbers = []string{"$1", "$1.0", `"$1"`, "${1}e0"}

var digits = regexp.MustCompile(`:(\d+)`)

// each calls f with each combination of a template, a content, a record of usage
// with each form of numbers, and an end.
func each(templates, contents, records, ends []string, f func(body string)) {
	for _, t := range templates {
		for _, c := range contents {
			for _, r := range records {
				for _, n := range numbers {
					for _, e := range ends {
						usage := digits.ReplaceAllString(r, ":"+n)
						f(strings.NewReplacer("‹content›", c, "‹usage›", usage, "‹end›", e).Replace(t))
					}
				}
			}
		}
	}
}

// Whatever the forms of its members, the meter of the gateway and our own client
// read the same from an answer.
func TestAnswersInAllForms(t *testing.T) {
	t.Parallel()
	for d, f := range allForms {
		t.Run(string(d), func(t *testing.T) {
			t.Parallel()
			n := 0
			each(f.whole, f.contents, f.records, f.ends, func(body string) {
				n++
				metered(t, d, body)
				r, failed := read(d, []byte(body))
				if failed != nil || r.Text != "Hello" || r.Stop != Done || strings.Contains(body, "hm") != (r.Thinking == "hm") {
					t.Errorf("the client read %+v, %+v of %s", r, failed, body)
				} else if u := r.Usage; u.Input == nil || u.Cached == nil || u.Output == nil || *u.Input != 1234 || *u.Cached != 1000 || *u.Output != 56 {
					t.Errorf("the client counted %s of %s", wire.JSON(u), body)
				}
			})
			each(f.stream, []string{""}, f.records, f.stops, func(body string) {
				n++
				metered(t, d, body)
			})
			t.Logf("%d answers", n)
		})
	}
}

func metered(t *testing.T, d model.Dialect, body string) {
	t.Helper()
	m := answer.NewMeter(d)
	m.Body([]byte(body))
	r := m.Read()
	if u := r.Usage; u.Input != 1234 || u.Cached != 1000 || u.Output != 56 || !r.Complete || !r.Ended || r.Invalid || r.Error != "" {
		t.Errorf("metered %s\nof %s", wire.JSON(r), body)
	}
}

// A member of an unknown form counts as absent and is named. The rest is read.
func TestMembersOfUnknownFormsAreNamed(t *testing.T) {
	t.Parallel()
	const usage = `"usage":{"prompt_tokens":1234,"completion_tokens":56}`
	for _, tt := range []struct {
		name, body string
		notes      []string
		unread     bool // by the client
		unknown    bool // the usage
	}{
		{name: "content", body: `{"choices":[{"message":{"content":42}}],` + usage + `}`, notes: []string{"choices[].message.content is a number"}, unread: true},
		{name: "a part", body: `{"choices":[{"message":{"content":["a",true]}}],` + usage + `}`, notes: []string{"choices[].message.content[] is true"}},
		{name: "a message", body: `{"choices":[{"message":"Hi"}],` + usage + `}`, notes: []string{"choices[].message is a text"}, unread: true},
		{name: "choices", body: `{"choices":"Hi",` + usage + `}`, notes: []string{"choices is a text"}, unread: true},
		{name: "calls", body: `{"choices":[{"message":{"content":"a","tool_calls":[7]}}],` + usage + `}`, notes: []string{"choices[].message.tool_calls[] is a number"}},
		{name: "reasoning", body: `{"choices":[{"message":{"content":"a","reasoning":8}}],` + usage + `}`, notes: []string{"choices[].message.reasoning is a number"}},
		{name: "cached", body: `{"choices":[{"message":{"content":"a"}}],"usage":{"prompt_tokens":1234,"completion_tokens":56,"cached_tokens":{"a":1}}}`, notes: []string{"usage.cached_tokens is an object"}},
		{name: "a cost", body: `{"choices":[{"message":{"content":"a"}}],"usage":{"prompt_tokens":1234,"completion_tokens":56,"cost":"cheap"}}`, notes: []string{"usage.cost is a text"}},
		{name: "input", body: `{"choices":[{"message":{"content":"a"}}],"usage":{"prompt_tokens":-1,"completion_tokens":56}}`, notes: []string{"usage.prompt_tokens is a number"}, unknown: true},
		{name: "usage", body: `{"choices":[{"message":{"content":"a"}}],"usage":[1234,56]}`, notes: []string{"usage is a list"}, unknown: true},
	} {
		m := answer.NewMeter(model.DialectOpenAIChat)
		m.Body([]byte(tt.body))
		r := m.Read()
		if !slices.Equal(r.Notes, tt.notes) || r.Complete == tt.unknown || r.Ended == tt.unread {
			t.Errorf("%s: metered %s", tt.name, wire.JSON(r))
		}
		if _, failed := read(model.DialectOpenAIChat, []byte(tt.body)); (failed != nil) != tt.unread || failed != nil && failed.again {
			t.Errorf("%s: the client says %+v", tt.name, failed)
		}
	}
}

func TestArgumentsOfCalls(t *testing.T) {
	t.Parallel()
	whole := map[model.Dialect]string{
		model.DialectOpenAIChat: `{"choices":[{"message":{"content":null,"tool_calls":[{"id":"t1","type":"function","function":{"name":"list","arguments":%s}}]}}]}`,
		model.DialectAnthropic:  `{"content":[{"type":"tool_use","id":"t1","name":"list","input":%s}]}`,
		model.DialectOpenAI:     `{"output":[{"type":"function_call","call_id":"t1","name":"list","arguments":%s}]}`,
		model.DialectGemini:     `{"candidates":[{"content":{"parts":[{"functionCall":{"id":"t1","name":"list","args":%s}}]}}]}`,
	}
	for d, body := range whole {
		for in, want := range map[string]string{
			`"{\"folder\":\"\"}"`: `{"folder":""}`, `{"folder":""}`: `{"folder":""}`, `""`: `{}`, `null`: `{}`, `" "`: `{}`, `"{\"folder\":\"\"}\"\""`: `{"folder":""}`,
			`"{\"folder\":\"\"}{\"folder\":\"\"}"`: `{"folder":""}`, `"\"{\\\"folder\\\":\\\"\\\"}\""`: `{"folder":""}`, `"null"`: `{}`, `"{\"folder"`: `{"folder`, `["a"]`: `["a"]`,
		} {
			r, failed := read(d, fmt.Appendf(nil, body, in))
			if failed != nil || len(r.Calls) != 1 || r.Calls[0].ID != "t1" || r.Calls[0].Name != "list" || string(r.Calls[0].Arguments) != want {
				t.Errorf("%s: %s became %+v, %+v; want %s", d, in, r.Calls, failed, want)
			}
		}
	}
}

func TestErrorsInPlaceOfAReply(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		d          model.Dialect
		body, want string
		paid       bool
	}{
		{model.DialectOpenAIChat, `{"error":"out of memory"}`, "out of memory", false},
		{model.DialectOpenAIChat, `{"error":{"message":"out of memory","code":503}}`, "out of memory", false},
		{model.DialectOpenAIChat, `{"object":"error","message":"out of memory","type":"ServerError","code":503}`, "ServerError: out of memory", false},
		{model.DialectOpenAIChat, `{"choices":[{"error":{"message":"out of memory"},"message":{"content":""},"finish_reason":"error"}]}`, "out of memory", false},
		{model.DialectOpenAIChat, `{"choices":[{"message":{"content":""},"finish_reason":"error"}],"usage":{"prompt_tokens":5,"completion_tokens":1}}`, `finish_reason is "error"`, true},
		{model.DialectAnthropic, `{"type":"error","error":{"type":"overloaded_error","message":"out of memory"}}`, "overloaded_error: out of memory", false},
		{model.DialectOpenAI, `{"status":"failed","output":[],"error":{"code":"server_error","message":"out of memory"}}`, "server_error: out of memory", false},
		{model.DialectGemini, `{"error":{"code":503,"status":"UNAVAILABLE","message":"out of memory"}}`, "UNAVAILABLE: out of memory", false},
	} {
		m := answer.NewMeter(tt.d)
		m.Body([]byte(tt.body))
		if got := m.Read().Error; !strings.HasSuffix(got, tt.want) {
			t.Errorf("metered %q of %s; want %q", got, tt.body, tt.want)
		}
		if _, failed := read(tt.d, []byte(tt.body)); failed == nil || !strings.Contains(failed.err.Error(), tt.want) || failed.again == tt.paid {
			t.Errorf("the client says %+v of %s; want %q, again %v", failed, tt.body, tt.want, !tt.paid)
		}
	}
	m := answer.NewMeter(model.DialectOpenAIChat)
	m.Body([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\nevent: error\ndata: out of memory\n\n"))
	if r := m.Read(); r.Error != "out of memory" || r.Invalid || r.Ended {
		t.Errorf("metered %s", wire.JSON(r))
	}
}

func TestTheCostThatAProviderStates(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]float64{
		`0.0123`: 0.0123, `"0.0123"`: 0.0123, `{"total_cost":0.0123,"input_tokens_cost":0.01}`: 0.0123, `0`: 0, `0.01,"is_byok":true,"cost_details":{"upstream_inference_cost":0.0023}`: 0.0123,
		`null`: -1, `"cheap"`: -1, `-1`: -1, `[]`: -1, `true`: -1,
	} {
		m := answer.NewMeter(model.DialectOpenAIChat)
		m.Body(fmt.Appendf(nil, `{"choices":[{"message":{"content":"a"}}],"usage":{"prompt_tokens":1,"completion_tokens":1,"cost":%s}}`, in))
		got := -1.0
		if usd := m.Read().StatedUSD; usd != nil {
			got = *usd
		}
		if got != want {
			t.Errorf("the cost %s is %g; want %g", in, got, want)
		}
	}
}

// A record of usage in what the model wrote, or in what repeats the request, is
// not the provider's.
func TestUsageThatIsNotTheProviders(t *testing.T) {
	t.Parallel()
	for d, body := range map[model.Dialect]string{
		model.DialectOpenAIChat: `{"choices":[{"message":{"content":"a","function_call":{"name":"f","arguments":{"usage":{"prompt_tokens":9}}}}}],"metadata":{"usage":{"prompt_tokens":9}}}`,
		model.DialectAnthropic:  "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"tool_use\",\"input\":{\"usage\":{\"input_tokens\":9,\"output_tokens\":9}}}}\n\n",
		model.DialectOpenAI:     `{"output":[{"type":"function_call","arguments":{"usage":{"input_tokens":9}}}],"tools":{"usage":{"input_tokens":9}}}`,
	} {
		m := answer.NewMeter(d)
		m.Body([]byte(body))
		if r := m.Read(); r.Raw != nil || r.Usage != (wire.Usage{}) {
			t.Errorf("%s: metered %s", d, wire.JSON(r))
		}
	}
}
