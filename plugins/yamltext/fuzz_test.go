package yamltext_test

import (
	"testing"

	"github.com/berth-eval/berth/plugins/yamltext"
)

// Whatever a text is, reading it ends with a value or an error.
func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte("a: [1, {b: c}]\nd: !!str |\n  x\n"), true)
	f.Fuzz(func(t *testing.T, text []byte, strict bool) {
		var s struct {
			A []string                    `yaml:"a"`
			B map[string]struct{ C *int } `yaml:"b"`
		}
		if err := yamltext.Unmarshal(text, strict, &s); err == nil && len(s.A) > len(text) {
			t.Errorf("%d members in %d bytes", len(s.A), len(text))
		}
		var v any
		_ = yamltext.Unmarshal(text, strict, &v) // any value will do
	})
}
