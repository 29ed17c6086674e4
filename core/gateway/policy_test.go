package gateway

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/plugins/verifier"
)

func TestPolicy(t *testing.T) {
	t.Parallel()
	p := provide(t, replies(`{"usage":{"input_tokens":3,"output_tokens":4}}`))
	m := p.model("anthropic")
	m.Parameters = json.RawMessage(`{"temperature":0,"thinking":{"type":"enabled"}}`)
	m.AllowModels = []string{"m2"}
	b := start(t, m)
	b.ask(t.Context(), t, "/v1/messages", `{"model":"big-one","thinking":{"budget_tokens":5},"tools":[{"type":"web_search_20250305","name":"web_search"},{"name":"bash"}],"messages":[]}`)
	want := `{"model":"m1","thinking":{"budget_tokens":5,"type":"enabled"},"tools":[{"name":"bash"}],"messages":[],"temperature":0}`
	if p.bodies[0] != want {
		t.Errorf("sent %s\nwant %s", p.bodies[0], want)
	}
	b.ask(t.Context(), t, "/v1/messages", `{"model":"m2","messages":[]}`)
	if !strings.Contains(p.bodies[1], `"m2"`) {
		t.Errorf("an allowed model was replaced: %s", p.bodies[1])
	}
	codes := ""
	for _, f := range b.Findings() {
		codes += f.Code + " "
	}
	if codes != "other_model hosted_tool " {
		t.Errorf("findings %q", codes)
	}
	if p.heads[0].Get("X-Api-Key") != canaryKey || p.heads[0].Get("Authorization") != "" {
		t.Errorf("headers %v", p.heads[0])
	}
}

// An allowed model has its own price, or none if that is unknown, whatever the
// experiment's model costs.
func TestTheCostOfAnAllowedModel(t *testing.T) {
	t.Parallel()
	p := provide(t, replies(`{"usage":{"input_tokens":1000,"output_tokens":1000}}`))
	m := p.model("anthropic")
	m.Price, m.AllowModels = priced(1, 1, 1, 1), []string{"m2"}
	b := start(t, m)
	b.ask(t.Context(), t, "/v1/messages", `{"model":"m2","messages":[]}`)
	if x := b.last(t); x.Model != "m2" || x.CostUSD != nil || b.Usage()[0].CostUSD != nil {
		t.Errorf("written down %+v, usage %+v", x, b.Usage())
	}
	limit := 1.0
	if _, err := New(Options{Dialects: dialects.All, Dir: t.TempDir(), Models: []*cell.Model{&m}, Run: cell.Budget{CostUSD: &limit}}); err == nil || !strings.Contains(err.Error(), `of "m2" the price is not known`) {
		t.Errorf("a budget in USD with it: %v", err)
	}
}

