package gauntlet

import (
	"os"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/config"
)

// The page names every setting, of the dataset and of comparators, and every
// key of a task.
func TestTheReferenceIsComplete(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/gauntlet.md")
	if err != nil {
		t.Fatal(err)
	}
	schema, err := config.SchemaOf(&Config{})
	if err != nil || len(schema.Fields) < 10 {
		t.Fatalf("%+v, %v", schema, err)
	}
	names := []string{"id", "prompt", "difficulty_level", "gt.answer", "website.url", "eval_config", "eval_config.answer", "llm_judge_gt", tolerancesFile}
	for _, f := range schema.Fields {
		names = append(names, f.Name)
		for _, inner := range f.Fields {
			names = append(names, inner.Name)
		}
	}
	for i := range applications {
		a := &applications[i]
		names = append(names, "tc_"+a.ids+"_", strings.TrimSpace(a.capture.URL+a.capture.Script))
		if a.assets != "" && !strings.Contains(string(text), "`"+a.assets+"/") {
			t.Errorf("%s is not on the page", a.assets)
		}
	}
	for _, name := range names {
		if name != "" && !strings.Contains(string(text), "`"+name+"`") && !strings.Contains(string(text), "/"+name+"`") {
			t.Errorf("%s is not on the page", name)
		}
	}
	compare, err := os.ReadFile("../../docs/reference/compare.md")
	if err != nil {
		t.Fatal(err)
	}
	for i := range applications {
		for _, name := range applications[i].settings {
			if !strings.Contains(string(compare), "| `"+name+"` ") && !strings.Contains(string(compare), "`"+name+"`") {
				t.Errorf("%s has no setting %s", applications[i].comparator, name)
			}
		}
	}
}
