package webui

import (
	"os"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/config"
)

// The page names every setting, and every word of an action.
func TestThePageIsComplete(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/webui.md")
	if err != nil {
		t.Fatal(err)
	}
	schema, err := config.SchemaOf(&Config{})
	if err != nil {
		t.Fatal(err)
	}
	words := append(append([]string{}, doings...), ways[1:]...) // css is what a selector is without by
	for _, f := range schema.Fields {
		words = append(words, f.Name)
	}
	for name := range bys {
		words = append(words, name)
	}
	for _, w := range words {
		if !strings.Contains(string(text), "`"+w+"`") && !strings.Contains(string(text), "`By."+w+"`") {
			t.Errorf("%s is not on the page", w)
		}
	}
}
