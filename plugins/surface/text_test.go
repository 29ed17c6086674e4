package surface_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/surface"
)

func TestTextHasTheNamedParts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text, structure string
		want                  string
	}{
		{"nothing", "", "", ""},
		{"only text", "seen", "", "seen\n"},
		{"in the order of the names", "seen", `{"board": [1, 2], "help": "go on", "other": 1}`, "seen\n# help\ngo on\n# board\n[1, 2]\n"},
		{"an empty part", "", `{"help": "", "board": null}`, ""},
		{"no object", "seen", `[1]`, "seen\n"},
	} {
		o := environment.Observation{Text: tt.text, JSON: json.RawMessage(tt.structure)}
		if got := surface.Text(&o, []string{"help", "board", "absent"}); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// Whatever an observation has, its own text is first, and a part that is a string
// is there as it is.
func FuzzText(f *testing.F) {
	f.Add("seen", []byte(`{"help": "go on"}`))
	f.Add("", []byte(`{"help": {"a": [1]}}`))
	f.Add("", []byte("{"))
	f.Fuzz(func(t *testing.T, text string, structure []byte) {
		got := surface.Text(&environment.Observation{Text: text, JSON: structure}, []string{"help"})
		if !strings.HasPrefix(got, text) {
			t.Errorf("%q does not begin with %q", got, text)
		}
		var parts map[string]any
		if json.Unmarshal(structure, &parts) != nil {
			return
		}
		if help, ok := parts["help"].(string); ok && !strings.Contains(got, help) {
			t.Errorf("%q lacks %q", got, help)
		}
	})
}