// If a request requires a tool of the provider, the tool cannot be left out.
// The request is refused and not forwarded.
func TestToolsOfTheProviderAreNotForced(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, path, body string
		refused          bool
	}{
		{"offered", "/v1/responses", `{"input":"x","tools":[{"type":"web_search"},{"type":"function","name":"f"}],"tool_choice":"auto"}`, false},
		{"one of two", "/v1/responses", `{"input":"x","tools":[{"type":"web_search"},{"type":"function","name":"f"}],"tool_choice":"required"}`, false},
		{"a function", "/v1/responses", `{"input":"x","tools":[{"type":"web_search"},{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"f"}}`, false},
		{"by type", "/v1/responses", `{"input":"x","tools":[{"type":"web_search"},{"type":"function","name":"f"}],"tool_choice":{"type":"web_search"}}`, true},
		{"the only one", "/v1/responses", `{"input":"x","tools":[{"type":"web_search"}],"tool_choice":"required"}`, true},
		{"the only one allowed", "/v1/responses", `{"input":"x","tools":[{"type":"web_search"},{"type":"function","name":"f"}],"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"web_search"}]}}`, true},
		{"allowed", "/v1/responses", `{"input":"x","tools":[{"type":"web_search"},{"type":"function","name":"f"}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"web_search"}]}}`, false},
		{"by name", "/v1/messages", `{"messages":[],"tools":[{"type":"web_search_20250305","name":"web_search"},{"name":"f"}],"tool_choice":{"type":"tool","name":"web_search"}}`, true},
		{"a function by name", "/v1/messages", `{"messages":[],"tools":[{"type":"web_search_20250305","name":"web_search"},{"name":"f"}],"tool_choice":{"type":"tool","name":"f"}}`, false},
		{"any of one", "/v1/messages", `{"messages":[],"tools":[{"type":"web_search_20250305","name":"web_search"}],"tool_choice":{"type":"any"}}`, true},
		{"chat", "/v1/chat/completions", `{"messages":[],"web_search_options":{},"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"}}}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := start(t, scripted(t, "replies:\n  - {text: x}\n"))
			got := b.ask(t.Context(), t, tt.path, tt.body)
			if refused := got.status == http.StatusBadRequest && strings.Contains(got.body, "runs at the provider"); refused != tt.refused || !refused && got.status != http.StatusOK {
				t.Errorf("%d %s", got.status, got.body)
			}
			if f := b.Findings(); len(f) == 0 || !slices.ContainsFunc(f, func(f verifier.Finding) bool { return f.Code == "hosted_tool" }) {
				t.Errorf("findings %v", f)
			}
			open := start(t, scripted(t, "replies:\n  - {text: x}\n"), func(_ *cell.Model, _ *Options, s *models.Spec) { s.Hosted = true })
			if got = open.ask(t.Context(), t, tt.path, tt.body); got.status != http.StatusOK {
				t.Errorf("with a network: %d %s", got.status, got.body)
			}
		})
	}
}

// sealing is a request with something that the provider would fetch or run.
type sealing struct {
	dialect, path, body string
	refused             string // the name of it; empty: it leaves
	without             string // what is not in what leaves
}

const (
	messagesPath  = "/v1/messages"
	responsesPath = "/v1/responses"
	chatPath      = "/v1/chat/completions"
	geminiPath    = "/v1beta/models/m1:generateContent"
)

func block(s string) string { return `{"messages":[{"role":"user","content":[` + s + `]}]}` }
func input(s string) string { return `{"input":[` + s + `]}` }
func parts(s string) string { return `{"contents":[{"role":"user","parts":[` + s + `]}]}` }

const fetched = "http://example.org/x"

var sealings = []sealing{
	{"anthropic", messagesPath, block(`{"type":"document","source":{"type":"url","url":"` + fetched + `"}}`), "document.url", ""},
	{"anthropic", messagesPath, block(`{"type":"image","source":{"type":"url","url":"` + fetched + `"}}`), "image.url", ""},
	{"anthropic", messagesPath, block(`{"type":"image","source":{"type":"file","file_id":"file_1"}}`), "image.file", ""},
	{"anthropic", messagesPath, block(`{"type":"image","source":{"type":"base64","url":"` + fetched + `"}}`), "image.base64", ""},
	{"anthropic", messagesPath, block(`{"type":"text","type":"image","source":{"type":"url","url":"` + fetched + `"}}`), "type (twice)", ""},
	{"anthropic", messagesPath, block(`{"ty\u0070e":"image","source":{"type":"url","url":"` + fetched + `"}}`), "image.url", ""},
	{"anthropic", messagesPath, block(`{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"type":"url","url":"` + fetched + `"}}]}`), "image.url", ""},
	{"anthropic", messagesPath, block(`{"type":"document","source":{"type":"content","content":[{"type":"image","source":{"type":"url","url":"` + fetched + `"}}]}}`), "image.url", ""},
	{"anthropic", messagesPath, block(strings.Repeat(`{"type":"tool_result","content":[`, 50) + strings.Repeat(`]}`, 50)), "content in content", ""},
	{"anthropic", messagesPath, block(`{"type":"container_upload","file_id":"file_1"}`), "container_upload", ""},
	{"anthropic", messagesPath, block(`{"type":"server_tool_use","id":"s","name":"web_fetch","input":{"url":"` + fetched + `"}}`), "server_tool_use", ""},
	{"anthropic", messagesPath, `{"messages":[],"system":[{"type":"image","source":{"type":"url","url":"` + fetched + `"}}]}`, "image.url", ""},
	{"anthropic", messagesPath, `{"messages":[],"container":"container_1"}`, "container", ""},
	{"anthropic", messagesPath, `{"messages":[],"container":null,"mcp_servers":[{"type":"url","url":"` + fetched + `"}]}`, "", "mcp_servers"},
	{"anthropic", messagesPath, `{"messages":[],"a_new_member":{"url":"` + fetched + `"}}`, "", "a_new_member"},
	{"anthropic", messagesPath, `{"messages":[],"tools":[{"type":"web_browse_20300101","name":"w"},{"name":"f"}],"tool_choice":{"type":"auto"}}`, "", "web_browse"},
	{"anthropic", messagesPath, `{"messages":[],"tools":[{"type":"web_search_20250305","type":"custom","name":"w"},{"name":"f"}]}`, "", "web_search"},
	{"anthropic", messagesPath, `{"messages":[],"tools":[{"type":"web_search_20250305","TYPE":"custom","name":"web_search"}]}`, "", "web_search_"},
	{"anthropic", messagesPath + "/count_tokens", block(`{"type":"document","source":{"type":"url","url":"` + fetched + `"}}`), "document.url", ""},
	{"openai", responsesPath, input(`{"role":"user","content":[{"type":"input_image","image_url":"` + fetched + `"}]}`), "input_image.image_url", ""},
	{"openai", responsesPath, input(`{"role":"user","content":[{"type":"input_image","image_url":"\u0068ttp://example.org/x"}]}`), "input_image.image_url", ""},
	{"openai", responsesPath, input(`{"role":"user","content":[{"type":"input_image","file_id":"file-1"}]}`), "input_image.file_id", ""},
	{"openai", responsesPath, input(`{"role":"user","content":[{"type":"input_file","file_url":"` + fetched + `"}]}`), "input_file.file_url", ""},
	{"openai", responsesPath, input(`{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"` + fetched + `"}]}`), "input_image.image_url", ""},
	{"openai", responsesPath, input(`{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","image_url":"` + fetched + `"}}`), "computer_screenshot.image_url", ""},
	{"openai", responsesPath, input(`{"id":"msg_1"}`), "item_reference", ""},
	{"openai", responsesPath, input(`{"type":"item_reference","id":"msg_1"}`), "item_reference", ""},
	{"openai", responsesPath, input(`{"type":"mcp_approval_response","approve":true,"approval_request_id":"r"}`), "mcp_approval_response", ""},
	{"openai", responsesPath, `{"input":"x","previous_response_id":"resp_1"}`, "previous_response_id", ""},
	{"openai", responsesPath, `{"input":"x","conversation":{"id":"conv_1"}}`, "conversation", ""},
	{"openai", responsesPath, `{"input":"x","prompt":{"id":"pmpt_1"}}`, "prompt", ""},
	{"openai", responsesPath, `{"input":"x","background":true}`, "", "background"},
	{"openai", responsesPath, `{"input":"x","tools":[{"type":"web_search","Type":"function"}]}`, "", "web_search"},
	{"openai", responsesPath, `{"input":"x","tools":[{"type":"shell","environment":{"type":"container_auto","TYPE":"local"}}]}`, "", "container_auto"},
	{"openai", responsesPath, `{"input":"x","tools":[{"type":"mcp","server_url":"` + fetched + `"},{"type":"function","name":"f"}]}`, "", "mcp"},
	{"openai", responsesPath, `{"input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"web_search"}]},{"type":"function","name":"f"}]}`, "", "web_search"},
	{"openai", responsesPath, `{"input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"web_search"}],"Tools":[],"tools":[]},{"type":"function","name":"f"}]}`, "", "web_search"},
	{"openai", responsesPath, `{"input":"x","tools":[{"type":"shell","environment":{"type":"container_reference","container_id":"c"}},{"type":"function","name":"f"}]}`, "", "container"},
	{"openai", responsesPath, input(`{"type":"additional_tools","role":"developer","tools":[{"type":"custom","name":"exec"},{"type":"web_search"}]}`), "", "web_search"},
	{"openai", responsesPath, input(`{"type":"tool_search_output","call_id":"c","tools":[{"type":"mcp","server_url":"` + fetched + `"}]}`), "", "server_url"},
	{"openai", responsesPath + "/compact", `{"input":[],"previous_response_id":"resp_1"}`, "previous_response_id", ""},
	{"openai-chat", chatPath, block(`{"type":"image_url","image_url":{"url":"` + fetched + `"}}`), "image_url", ""},
	{"openai-chat", chatPath, block(`{"type":"image_url","image_url":"` + fetched + `"}`), "image_url", ""},
	{"openai-chat", chatPath, block(`{"type":"text","text":"x","image_url":{"url":"file:///etc/passwd"}}`), "image_url", ""},
	{"openai-chat", chatPath, block(`{"type":"video_url","video_url":{"url":"` + fetched + `"}}`), "video_url", ""},
	{"openai-chat", chatPath, block(`{"type":"file","file":{"file_data":"` + fetched + `"}}`), "file.file_data", ""},
	{"openai-chat", chatPath, block(`{"type":"file","file":{"file_id":"file-1"}}`), "file.file_id", ""},
	{"openai-chat", chatPath, block(`{"type":"web_page","url":"` + fetched + `"}`), "web_page", ""},
	{"openai-chat", chatPath, `{"messages":[],"plugins":[{"id":"web"}],"models":["other"]}`, "", "plugins"},
	{"openai-chat", chatPath, `{"messages":[],"models":["other"],"enable_search":true}`, "", "other"},
	{"openai-chat", chatPath, `{"messages":[],"enable_search":true}`, "", "enable_search"},
	{"openai-chat", chatPath, `{"messages":[],"tools":[{"type":"openrouter:web","TYPE":"function"}]}`, "", "openrouter"},
	{"openai-chat", chatPath, `{"messages":[],"tools":[{"google_search":{}},{"type":"function","function":{"name":"f"}}]}`, "", "google_search"},
	{"openai-chat", chatPath, `{"messages":[],"tools":[{"type":"builtin_function","function":{"name":"$web_search"}}]}`, "", "web_search"},
	{"gemini", geminiPath, parts(`{"fileData":{"fileUri":"` + fetched + `"}}`), "fileData", ""},
	{"gemini", geminiPath, parts(`{"file_data":{"file_uri":"` + fetched + `"}}`), "file_data", ""},
	{"gemini", geminiPath, parts(`{"functionResponse":{"name":"f","response":{},"parts":[{"fileData":{"fileUri":"` + fetched + `"}}]}}`), "fileData", ""},
	{"gemini", geminiPath, `{"contents":{"parts":{"fileData":{"fileUri":"` + fetched + `"}}}}`, "fileData", ""},
	{"gemini", geminiPath, `{"contents":[],"cachedContent":"cachedContents/1"}`, "cachedContent", ""},
	{"gemini", geminiPath, `{"contents":[],"system_instruction":{"parts":[{"fileData":{"fileUri":"` + fetched + `"}}]}}`, "fileData", ""},
	{"gemini", geminiPath, `{"contents":[],"tools":{"google_search":{}}}`, "", "google_search"},
	{"gemini", geminiPath, `{"contents":[],"tools":["x",{"googleSearch":{}}]}`, "", "googleSearch"},
	{"gemini", geminiPath, `{"contents":[],"tools":[{"urlContext":{},"functionDeclarations":[{"name":"f"}]}]}`, "", "urlContext"},
	{"gemini", "/v1beta/models/m1:countTokens", `{"generateContentRequest":` + parts(`{"fileData":{"fileUri":"`+fetched+`"}}`) + `}`, "fileData", ""},
}

