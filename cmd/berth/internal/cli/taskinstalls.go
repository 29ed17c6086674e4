package cli

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// install matches commands that get programs from elsewhere.
var install = regexp.MustCompile(`^\s*(sudo )?((apt|apt-get|apk|dnf|yum)( -\S+)* (update|install|add)|(python3? -m )?pip3? install|uvx?|npm (install|i|ci)|npx|curl .*\| *(sudo )?(ba|z)?sh)(\s|$)`)

// maxScript bounds a script of tests that is read, in bytes.
const maxScript = 1 << 20

// installing returns the first line of a script of the tests that gets programs from
// elsewhere, such as "tests/test.sh:4: apt-get update", where they run in the agent's
// sandbox. Empty: there is none. What the agent left there, such as the settings of a
// package manager, decides what is installed.
func installing(t *task.Task) string {
	for i := range t.Stages {
		s := &t.Stages[i]
		if s.Mode != task.ModeLive && s.Mode != task.ModeRestarted {
			continue
		}
		for _, u := range s.Verifiers {
			var script task.Script
			if json.Unmarshal(u.Settings, &script) != nil {
				continue // it is for another verifier
			}
			for _, word := range script.Command {
				if found := installedBy(t, word); found != "" {
					return found
				}
			}
		}
	}
	return ""
}

// installedBy does that for the script with a path in the sandbox.
func installedBy(t *task.Task, script string) string {
	for i := range t.Resources {
		r := &t.Resources[i]
		rel, below := strings.CutPrefix(script, r.Place+"/")
		if r.Place == "" || r.Path == "" || !below {
			continue
		}
		name, n, found := path.Join(r.Path, rel), 0, ""
		_, err := untrusted.Lines(t.Dir, name, maxScript, maxScript, func(line []byte) {
			if n++; found == "" && install.Match(line) {
				found = fmt.Sprintf("%s:%d: %s", name, n, strings.TrimSpace(string(line)))
			}
		})
		if err == nil && found != "" {
			return found
		}
	}
	return ""
}
