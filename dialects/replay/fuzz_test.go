package replay

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-eval/berth/core/gateway/recording"
	"github.com/berth-eval/berth/plugins/dialect"
)

// Recorded exchanges of a stranger are refused or answered, and the record of one
// run never reads a file beside it.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"kind":"generate","role":"agent","name":"default","status":200,"match":"m","request":"sha256:00","reply":"../../../etc/passwd"}`), []byte(`{"model":"m"}`))
	f.Fuzz(func(t *testing.T, lines, body []byte) {
		dir := t.TempDir()
		digest, _, err := recording.Store(dir, []byte(`{"model":"m","messages":[1]}`), recording.NewRoom(1<<20))
		if err != nil {
			t.Fatal(err)
		}
		more, err := json.Marshal(line{Entry: recording.Entry{Kind: recording.KindGenerate, Request: digest, Reply: digest}, Role: "agent", Name: "default", Status: http.StatusOK})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "exchanges.jsonl")
		if err = os.WriteFile(file, append(append(lines, '\n'), more...), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := Open(file, "agent", "default", nil)
		if err != nil {
			return
		}
		for range 3 {
			got, _, err := p.Answer(&dialect.Replay{Kind: recording.KindGenerate, Match: recording.Digest(body), Body: body})
			if err != nil {
				return
			}
			if got.StatusCode < http.StatusOK || got.StatusCode > 599 {
				t.Errorf("status %d", got.StatusCode)
			}
			_, _ = io.Copy(io.Discard, got.Body) // an answer may have been cut off
		}
	})
}
