package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/config"
	"github.com/berth-eval/berth/cmd/berth/internal/cost"
	"github.com/berth-eval/berth/cmd/berth/internal/experiment"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/run/cluster"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/plugins/task"
)

func (a *app) planCommand() *cobra.Command {
	var f experiment.Flags
	var trials bool
	cmd := &cobra.Command{
		Use:   "plan [PATH]",
		Short: "Show the trials of an experiment, their cost, and what is missing",
		Long: `Expands an experiment into cells and trials, and asks its agents and
environments what they need and refuse. Nothing is run. The exit code is 2 if
berth run would not start.

It lists what tasks declare (skills, MCP servers, users, GPUs and others), and
how the cells deliver it. told: the agent does not support it, and its first
message says where it is. reduced: the experiment grants less. unused: the agent
uses no model, or is an oracle. refused: the cell cannot run the task.`,
		Example: "  berth plan experiment.hcl\n  berth plan experiment.hcl --all",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := a.load(cmd.Context(), experimentPath(args), &f)
			if err != nil {
				return err
			}
			l.Close()
			if err = a.sayPlan(l, trials); err != nil {
				return err
			}
			if !l.Ready() {
				return &exit{exitUsage, nil}
			}
			return cmp.Or(schedulerThere(l), machineReady())
		},
	}
	f.Register(cmd)
	cmd.Flags().BoolVar(&trials, "all", false, "also list every trial with its id")
	return cmd
}

func planAnswer(l *experiment.Loaded, trials bool) output.Plan {
	p := output.Plan{
		Diagnostics: l.Diagnostics, Ready: l.Ready(), Cells: []output.PlanCell{}, Tasks: []output.PlanTask{},
		Problems: []plan.Problem{}, Missing: []plan.Missing{}, Declared: []plan.Declared{},
	}
	if l.Experiment == nil || l.Plan == nil {
		return p
	}
	p.Experiment, p.Repeat, p.Trials, p.Cost = l.Experiment.Name, l.Experiment.Repeat, len(l.Plan.Trials), cost.WorstCase(l.Plan, &dialects.All)
	p.Diagnostics = append(p.Diagnostics, l.Secrets...)
	p.Pilots = pilotsOf(l)
	p.Problems = append(p.Problems, l.Plan.Problems...)
	p.Missing = append(p.Missing, l.Plan.Missing...)
	p.Declared = append(p.Declared, l.Plan.Declared...)
	for _, c := range l.Experiment.Cells {
		pc := output.PlanCell{Key: c.Key, Slug: c.Slug, Choices: c.Choices, Agent: c.Agent.Label, Model: plan.ModelOf(c), Environment: c.Environment.Label}
		p.Cells = append(p.Cells, pc)
	}
	for i := range l.Plan.Tasks {
		t := &l.Plan.Tasks[i]
		pt := output.PlanTask{Dataset: t.Dataset, Name: t.Name, Path: t.Path, Valid: t.Task != nil, Problems: t.Problems}
		if t.Task != nil {
			pt.Digest = t.Task.Digest
			pt.Verifiers, pt.Success = grading(l.Experiment, t)
		}
		p.Tasks = append(p.Tasks, pt)
	}
	for i := range l.Plan.Trials {
		t := &l.Plan.Trials[i]
		p.Cells[t.Cell].Trials++
		if t.Invalid != "" {
			p.Invalid++
		}
		if t.Refused != "" {
			p.Refused++
		}
		if trials {
			p.List = append(p.List, t.Trial)
		}
	}
	return p
}

// pilotsOf returns what a plan asks a scheduler for; nil: nothing.
func pilotsOf(l *experiment.Loaded) *output.PlanPilots {
	x := &l.Experiment.Executor
	if x.Kind != "slurm" {
		return nil
	}
	each := slurmInFlight(x)
	p := &output.PlanPilots{Pilots: min(max(1, x.Workers), (len(l.Plan.Trials)+each-1)/each)}
	hours := 0.0
	for i := range l.Plan.Trials {
		one := cluster.Longest(l.Plan, &l.Plan.Trials[i])
		if one == 0 {
			return p
		}
		hours += one.Hours() * float64(1+l.Experiment.Retry.Max)
	}
	p.Hours = new(hours / float64(each))
	return p
}

// grading returns who grades a task and by which rules, in all cells.
func grading(e *config.Experiment, t *plan.Task) (verifiers, rules []string) {
	add := func(to *[]string, text string) {
		if !slices.Contains(*to, text) {
			*to = append(*to, text)
		}
	}
	for _, c := range e.Cells {
		for i := range c.Datasets {
			d := &c.Datasets[i]
			if d.Label != t.Dataset {
				continue
			}
			add(&rules, report.Rule(cmp.Or(d.Success, &t.Task.Success), len(t.Task.Stages)))
			for s := range t.Task.Stages {
				for _, u := range t.Task.Stages[s].Verifiers {
					add(&verifiers, report.Grader(u.Name, c.Verifiers[u.Name].Plugin))
				}
			}
		}
	}
	return verifiers, rules
}

