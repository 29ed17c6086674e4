package uniclaw

import (
	"os"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/tasks/internal/document"
)

// The page names every key and every setting.
func TestTheReferenceIsComplete(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/closed-loop.md")
	if err != nil {
		t.Fatal(err)
	}
	top := (&document.Reader{}).YAML([]byte("{codex: {}}"))
	all(top, false, false)
	codex := (&document.Reader{}).In("codex", nil)
	new(keys).codex(codex)
	for i, name := range codex.Known {
		codex.Known[i] = "codex." + name
	}
	schema, err := config.SchemaOf(&Config{})
	if err != nil || len(top.Known) < 20 || len(codex.Known) < 3 {
		t.Fatalf("%q, %q, %v", top.Known, codex.Known, err)
	}
	for _, field := range schema.Fields {
		top.Known = append(top.Known, field.Name)
	}
	for _, key := range append(top.Known, codex.Known...) {
		if key != "codex" && !strings.Contains(string(text), "`"+key+"`") {
			t.Errorf("%s is not on the page", key)
		}
	}
}
