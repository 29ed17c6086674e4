package uniclaw

import (
	"os"
	"strings"
	"testing"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/berth-eval/berth/plugins/config"
)

// The reference names every key and every setting.
func TestTheReferenceIsComplete(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/reference/uniclaw.md")
	if err != nil {
		t.Fatal(err)
	}
	f, err := parser.ParseBytes([]byte("{codex: {}}"), 0)
	if err != nil {
		t.Fatal(err)
	}
	top := (&reader{}).table("", f.Docs[0].Body)
	top.all(false)
	codex := (&reader{}).table("codex", &ast.MappingNode{})
	new(keys).codex(codex)
	for i, name := range codex.known {
		codex.known[i] = "codex." + name
	}
	schema, err := config.SchemaOf(&Config{})
	if err != nil || len(top.known) < 20 || len(codex.known) < 3 {
		t.Fatalf("%q, %q, %v", top.known, codex.known, err)
	}
	for _, field := range schema.Fields {
		top.known = append(top.known, field.Name)
	}
	for _, key := range append(top.known, codex.known...) {
		if key != "codex" && !strings.Contains(string(text), "`"+key+"`") {
			t.Errorf("%s is not in the reference", key)
		}
	}
}