func (a *app) sayPlan(l *experiment.Loaded, trials bool) error {
	p := planAnswer(l, trials)
	if done, err := a.Answer(p); done {
		return err
	}
	if l.Plan != nil {
		a.planTables(&p)
	}
	return l.Complain(a.Printer)
}

// maxPlanned is how many tasks the table lists.
const maxPlanned = 50

func (a *app) planTables(p *output.Plan) {
	sign, result := " × ", " = "
	if len(p.Cells)*len(p.Tasks)*p.Repeat != p.Trials { // cells may have other datasets
		sign, result = ", ", ": "
	}
	a.Printf("%s: %s\n\n", p.Experiment, strings.Join([]string{
		terminal.Count(len(p.Cells), "cell", "cells"), terminal.Count(len(p.Tasks), "task", "tasks"), terminal.Count(p.Repeat, "repetition", "repetitions"),
	}, sign)+result+terminal.Count(p.Trials, "trial", "trials"))
	cells := terminal.Table{Head: []string{"cell", "agent", "model", "environment", "trials"}, Right: []bool{4: true}}
	for _, c := range p.Cells {
		cells.Row(terminal.Clean(cmp.Or(c.Key, c.Agent)), terminal.Clean(c.Agent), terminal.Clean(c.Model), terminal.Clean(c.Environment), strconv.Itoa(c.Trials))
	}
	cells.Write(a.Printer)
	a.Printf("\n")
	tasks := terminal.Table{Head: []string{"dataset", "task", "digest", "verifiers", "success"}}
	for i, t := range p.Tasks {
		if i == maxPlanned {
			break
		}
		digest := t.Digest
		if !t.Valid {
			digest = terminal.Paint(a.Color, terminal.Bad, "invalid")
		} else if len(digest) > 19 {
			digest = digest[:19]
		}
		tasks.Row(terminal.Clean(t.Dataset), terminal.Clean(t.Name), digest,
			terminal.Clean(strings.Join(t.Verifiers, ", ")), terminal.Clean(strings.Join(t.Success, " or ")))
	}
	tasks.Write(a.Printer)
	if n := len(p.Tasks) - maxPlanned; n > 0 {
		a.Printf("… and %d more; use --json to list them\n", n)
	}
	a.Printf("\n")
	if len(p.List) > 0 {
		list := terminal.Table{Head: []string{"trial", "task", "cell", "repetition"}, Right: []bool{3: true}}
		for _, t := range p.List {
			list.Row(t.ID[:12], terminal.Clean(t.Task), terminal.Clean(p.Cells[t.Cell].Slug), strconv.Itoa(t.Repetition))
		}
		list.Write(a.Printer)
		a.Printf("\n")
	}
	a.sayDeclared(p)
	a.Printf("at most %s\n", terminal.Count(p.Cost.Attempts, "attempt", "attempts"))
	a.Printf("worst-case cost: %s\n", costText(p.Cost))
	if p.Pilots != nil {
		a.Printf("at most %s at the same time%s\n", terminal.Count(p.Pilots.Pilots, "pilot", "pilots"), hoursText(p.Pilots))
	}
	if p.Invalid+p.Refused > 0 {
		var why []string
		if p.Invalid > 0 {
			why = append(why, fmt.Sprintf("%d with an invalid task", p.Invalid))
		}
		if p.Refused > 0 {
			why = append(why, fmt.Sprintf("%d refused", p.Refused))
		}
		a.Printf("trials that cannot run: %s\n", strings.Join(why, ", "))
	}
}

// hoursText says how many hours the pilots of a plan take at most.
func hoursText(p *output.PlanPilots) string {
	if p.Hours == nil {
		return "; their hours are unknown, because a task has no time limit"
	}
	return fmt.Sprintf(", and %.1f node-hours", *p.Hours)
}

func costText(c output.Cost) string {
	s := "unknown"
	if c.WorstUSD != nil {
		s = fmt.Sprintf("%.2f USD", *c.WorstUSD)
	}
	for i, u := range c.Unknown {
		if i == 0 {
			s += ": "
		} else {
			s += "; "
		}
		s += terminal.Clean(u)
	}
	if c.WorstUSD == nil && c.LimitUSD != nil {
		s += fmt.Sprintf(" (the run stops at %.2f USD)", *c.LimitUSD)
	}
	return s
}

