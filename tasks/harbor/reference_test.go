package harbor

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/tasks/internal/document"
)

// everyTable is a task.toml with a key that nobody knows in every table.
const everyTable = `
qqqq = 1
artifacts = [{ source = "/a", qqqq = 1 }]
[task]
name = "o/n"
qqqq = 1
[[task.authors]]
name = "a"
qqqq = 1
[agent]
qqqq = 1
[verifier]
qqqq = 1
[[verifier.collect]]
command = "true"
qqqq = 1
[verifier.environment]
qqqq = 1
[solution]
qqqq = 1
[environment]
qqqq = 1
[environment.healthcheck]
command = "true"
qqqq = 1
[environment.tpu]
type = "v4"
topology = "2x2"
qqqq = 1
[[environment.mcp_servers]]
name = "m"
url = "http://x"
qqqq = 1
[metadata.berth]
qqqq = 1
[[metadata.berth.verifiers]]
name = "v"
qqqq = 1
[metadata.berth.interaction]
max_follow_ups = 1
qqqq = 1
[[steps]]
name = "one"
qqqq = 1
[steps.agent]
qqqq = 1
[steps.verifier]
qqqq = 1
[steps.healthcheck]
command = "true"
qqqq = 1
`

// sections are the headings of docs/reference/task.md with the keys of a table.
var sections = map[string]string{
	"": "### Top of the file", "artifacts[0]": "## Artifacts", "task": "### [task]", "task.authors[0]": "### [[task.authors]]",
	"agent": "### [agent]", "steps[0].agent": "### [agent]",
	"verifier": "### [verifier]", "steps[0].verifier": "### [verifier]", "verifier.collect[0]": "### [[verifier.collect]]",
	"solution":    "### [solution]",
	"environment": "### [environment]", "verifier.environment": "### [environment]",
	"environment.tpu": "### [environment.tpu]", "environment.mcp_servers[0]": "### [[environment.mcp_servers]]",
	"environment.healthcheck": "### [environment.healthcheck]", "steps[0].healthcheck": "### [environment.healthcheck]",
	"steps[0]":       "### [[steps]]",
	"metadata.berth": "### [metadata.berth]", "metadata.berth.verifiers[0]": "### [[metadata.berth.verifiers]]",
	"metadata.berth.interaction": "### [metadata.berth.interaction]",
}

var keyRow = regexp.MustCompile("(?m)^- `(\\w+)` \\(")

// The reference has exactly the keys that the reader knows, table by table.
func TestReferenceHasTheKeysOfTheReader(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/task.md")
	if err != nil {
		t.Fatal(err)
	}
	r := &document.Reader{File: fileConfig}
	d := &decoder{Reader: r, top: r.TOML([]byte(everyTable)), options: task.Options{}}
	if len(r.Problems) > 0 {
		t.Fatal(r.Problems)
	}
	d.config()
	seen := 0
	for _, p := range d.Problems {
		table, ok := strings.CutSuffix(p.Key, "qqqq")
		if !ok {
			continue
		}
		seen++
		heading, ok := sections[strings.TrimSuffix(table, ".")]
		if !ok {
			t.Errorf("table %q has no section", table)
			continue
		}
		_, known, _ := strings.Cut(p.Detail, "Known here: ")
		want := strings.Split(strings.TrimSuffix(known, "."), ", ")
		slices.Sort(want)
		want = slices.Compact(want)
		_, text, found := strings.Cut(string(page), "\n"+heading+"\n")
		if text, _, _ = strings.Cut(text, "\n#"); !found {
			t.Errorf("the page has no heading %q", heading)
			continue
		}
		var got []string
		for _, m := range keyRow.FindAllStringSubmatch(text, -1) {
			got = append(got, m[1])
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s (%s):\n the page has   %v\n the reader has %v", heading, table, got, want)
		}
	}
	if seen != len(sections) {
		t.Errorf("%d tables were read, want %d", seen, len(sections))
	}
}
