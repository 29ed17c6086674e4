package engines

import (
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/cmd/berth/output"
)

// Images are pulled, loaded and built before a run. If one is not available, an
// error names it and no run begins.
func TestImagesArePreparedAheadOfARun(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m *machine) {
		p := newPlace(t, m.env())
		p.task("named", "", solveTiny, testTiny)
		p.task("built", "", solveTiny, testTiny)
		p.task("broken", "", solveTiny, testTiny)
		for task, text := range map[string]string{"built": "FROM " + base + "\nWORKDIR /app\nENV OF=" + t.Name() + "\n", "broken": "FROM " + base + "\nRUN echo it is broken; false\n"} {
			dir := filepath.Join("tasks", task)
			p.write(filepath.Join(dir, "task.toml"), "schema_version = \"1.4\"\n[task]\nname = \"engines/"+task+"\"\n[environment]\nnetwork_mode = \"no-network\"\nworkdir = \"/app\"\n")
			p.write(filepath.Join(dir, "environment", "Dockerfile"), text)
		}
		p.experiment(m.plugin, "", "")
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

// Images that a run has built stay after it. `berth gc` removes them by a rule
// of the user, and only those that nothing uses.
func TestImagesThatWereBuiltStayUntilARuleRemovesThem(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m *machine) {
		p := newPlace(t, m.env())
		p.task("built", "", solveTiny, testTiny)
		dir := filepath.Join("tasks", "built")
		p.write(filepath.Join(dir, "task.toml"), "schema_version = \"1.4\"\n[task]\nname = \"engines/built\"\n[environment]\nnetwork_mode = \"no-network\"\nworkdir = \"/app\"\n")
		p.write(filepath.Join(dir, "environment", "Dockerfile"), "FROM "+base+"\nWORKDIR /app\nENV OF="+strconv.FormatInt(time.Now().UnixNano(), 10)+"\n")
		p.experiment(m.plugin, "", "")
		var made output.Prepare
		if err := json.Unmarshal([]byte(p.berth(0, "run", ".", "--prepare-only", "--json")), &made); err != nil {
			t.Fatal(err)
		}
		p.berth(0, "run", ".", "--no-live")
		p.clean(m) // which removes no image
		picked := func(rule ...string) (found bool, all output.GC) {
			t.Helper()
			if err := json.Unmarshal([]byte(p.berth(0, append([]string{"gc", "--json", "--dry-run"}, rule...)...)), &all); err != nil {
				t.Fatal(err)
			}
			for _, im := range all.Images {
				found = found || im.Ref == made.Images[0].Ref
				if !strings.HasPrefix(im.Ref, "localhost/berth/build:") && !strings.HasPrefix(im.Ref, "localhost/berth/archive:") {
					t.Errorf("would remove %+v", im)
				}
			}
			return found, all
		}
		if found, all := picked("--images-within", "1h"); found || all.ImagesKept == 0 {
			t.Errorf("an image of now is not kept: %+v", all)
		}
		// No rule is tried in earnest: the engine may be somebody's own.
		if found, all := picked("--images-within", "0s"); !found || len(all.Images) == 0 {
			t.Errorf("keep none: %+v", all)
		}
		p.berth(0, "run", ".", "--no-live") // it is still there
	})
}
