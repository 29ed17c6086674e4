package gateway

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway/recording"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/redact"
)

// What an agent tells a model of its own secrets is recorded only without a mask, and
// reaches the model either way.
func TestSecretsOfAnAttemptAreMaskedInTheRecord(t *testing.T) {
	t.Parallel()
	const secret = "of-the-agent-4f1d9b7a"
	for name, mask := range map[string]func([]byte) []byte{"without a mask": nil, "with a mask": redact.New(secret).Bytes} {
		p := provide(t, replies(`{"content":[{"type":"text","text":"you said `+secret+`"}],"usage":{"input_tokens":1,"output_tokens":1}}`))
		b := start(t, p.model("anthropic"), func(_ *cell.Model, _ *Options, s *models.Spec) { s.Mask = mask })
		if got := b.ask(t.Context(), t, requests[0].path, strings.Replace(requests[0].body, "hi", secret, 1)); !strings.Contains(got.body, secret) {
			t.Errorf("%s: the agent got %s", name, got.body)
		}
		x := b.last(t)
		if asked := strings.Join(p.bodies, ""); !strings.Contains(asked, secret) {
			t.Errorf("%s: the model was asked %s", name, asked)
		}
		for what, digest := range map[string]string{"request": x.Request, "reply": x.Reply} {
			body, err := recording.Fetch(filepath.Join(b.dir, record.ModelDir), digest)
			if err != nil || bytes.Contains(body, []byte(secret)) != (mask == nil) {
				t.Errorf("%s: the recorded %s is %s, %v", name, what, body, err)
			}
		}
	}
}
