package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/pflag"

	"github.com/berth-eval/berth/cmd/berth/internal/experiment"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/taskprobe"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/internal/usage"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// taskRunFlags are the user's choices for berth task check --run.
type taskRunFlags struct {
	run         bool
	times       usage.Count
	environment string
	runs        string
	runFlags
}

// check refuses flags that say nothing without --run.
func (f *taskRunFlags) check(given *pflag.FlagSet) error {
	for _, name := range []string{"repeat", "environment", "runs", "in-flight"} {
		if !f.run && given.Changed(name) {
			return fmt.Errorf("--%s needs --run: without it, nothing is run", name)
		}
	}
	return nil
}

// taskRun runs the valid tasks of a listing and adds what it found to their
// reports.
func (a *app) taskRun(ctx context.Context, at place, res *output.TaskCheck, f *taskRunFlags, ef *experiment.Flags) error {
	for i := range res.Tasks {
		r := &res.Tasks[i]
		if r.Task == nil {
			continue
		}
		include := ""
		if r.Path != "." {
			include = r.Path
		}
		found, err := a.taskProbe(ctx, place{at.format, at.dir, []string{include}}, r.Task, f, ef)
		if err != nil {
			return fmt.Errorf("%s: %w", r.Path, err)
		}
		r.Run = found
	}
	return nil
}

// taskProbe runs one task.
func (a *app) taskProbe(ctx context.Context, at place, t *task.Task, f *taskRunFlags, ef *experiment.Flags) (*output.TaskRun, error) {
	tmp, err := tempDir("berth-task-check-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for temporary files: %w", err)
	}
	defer os.RemoveAll(tmp)
	p, err := taskprobe.New(t, f.environment, int(f.times), filepath.Join(tmp, "tasks"))
	if err != nil {
		return nil, err
	}
	var runs []string
	for i, text := range p.Experiments(at.dir, at.include[0]) {
		file := filepath.Join(tmp, fmt.Sprintf("check-%d.hcl", i))
		if err = os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, err
		}
		flags := &experiment.Flags{SkipRefused: true, Lenient: ef.Lenient, AllowEnv: ef.AllowEnv}
		run, failed := a.madeRun(ctx, file, f.runs, flags, &f.runFlags)
		if failed != nil {
			return nil, failed
		}
		runs = append(runs, run)
	}
	return p.Judge(runs)
}

// sayTaskRun prints the verdicts.
func (a *app) sayTaskRun(r *output.TaskRun) {
	t := terminal.Table{Head: []string{"check", "mode", "verdict", "what was found", "where"}}
	for _, v := range r.Verdicts {
		name := v.Check
		if v.Subject != "" {
			name += " " + v.Subject
		}
		where := v.File
		t.Row(terminal.Clean(name), v.Mode, v.Verdict, terminal.Clean(v.Detail), terminal.Clean(where))
	}
	t.Write(a.Printer)
	text := "every check that could be made held"
	if r.Failed > 0 {
		text = terminal.Paint(a.Color, terminal.Bad, terminal.Count(r.Failed, "check", "checks")+" failed")
	}
	a.Printf("%s on %s\n", text, terminal.Clean(r.Environment))
	for _, run := range r.Runs {
		a.Printf("show it: berth show %s\n", report.Display(run))
	}
}

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
