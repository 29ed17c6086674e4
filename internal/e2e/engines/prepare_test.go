package engines

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// Images are pulled, loaded and built before a run. If one is not available, an
// error names it and no run begins.
func TestImagesArePreparedAheadOfARun(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m *machine) {
		p := newPlace(t, m.env())
		p.task("named", "", e2etest.SolveTiny, e2etest.TestTiny)
		p.task("built", "", e2etest.SolveTiny, e2etest.TestTiny)
		p.task("broken", "", e2etest.SolveTiny, e2etest.TestTiny)
		for task, text := range map[string]string{"built": "FROM " + base + "\nWORKDIR /app\nENV OF=" + t.Name() + "\n", "broken": "FROM " + base + "\nRUN echo it is broken; false\n"} {
			dir := filepath.Join("tasks", task)
			p.write(filepath.Join(dir, "task.toml"), "schema_version = \"1.4\"\n[task]\nname = \"engines/"+task+"\"\n[environment]\nnetwork_mode = \"no-network\"\nworkdir = \"/app\"\n")
			p.write(filepath.Join(dir, "environment", "Dockerfile"), text)
		}
		p.experiment(m.Name, "", "")
		var got output.Prepare
		if err := json.Unmarshal([]byte(p.berth(1, "run", ".", "--prepare-only", "--json")), &got); err != nil {
			t.Fatal(err)
		}
		for _, im := range got.Images {
			broken := im.Tasks[0] == "engines/broken"
			if (im.Digest == "") != broken || strings.Contains(im.Error, "failed") != broken {
				t.Errorf("%+v", im)
			}
		}
		if len(got.Images) != 3 || p.run() != "" {
			t.Errorf("%d images; the run %q", len(got.Images), p.run())
		}
	})
}
