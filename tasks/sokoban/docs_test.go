package sokoban

import (
	"os"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/config"
)

// The page names every setting, key and class.
func TestTheReferenceIsComplete(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/games.md")
	if err != nil {
		t.Fatal(err)
	}
	names := classNames()
	if len(names) != len(classes) {
		t.Errorf("%d names of %d classes", len(names), len(classes))
	}
	for _, of := range []any{&Config{}, &about{}} {
		schema, err := config.SchemaOf(of)
		if err != nil || len(schema.Fields) < 4 {
			t.Fatalf("%+v, %v", schema, err)
		}
		for _, f := range schema.Fields {
			names = append(names, f.Name)
		}
	}
	for _, n := range names {
		if !strings.Contains(string(text), "`"+n+"`") {
			t.Errorf("%s is not on the page", n)
		}
	}
}
