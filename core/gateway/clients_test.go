package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/berth-eval/berth/internal/testlevel"
)

// Each of the real programs sends other requests beside the usual one.
func TestWhatRealClientsAsk(t *testing.T) {
	t.Parallel()
	const messages = `{"model":"m1","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`
	for _, tt := range []struct {
		method, path, body string
		headers            []string
		status             int
		want               string
	}{
		{"POST", "/s/x/v1/messages?beta=true", messages, []string{"Anthropic-Beta", "some-beta-2026", "Anthropic-Version", "2023-06-01"}, 200, `"type":"message"`},
		{"POST", "/v1/messages/count_tokens?beta=true", messages, nil, 200, `"input_tokens":`},
		{"GET", "/v1/models", "", []string{"Anthropic-Version", "2023-06-01"}, 200, `"m1"`},
		{"GET", "/v1/models", "", nil, 200, `"m1"`},
		{"HEAD", "/", "", nil, 200, ""},
		{"HEAD", "/api/hello", "", nil, 200, ""},
		{"GET", "/v1/responses", "", []string{"Connection", "Upgrade", "Upgrade", "websocket"}, 426, ""},
		{"POST", "/v1/responses", string(zstded(t, `{"model":"m1","stream":true,"input":"hi"}`)), []string{"Content-Encoding", "zstd"}, 200, "event: response.completed"},
		{"POST", "/v1/chat/completions", `{"model":"m1","stream":true,"messages":[]}`, nil, 200, "data: [DONE]"},
		{"POST", "/v1beta/models/m1:streamGenerateContent?alt=sse", `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`, nil, 200, "data: {"},
		{"POST", "/v1beta/models/m1:streamGenerateContent", `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`, nil, 200, "[{"},
		{"POST", "/v1beta/models/m1:countTokens", `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`, nil, 200, `"totalTokens":`},
		{"GET", "/v1beta/models", "", nil, 200, `"models/m1"`},
		{"POST", "/api/event_logging/batch", "{}", nil, 404, "serves models and nothing else"},
	} {
		t.Run(tt.method+" "+tt.path, func(t *testing.T) {
			t.Parallel()
			b := start(t, scripted(t, "replies:\n  - {text: Hello there}\n"))
			req, err := http.NewRequestWithContext(t.Context(), tt.method, b.e.HostURL+tt.path, strings.NewReader(tt.body))
			testlevel.Must(t, err)
			req.Header.Set("Authorization", "Bearer "+b.e.Token)
			if strings.Contains(tt.path, "v1beta") {
				req.Header.Del("Authorization")
				req.Header.Set("X-Goog-Api-Key", b.e.Token)
			}
			for i := 0; i < len(tt.headers); i += 2 {
				req.Header.Set(tt.headers[i], tt.headers[i+1])
			}
			c := &http.Client{Transport: &http.Transport{}}
			defer c.CloseIdleConnections()
			resp, err := c.Do(req)
			testlevel.Must(t, err)
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != tt.status || !strings.Contains(string(got), tt.want) {
				t.Errorf("%d %v %s; want %d with %q", resp.StatusCode, err, got, tt.status, tt.want)
			}
		})
	}
}
