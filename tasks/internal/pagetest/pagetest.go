// Package pagetest is for the tests of formats: it checks that a page of the
// documentation is complete.
package pagetest

import (
	"os"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/config"
)

// Complete checks that a page in docs names each setting of these structs, and each
// word, as code: `name`, or the end of a longer name.
func Complete(t *testing.T, page string, settings []any, words ...string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range settings {
		schema, err := config.SchemaOf(of)
		if err != nil || len(schema.Fields) < 4 {
			t.Fatalf("%+v, %v", schema, err)
		}
		for _, f := range schema.Fields {
			words = append(words, f.Name)
			for _, inner := range f.Fields {
				words = append(words, inner.Name)
			}
		}
	}
	for _, w := range words {
		if code := w + "`"; w != "" && !strings.Contains(string(text), "`"+code) && !strings.Contains(string(text), "/"+code) && !strings.Contains(string(text), "."+code) {
			t.Errorf("%s is not on the page %s", w, page)
		}
	}
}
