package redact_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/redact"
	"github.com/berth-eval/berth/internal/testlevel"
)

// However output is cut into pieces, a secret in it is not written, and its length
// stays.
func FuzzWriter(f *testing.F) {
	const secret = "canary-4f1d9b7ae2c05368"
	f.Add([]byte("a canary-4f1d"), []byte("9b7ae2c05368 b"), 3)
	f.Fuzz(func(t *testing.T, before, after []byte, cut int) {
		whole := append(append(append([]byte{}, before...), secret...), after...)
		cut = max(0, min(cut, len(whole)))
		var out bytes.Buffer
		w := redact.New(secret, "second-secret-value").Writer(&out)
		for _, piece := range [][]byte{whole[:cut], whole[cut:]} {
			if _, err := w.Write(piece); err != nil {
				t.Fatal(err)
			}
		}
		testlevel.Must(t, w.Close())
		if strings.Contains(out.String(), secret) || out.Len() != len(whole) || w.Hits() == 0 {
			t.Errorf("%q became %q", whole, out.Bytes())
		}
	})
}