// sayDeclared prints what tasks declare, and as a table what not every cell delivers.
func (a *app) sayDeclared(p *output.Plan) {
	for _, d := range p.Declared {
		var all, everywhere []string
		var differ []task.Feature
		for _, f := range d.Features {
			if all = append(all, string(f)); deliveredBy(d, f) {
				everywhere = append(everywhere, string(f))
			} else {
				differ = append(differ, f)
			}
		}
		text := ""
		switch {
		case len(d.Cells) == 0:
			text = "; no cell can run it"
		case len(differ) == 0:
			text = "; every cell delivers all of it"
		case len(everywhere) > 0:
			text = "; every cell delivers " + strings.Join(everywhere, ", ")
		}
		a.Printf("declared by %s: %s%s\n", terminal.Clean(someTasks(d.Tasks, len(p.Tasks))), strings.Join(all, ", "), text)
		if len(differ) > 0 {
			a.deliveries(d, differ, p)
		}
		a.Printf("\n")
	}
}

func deliveredBy(d plan.Declared, f task.Feature) bool {
	for _, c := range d.Cells {
		if c.Delivery[f] != feasible.Delivered {
			return false
		}
	}
	return true
}

// someTasks names the first of some tasks.
func someTasks(names []string, of int) string {
	switch {
	case len(names) == of && of > 1:
		return fmt.Sprintf("all %d tasks", of)
	case len(names) > 2:
		return fmt.Sprintf("%d tasks (%s, %s and others)", len(names), names[0], names[1])
	default:
		return strings.Join(names, ", ")
	}
}

// deliveries prints how cells deliver some features.
func (a *app) deliveries(d plan.Declared, fs []task.Feature, p *output.Plan) {
	t := terminal.Table{Head: []string{"cell"}}
	for _, f := range fs {
		t.Head = append(t.Head, string(f))
	}
	for _, c := range d.Cells {
		var row []string
		for _, f := range fs {
			row = append(row, cmp.Or(string(c.Delivery[f]), "not known"))
		}
		for _, key := range c.Cells {
			t.Row(append([]string{terminal.Clean(cellName(p, key))}, row...)...)
		}
	}
	t.Write(a.Printer)
}

// cellName is what tables call a cell; the only cell of an experiment has an empty key.
func cellName(p *output.Plan, key string) string {
	if key == "" && len(p.Cells) > 0 {
		return p.Cells[0].Agent
	}
	return key
}

// sayNeeds prints what several tasks declare, one line for those that declare the same.
func (a *app) sayNeeds(tasks []output.TaskReport) {
	var lists []string // of features, in the order of the tasks
	names := map[string][]string{}
	for _, r := range tasks {
		var fs []string
		for _, n := range r.Needs {
			if !slices.Contains(fs, string(n.Feature)) {
				fs = append(fs, string(n.Feature))
			}
		}
		list := strings.Join(fs, ", ")
		if list == "" {
			continue
		}
		if names[list] == nil {
			lists = append(lists, list)
		}
		names[list] = append(names[list], r.Name)
	}
	for _, list := range lists {
		a.Printf("declared by %s: %s\n", terminal.Clean(someTasks(names[list], len(tasks))), list)
	}
	if len(lists) > 0 {
		a.Printf("\n")
	}
}

func (a *app) validateCommand() *cobra.Command {
	var f experiment.Flags
	cmd := &cobra.Command{
		Use:   "validate [PATH]",
		Short: "Check an experiment without running it",
		Long: `Reads an experiment and its tasks, asks the plugins that it names, and prints
all problems at once. PATH is a file, or a folder whose *.hcl files are read;
the default is the current folder. Missing secrets are not reported here, but
by berth plan.`,
		Example: "  berth validate experiment.hcl\n  berth validate . --var model=small --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := a.load(cmd.Context(), experimentPath(args), &f)
			if err != nil {
				return err
			}
			l.Close() // before any output, so that no plugin is left running
			return a.sayValid(l)
		},
	}
	f.Register(cmd)
	return cmd
}

func (a *app) sayValid(l *experiment.Loaded) error {
	v := output.Validate{Diagnostics: l.Diagnostics, Problems: []plan.Problem{}, Missing: []plan.Missing{}}
	v.Valid = !l.Diagnostics.HasErrors() && l.Experiment != nil
	if l.Plan != nil {
		v.Problems = append(v.Problems, l.Plan.Problems...)
		v.Missing = append(v.Missing, l.Plan.Missing...)
		l.Secrets = nil
	}
	for i := range v.Problems {
		v.Valid = v.Valid && v.Problems[i].Severity != plan.Error
	}
	for i := range v.Missing {
		v.Valid = v.Valid && v.Missing[i].Kind != plan.MissingPlugin
	}
	done, err := a.Answer(v)
	if err == nil && !done {
		err = l.Complain(a.Printer)
	}
	switch {
	case err != nil:
		return err
	case !v.Valid:
		return &exit{exitUsage, nil}
	case !done:
		a.Printf("%s is valid: %s of %s in %s\n", l.Experiment.Name, terminal.Count(len(l.Plan.Trials), "trial", "trials"),
			terminal.Count(len(l.Plan.Tasks), "task", "tasks"), terminal.Count(len(l.Experiment.Cells), "cell", "cells"))
	}
	return nil
}