// A sandbox without a network gets none through its provider. What the provider
// would fetch or run is removed if it is only offered; if the request depends
// on it, the request is refused. In both cases a finding names what the
// experiment has to allow.
func TestASealedSandboxReachesNothingThroughItsProvider(t *testing.T) {
	t.Parallel()
	for _, tt := range sealings {
		t.Run(tt.dialect+" "+tt.body[:min(len(tt.body), 150)], func(t *testing.T) {
			t.Parallel()
			p := provide(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) })
			b := start(t, p.model(tt.dialect))
			got := b.ask(t.Context(), t, tt.path, tt.body)
			name := tt.refused
			if name == "" {
				name = tt.without
				if len(p.bodies) != 1 || strings.Contains(p.bodies[0], name) {
					t.Errorf("sent %s; want it without %s", p.bodies, name)
				}
			} else if len(p.bodies) != 0 || got.status != http.StatusBadRequest || !strings.Contains(got.body, "runs at the provider, or is fetched by it") {
				t.Errorf("%d %s, sent %s", got.status, got.body, p.bodies)
			}
			if !slices.ContainsFunc(b.Findings(), func(f verifier.Finding) bool { return f.Code == "hosted_tool" }) {
				t.Errorf("findings %v", b.Findings())
			}
			if tt.refused == "" {
				return
			}
			b = start(t, p.model(tt.dialect), func(m *cell.Model, _ *Options, _ *models.Spec) { m.AllowHosted = []string{name} })
			if got = b.ask(t.Context(), t, tt.path, tt.body); len(p.bodies) != 1 || p.bodies[0] == "" || len(b.Findings()) > 1 {
				t.Errorf("allowed by name: %d %s, findings %v", got.status, got.body, b.Findings())
			}
		})
	}
}

