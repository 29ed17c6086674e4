package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/config"
)

const guide = "../../../../docs/experiment.md"

// The guide names every function; its reference lists blocks and attributes.
func TestTheGuideNamesEveryFunction(t *testing.T) {
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range config.FunctionNames() {
		if !strings.Contains(string(text), "`"+f+"`") && !strings.Contains(string(text), "`"+f+"(") {
			t.Errorf("the guide does not name the function %s", f)
		}
	}
}

var snippet = regexp.MustCompile("(?s)```hcl\n(.*?)```")

// What the guide shows can be written like that.
func TestTheGuidesExamplesLoad(t *testing.T) {
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for _, m := range snippet.FindAllStringSubmatch(string(text), -1) {
		parts = append(parts, m[1])
	}
	if len(parts) != 7 {
		t.Fatalf("%d examples, want 7", len(parts))
	}
	o := options()
	o.Schemas = nil
	dir := write(t, map[string]string{"first.hcl": parts[0], "tasks/x": ""})
	if e, ds := config.Load(t.Context(), filepath.Join(dir, "first.hcl"), o); e == nil {
		t.Errorf("the first example: %v", ds)
	}
	// The others are one experiment, with the blocks of the first.
	_, blocks, _ := strings.Cut(parts[0], "}\n")
	files := map[string]string{"prompts/a.md": "a", "tasks/x": "", "rest.hcl": blocks + "\nmodel \"small\" {\n provider = \"script\"\n name = \"s\"\n}\n"}
	for i, p := range parts[1:] {
		files[fmt.Sprintf("%d.hcl", i)] = p
	}
	e, ds := config.Load(t.Context(), write(t, files), o)
	if e == nil || len(ds) > 0 {
		t.Fatalf("the other examples: %v", ds)
	}
	if len(e.Cells) != 14 {
		t.Errorf("%d cells", len(e.Cells))
	}
}
