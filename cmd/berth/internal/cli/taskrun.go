package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/berth-eval/berth/cmd/berth/internal/experiment"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/taskprobe"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/internal/usage"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/plugins/task"
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
