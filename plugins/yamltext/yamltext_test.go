package yamltext_test

import (
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/yamltext"
)

func TestCheckFindsWhatIsTooDeep(t *testing.T) {
	t.Parallel()
	const many = 100_000
	for name, tt := range map[string]struct{ text, err string }{
		"flat":               {strings.Repeat("- [a, {b: c}]\n", 1000), ""},
		"as deep as allowed": {strings.Repeat("[", yamltext.MaxDepth) + strings.Repeat("]", yamltext.MaxDepth), ""},
		"brackets":           {"a: 1\nb: " + strings.Repeat("[", many) + strings.Repeat("]", many), "line 2: nested too deeply"},
		"open brackets":      {strings.Repeat("[", many), "line 1: nested too deeply"},
		"braces":             {strings.Repeat("{a: ", many), "line 1: nested too deeply"},
		"dashes":             {strings.Repeat("- ", many) + "x", "line 1: nested too deeply"},
		"dashes on lines":    {strings.Repeat("- -\n", 1000), ""},
		"text":               {"a: |\n  " + strings.Repeat("[", 1000) + "\nb: \"" + strings.Repeat("{", 1000) + "\"\n", ""},
	} {
		err := yamltext.Check([]byte(tt.text))
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: got %v, want %q", name, err, tt.err)
		}
	}
}
