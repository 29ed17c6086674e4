package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/experiment"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/task"
)

func (a *app) taskCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "task",
		Short:   "Check tasks",
		Example: "  berth task check tasks/hello",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.taskCheckCommand())
	return cmd
}

func (a *app) taskCheckCommand() *cobra.Command {
	var (
		f  experiment.Flags
		rf = taskRunFlags{times: 3}
	)
	cmd := &cobra.Command{
		Use:   "check DIR",
		Short: "Describe tasks and list their problems",
		Long: `Reads the tasks at or below DIR, and prints what each needs and every problem in
its files, with line and column. Nothing is run. The exit code is 2 if a task is
invalid.

With --run, each valid task is run several times in each verification mode that
it and the environment allow: its solution must pass, an agent that does nothing
must fail, and equal conditions must have equal outcomes. docs/tasks.md lists
all checks. The exit code is 1 if one fails.`,
		Example: "  berth task check tasks/hello\n  berth task check tasks --json\n  berth task check --run tasks/hello --environment podman",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := rf.check(cmd.Flags()); err != nil {
				return err
			}
			return a.taskCheck(cmd.Context(), args[0], &f, &rf)
		},
	}
	fs := cmd.Flags()
	fs.StringArrayVar(&f.AllowEnv, "allow-env", nil, "let tasks use this `VARIABLE` of the host, or those like EVAL_*; may be repeated")
	fs.BoolVar(&f.Lenient, "lenient", false, "treat unknown keys in tasks as warnings")
	fs.BoolVar(&rf.run, "run", false, "run the tasks, too")
	fs.Var(&rf.times, "repeat", "with --run, the `NUMBER` of runs in each condition")
	fs.StringVar(&rf.environment, "environment", defaultEnvironment, "with --run, the `ENVIRONMENT` plugin")
	fs.StringVar(&rf.runs, "runs", report.RunsDir, "with --run, create the folders of the runs in `DIR`")
	fs.Var(&rf.inFlight, "in-flight", "with --run, the `NUMBER` of attempts at the same time (default: the number of processors)")
	return cmd
}

func (a *app) taskCheck(ctx context.Context, dir string, f *experiment.Flags, rf *taskRunFlags) error {
	at, err := a.tasksAt(dir)
	if errors.Is(err, errNoTasks) {
		var names []string
		for _, known := range a.formats {
			names = append(names, known.Name())
		}
		err = fmt.Errorf("no task at or below %s; formats: %s", dir, strings.Join(names, ", "))
	}
	if err != nil {
		return err
	}
	listing, err := task.List(ctx, at.format, at.dir, task.ListOptions{Include: at.include, Options: task.Options{
		Lenient: f.Lenient, AllowEnv: f.AllowEnv, LookupEnv: a.env, Describe: true,
	}})
	if err != nil {
		return err
	}
	if err = a.taskSettings(ctx, at.format, &listing); err != nil {
		return err
	}
	res := output.TaskCheck{
		Format: at.format.Name(), Tasks: []output.TaskReport{}, Suites: []output.TaskSuite{}, Other: listing.Other, Deep: listing.Deep, Problems: listing.Problems, Sum: map[string]int{},
	}
	res.Foreign = listing.Foreign(at.dir, at.format, a.formats)
	for i := range listing.Items {
		it := &listing.Items[i]
		r := output.TaskReport{Path: it.Path, Name: it.Name(), Valid: it.Task != nil, Problems: it.Problems, Task: it.Task}
		suite := path.Dir(it.Path)
		n := slices.IndexFunc(res.Suites, func(s output.TaskSuite) bool { return s.Path == suite })
		if n < 0 {
			n, res.Suites = len(res.Suites), append(res.Suites, output.TaskSuite{Path: suite})
		}
		res.Suites[n].Tasks++
		if it.Task != nil {
			res.Valid++
			res.Suites[n].Valid++
			r.Digest, r.Needs, r.Installs = it.Task.Digest, it.Task.Needs(), installing(it.Task)
			for _, n := range r.Needs {
				res.Sum[string(n.Feature)]++
			}
		}
		res.Tasks = append(res.Tasks, r)
	}
	if rf.run {
		if err = a.taskRun(ctx, at, &res, rf, f); err != nil {
			return err
		}
	}
	if err = a.say(res, func() { a.sayTasks(&res) }); err != nil {
		return err
	}
	if len(res.Tasks) == 0 {
		return fmt.Errorf("no task at or below %s", dir)
	}
	if res.Valid < len(res.Tasks) {
		return &exit{exitUsage, nil}
	}
	if slices.ContainsFunc(res.Tasks, func(r output.TaskReport) bool { return r.Run != nil && r.Run.Failed > 0 }) {
		return &exit{exitErrors, nil}
	}
	return nil
}

