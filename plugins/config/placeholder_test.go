package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/config"
)

func TestUnknownPlaceholders(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		form config.Placeholders
		text string
		open bool
		want []string // what a problem says, each
	}{
		"known":               {form: config.InBraces, text: "{{task}} and {{tags}}{{task}}"},
		"misspelt":            {form: config.InBraces, text: "a\r\n\r\n{{taks}} {{taks}}", want: []string{"Line 3 of the text has {{taks}}, which nothing replaces. Did you mean {{task}}? Known: {{task}}, {{tags}}."}},
		"in capitals":         {form: config.InBraces, text: "{{Task}}", want: []string{"Did you mean {{task}}?"}},
		"with spaces":         {form: config.InBraces, text: "{{ task }}\n{{ tagz }}", want: []string{"Line 1 of the text has {{ task }}, which nothing replaces. Did you mean {{task}}?", "Line 2 of the text has {{ tagz }}, which nothing replaces. Did you mean {{tags}}?"}},
		"unlike any":          {form: config.InBraces, text: "{{observations}}", want: []string{"{{observations}}, which nothing replaces. Known: {{task}}, {{tags}}."}},
		"other braces":        {form: config.InBraces, text: "{task} {{\"verdict\": 1}} {{}} {{a b}} {{ product }} {{1}} }}{{"},
		"open":                {form: config.InBraces, open: true, text: "{{grid}} {{taks}}", want: []string{"{{taks}}"}},
		"single, in capitals": {form: config.InCapitals, text: "{task} {\"A\": 1} {tagz} {TASKS} {A}", want: []string{"{TASKS}", "{A}"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := tt.form.Problems("prompt", tt.text, tt.open, "task", "tags")
			if len(got) != len(tt.want) || slices.ContainsFunc(got, func(p config.Problem) bool { return p.Path != "prompt" }) {
				t.Fatalf("%v, want %q", got, tt.want)
			}
			for i, want := range tt.want {
				if !strings.Contains(got[i].Detail, want) {
					t.Errorf("%q is not in %q", want, got[i].Detail)
				}
			}
		})
	}
}
