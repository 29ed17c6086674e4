package command

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

var (
	pythonBlock = regexp.MustCompile("(?ms)^```python\n(.*?)^```")
	pluginName  = regexp.MustCompile(`(?m)^    name = "(\w+)"`)
)

// casesOfThePage are what the verifiers of python/README.md must judge: a case
// that passes and one that fails.
var casesOfThePage = map[string][2]map[string]string{
	"exact": {
		{"view/tests/answer.txt": "42\n", "view/attempt/artifacts/answer.txt": "42"},
		{"view/tests/answer.txt": "42\n"},
	},
	"close": {
		{"view/tests/answer.txt": "4.2\n", "view/attempt/artifacts/answer.txt": "4.205"},
		{"view/tests/answer.txt": "4.2\n", "view/attempt/artifacts/answer.txt": "many"},
	},
	"rows": {
		{"view/tests/check.sh": "grep -x ok /tmp/rows.csv\n", "sandbox/tmp/rows.csv": "ok\nok\n"},
		{"view/tests/check.sh": "grep -x ok /tmp/rows.csv\n", "sandbox/tmp/rows.csv": "no\n"},
	},
}

// Each program of python/README.md is a plugin as it stands there, and does what
// the page says.
func TestThePythonOfTheDocumentsRuns(t *testing.T) {
	tree.NeedsSandbox(t)
	t.Parallel()
	programs := map[string]string{}
	for _, m := range pythonBlock.FindAllStringSubmatch(e2etest.Read(t, tree.Root, "python", "README.md"), -1) {
		name := pluginName.FindStringSubmatch(m[1])
		if name == nil || !strings.HasPrefix(m[1], "#!/usr/bin/env python3\n") {
			t.Errorf("not a whole program:\n%s", m[1])
			continue
		}
		programs[name[1]] = strings.Replace(m[1], "/usr/bin/env python3", "/usr/bin/python3", 1)
	}
	if got := slices.Sorted(maps.Keys(programs)); !slices.Equal(got, []string{"close", "exact", "greeter", "rows"}) {
		t.Errorf("the programs are %q", got)
	}
	for name, text := range programs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			pythonPlugin(t, dir, name, text)
			folder := "berth-plugin-" + name
			args := []string{"plugin", "test", filepath.Join("plugins", folder, folder)}
			for i, files := range casesOfThePage[name] {
				one := filepath.Join(dir, "cases", []string{"pass", "fail"}[i])
				e2etest.Write(t, one, files)
				e2etest.Write(t, one, map[string]string{"case.json": `{"want": "` + filepath.Base(one) + `"}`})
				if i == 0 {
					args = append(args, "--case", "cases")
				}
			}
			r := berthWith(t, dir, nil, args...)
			r.want(t, 0)
			if !strings.Contains(r.out, " 0 failed") {
				t.Errorf("%s", r.out)
			}
		})
	}
}