// taskSettings asks the verifiers that tasks name about their settings. It needs no
// plugin: settings for one that is not installed are not checked.
func (a *app) taskSettings(ctx context.Context, f task.Format, l *task.Listing) error {
	host, err := a.host()
	if err != nil {
		return err
	}
	defer host.Stop()
	var c feasible.Checker
	for i := range l.Items {
		it := &l.Items[i]
		if it.Task == nil {
			continue
		}
		wrong, err := plan.Settings(ctx, f, it.Task, cell.Cell{}, func(ctx context.Context, kind plugins.Kind, name string, s plugins.Settings) ([]config.Problem, error) {
			return c.Settings(ctx, kind, name, s, host.ValidateSettings)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", it.Path, err)
		}
		if it.Problems = append(it.Problems, wrong...); len(wrong) > 0 {
			it.Task = nil
		}
	}
	return nil
}

// place is where the tasks are that a user names.
type place struct {
	format  task.Format
	dir     string
	include []string // patterns of those that are meant; none: all
}

// tasksAt finds the tasks at or below a folder, or those that a task.Finder finds
// in a folder above it. The format is the one that detects
// them.
func (a *app) tasksAt(dir string) (at place, err error) {
	if at.dir, err = filepath.Abs(dir); err != nil {
		return at, err
	}
	_, err = os.ReadDir(at.dir)
	if err == nil {
		found, in := formatsOf(a.formats, at.dir, 0)
		if len(found) > 1 {
			return at, fmt.Errorf("%s has tasks of the formats %s and %s: keep them in separate folders, or name one with format in a dataset block", in, found[0].Name(), found[1].Name())
		}
		if len(found) == 1 {
			at.format = found[0]
			return at, nil
		}
	}
	for _, f := range a.formats {
		if root, pattern, ok := task.Enclosing(f, at.dir); ok && !errors.Is(err, fs.ErrNotExist) {
			return place{f, root, []string{pattern}}, nil
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return at, notAFolder(dir, err)
	case err != nil:
		return at, fmt.Errorf("read tasks: %w", err)
	case at.format == nil:
		return at, errNoTasks
	}
	return at, nil
}

// errNoTasks means that no format detects a task.
var errNoTasks = errors.New("no format detects a task")

func (a *app) sayTasks(res *output.TaskCheck) {
	for i := range res.Tasks {
		r := &res.Tasks[i]
		state := terminal.Paint(a.Color, terminal.Good, "valid")
		if !r.Valid {
			state = terminal.Paint(a.Color, terminal.Bad, "invalid")
		}
		a.Printf("%s  %s  (%s)\n", terminal.Paint(a.Color, terminal.Bold, terminal.Clean(r.Name)), state, terminal.Clean(r.Path))
		for _, p := range r.Problems {
			a.Printf("  %s\n", terminal.Clean(p.String()))
		}
		if r.Task != nil && len(res.Tasks) == 1 {
			a.explain(r.Task)
		}
		for _, n := range r.Needs {
			if len(res.Tasks) == 1 {
				a.Printf("  declares %s: %s\n", n.Feature, terminal.Clean(n.Detail))
			}
		}
		if r.Run != nil {
			a.sayTaskRun(r.Run)
		}
	}
	a.sayInstalls(res.Tasks)
	for _, p := range res.Problems {
		a.Printf("%s\n", terminal.Clean(p.String()))
	}
	for _, what := range res.Foreign {
		a.Printf("not checked: %s: use --format\n", terminal.Clean(what))
	}
	for _, dir := range res.Deep {
		a.Printf("not searched: %s is nested too deep\n", terminal.Clean(dir))
	}
	if len(res.Tasks) <= 1 {
		return
	}
	a.Printf("\n")
	a.sayNeeds(res.Tasks)
	if len(res.Suites) > 1 {
		for _, s := range res.Suites {
			a.Printf("%s: %d of %d valid\n", terminal.Clean(s.Path), s.Valid, s.Tasks)
		}
	}
	a.Printf("%d of %s valid\n", res.Valid, terminal.Count(len(res.Tasks), "task", "tasks"))
}

// sayInstalls says in which mode it is safe that tests install programs.
func (a *app) sayInstalls(all []output.TaskReport) {
	n, first := 0, ""
	for i := range all {
		if all[i].Installs != "" {
			n, first = n+1, cmp.Or(first, path.Join(all[i].Path, all[i].Installs))
		}
	}
	if n > 0 {
		a.Printf("The tests of %s install programs, such as %s. Use verify = \"image\": otherwise settings that the agent left decide what is installed, and make the result exposed.\n",
			terminal.Count(n, "task", "tasks"), terminal.Clean(first))
	}
}

// explain prints the parts of a task.
func (a *app) explain(t *task.Task) {
	line := func(key, value string) {
		if value != "" {
			a.Printf("  %-12s %s\n", key, terminal.Clean(value))
		}
	}
	line("digest", t.Digest)
	line("description", t.Description)
	line("mode", string(t.Mode))
	e := &t.Environment
	switch {
	case e.Image != "":
		line("image", e.Image)
	case e.Build != nil:
		line("image", "built from "+e.Build.Context)
	case e.Compose != "":
		line("image", "composed by "+e.Compose)
	}
	line("workdir", e.Workdir)
	line("network", strings.TrimSpace(string(e.Network.Mode)+" "+strings.Join(e.Network.Allow, " ")))
	line("limits", limitsText(e.Limits))
	for i := range t.Stages {
		s := &t.Stages[i]
		var verifiers []string
		for _, u := range s.Verifiers {
			verifiers = append(verifiers, u.Name)
		}
		tests := "tests"
		if len(verifiers) > 1 {
			tests += " (" + strings.Join(verifiers, ", ") + ")"
		}
		text := fmt.Sprintf("agent: %s; %s: %s", bound(s.Agent.Time), tests, bound(s.Verify.Time))
		if s.Reference != nil {
			text += "; has a reference solution"
		}
		line("stage "+s.Name, text)
	}
}

// bound is a time limit as text, such as "1 h 30 min".
func bound(d task.Duration) string {
	if d <= 0 {
		return "no time limit"
	}
	var parts []string
	rest := d.Std()
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{time.Hour, "h"}, {time.Minute, "min"}} {
		if n := rest / unit.length; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, unit.name))
			rest %= unit.length
		}
	}
	if rest > 0 {
		parts = append(parts, fmt.Sprintf("%g s", rest.Seconds()))
	}
	return strings.Join(parts, " ")
}

func limitsText(l task.Limits) string {
	var parts []string
	add := func(n int64, format string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf(format, n))
		}
	}
	if l.CPUMilli > 0 {
		parts = append(parts, fmt.Sprintf("%g cores", float64(l.CPUMilli)/1000))
	}
	add(l.MemoryMiB, "%d MiB memory")
	add(l.StorageMiB, "%d MiB disk")
	add(l.Pids, "%d processes")
	if l.GPUs > 0 {
		parts = append(parts, terminal.Count(int(l.GPUs), "GPU", "GPUs"))
	}
	return strings.Join(parts, ", ")
}