// The usual requests of agents are forwarded unchanged.
func TestASealedSandboxAsksItsModelAsUsual(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ dialect, path, body string }{
		{"anthropic", messagesPath, `{"model":"m1","messages":[{"role":"user","content":"see http://example.org"},{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"x"},{"type":"tool_use","id":"t","name":"fetch","input":{"type":"image","source":{"type":"url","url":"http://example.org"}}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"y"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}}]}]}],"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"tools":[{"name":"f","input_schema":{"type":"object","properties":{"url":{"type":"string"}}}},{"type":"bash_20250124","name":"bash"}],"tool_choice":{"type":"auto"},"metadata":{"user_id":"u"},"max_tokens":9,"thinking":{"type":"adaptive"},"output_config":{"effort":"low"},"context_management":{"edits":[]},"stream":false}`},
		{"openai", responsesPath, `{"model":"m1","stream":false,"instructions":"i","input":[{"type":"additional_tools","role":"developer","tools":[{"type":"namespace","name":"n","tools":[{"type":"custom","name":"exec"}]}]},{"type":"message","role":"user","content":[{"type":"input_text","text":"http://example.org"},{"type":"input_image","image_url":"data:image/png;base64,aGk="},{"type":"input_file","filename":"f.pdf","file_data":"data:application/pdf;base64,aGk="}]},{"type":"reasoning","id":"r","summary":[],"encrypted_content":"x"},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"http://example.org"}],"tools":[{"type":"function","name":"f"},{"type":"shell"},{"type":"shell","environment":{"type":"local"}}],"tool_choice":"auto","parallel_tool_calls":true,"reasoning":{"effort":"low"},"store":false,"include":[],"prompt_cache_key":"k","text":{},"client_metadata":{},"previous_response_id":null}`},
		{"openai-chat", chatPath, `{"model":"m1","messages":[{"role":"user","content":"http://example.org"},{"role":"assistant","content":null,"reasoning_content":"r","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"y"},{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}}]}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"auto","max_completion_tokens":9,"chat_template_kwargs":{},"top_k":4,"reasoning_effort":"low"}`},
		{"gemini", geminiPath, parts(`{"text":"http://example.org","thought":true,"thoughtSignature":"x"},{"inlineData":{"mimeType":"image/png","data":"aGk="}},{"functionCall":{"name":"f","args":{"fileData":{}}}},{"functionResponse":{"name":"f","response":{"fileData":{}},"parts":[{"inlineData":{"data":"aGk="}}]}}`)},
	} {
		t.Run(tt.dialect, func(t *testing.T) {
			t.Parallel()
			p := provide(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) })
			b := start(t, p.model(tt.dialect))
			got := b.ask(t.Context(), t, tt.path, tt.body)
			if len(p.bodies) != 1 || p.bodies[0] != tt.body && tt.dialect != "openai-chat" || len(b.Findings()) != 0 {
				t.Errorf("%d %s\nsent %s\nfindings %v", got.status, got.body, p.bodies, b.Findings())
			}
		})
	}
}
