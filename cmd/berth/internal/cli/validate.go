package cli

import (
	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/experiment"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/plan"
)

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
