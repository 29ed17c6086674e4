package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/core/cli/load"
	"github.com/berth-eval/berth/core/cli/show"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/store"
)

// resumeFlags are the user's choices for resuming.
type resumeFlags struct {
	again       []string
	acceptDrift bool
	takeOver    bool
	experiment  string
}

func (a *app) resumeCommand() *cobra.Command {
	var (
		ef load.Flags
		rf runFlags
		sf resumeFlags
	)
	cmd := &cobra.Command{
		Use:   "resume RUN",
		Short: "Run what a run has not done yet",
		Long: `Runs the trials that have no final outcome: those that were never begun, were
cancelled, or whose attempt was killed. What could change results must be as it
was: a difference in the experiment or its tasks is refused with a diff.
Concurrency and other limits of the run may change: edit a copy of the
experiment and name it with --experiment, or use --in-flight.

So are plugins, images and agents' bundles that are not those of before: their
digests are compared, those of plugins at the start, the others as each attempt
is made. With --accept-drift the run goes on with what is there, and is marked.`,
		Example: "  berth resume last\n  berth resume runs/sweep-20260101T120000Z --again environment_error",
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completeRun(cmd, args, begin)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.resume(cmd.Context(), args[0], &ef, &rf, &sf)
		},
	}
	ef.Register(cmd)
	rf.register(cmd)
	fs := cmd.Flags()
	fs.StringSliceVar(&sf.again, "again", nil, "also run trials with these `OUTCOMES` again (never passed, failed, scored or agent_error)")
	fs.BoolVar(&sf.acceptDrift, "accept-drift", false, "go on although plugins, images or bundles are not those of before, and mark the run")
	fs.BoolVar(&sf.takeOver, "take-over", false, "the berth on another machine that wrote this run is gone")
	fs.StringVar(&sf.experiment, "experiment", "", "take limits and labels from the file or folder at `PATH` instead of the kept one")
	return cmd
}

func (a *app) resume(ctx context.Context, name string, ef *load.Flags, rf *runFlags, sf *resumeFlags) error {
	if _, err := rf.requirements(); err != nil {
		return err
	}
	again, err := outcomesOf(sf.again)
	if err != nil {
		return err
	}
	dir, err := show.FindRun(name)
	if err != nil {
		return err
	}
	m, err := store.ReadManifest(dir)
	if err != nil {
		return err
	}
	path := sf.experiment
	if path == "" {
		path = filepath.Join(dir, store.ExperimentDir)
		if _, err = os.Stat(path); err != nil {
			return fmt.Errorf("the files of the experiment are not in the run any more: %w: name them with --experiment", err)
		}
		if m.Header.Try == nil { // the file of a try names absolute paths only
			ef.BaseDir = m.Header.Dir
		}
	}
	varFile, remove, err := keptVariables(m)
	if err != nil {
		return err
	}
	defer remove()
	if varFile != "" {
		ef.VarFiles = append([]string{varFile}, ef.VarFiles...)
	}
	ef.AllowEnv = append(slices.Clone(m.Header.AllowEnv), ef.AllowEnv...)
	ef.AllowRead = append(slices.Clone(m.Header.AllowRead), ef.AllowRead...)
	ef.Lenient = ef.Lenient || m.Header.Lenient
	ef.SkipRefused = ef.SkipRefused || m.Header.SkipRefused
	l, err := a.load(ctx, path, ef)
	if err != nil {
		return err
	}
	defer l.Close()
	if err = a.startable(l); err != nil {
		return err
	}
	if changes := plan.Diff(m, l.Plan.Manifest(m.Header)); len(changes) > 0 {
		for _, c := range changes {
			a.because(c.String())
		}
		return &exit{exitUsage, fmt.Errorf("%s cannot be resumed: what is above differs from when it was planned, and could change results: undo it, or start a new run", show.Display(dir))}
	}
	s, err := store.Open(dir, version, sf.takeOver)
	if err != nil {
		return err
	}
	if err = a.drift(ctx, l, s, sf.acceptDrift); err != nil {
		return errors.Join(err, s.Close())
	}
	return a.execute(ctx, &job{Loaded: l, flags: rf, store: s, again: again, acceptDrift: sf.acceptDrift})
}

// drift compares the plugins of the attempts so far with those of now.
func (a *app) drift(ctx context.Context, l *load.Loaded, s *store.Run, accept bool) error {
	entries, err := l.Host.List(ctx)
	if err != nil {
		return err
	}
	now := map[string]string{}
	for _, e := range entries {
		if e.Error == "" && e.ShadowedBy == "" {
			now[string(e.Kind)+" "+e.Name] = e.Digest
		}
	}
	bundles, err := a.bundles().Digests()
	if err != nil {
		return err
	}
	maps.Copy(now, bundles)
	drifts := run.Drifts(s.Index(), now)
	if len(drifts) == 0 {
		return nil
	}
	for _, d := range drifts {
		a.because(d.String())
	}
	if !accept {
		return &exit{exitUsage, fmt.Errorf("%s cannot be resumed: the plugins above are not those of its attempts: bring them back, or go on with --accept-drift, which marks the run", show.Display(s.Dir))}
	}
	for _, d := range drifts {
		if err = s.Accept(d.String()); err != nil {
			return err
		}
	}
	return nil
}

// keptVariables writes the variables of a run to a file, as --var-file reads
// it.
func keptVariables(m *store.Manifest) (file string, remove func(), err error) {
	if len(m.Header.Variables) == 0 {
		return "", func() {}, nil
	}
	f, err := os.CreateTemp("", "berth-vars-*.json")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.Remove(f.Name()) }
	var b strings.Builder
	b.WriteString("{")
	sep := ""
	for name, v := range m.Header.Variables {
		fmt.Fprintf(&b, "%s%q:%s", sep, name, v)
		sep = ","
	}
	b.WriteString("}")
	_, err = f.WriteString(b.String())
	if err = errors.Join(err, f.Close()); err != nil {
		remove()
		return "", nil, err
	}
	return f.Name(), remove, nil
}

func outcomesOf(names []string) ([]record.Outcome, error) {
	var os []record.Outcome
	for _, n := range names {
		o := record.Outcome(strings.TrimSpace(n))
		if !slices.Contains(record.Outcomes, o) {
			return nil, fmt.Errorf("--again %s: no such outcome: there is %s", n, outcomeNames())
		}
		if o.Measured() {
			return nil, fmt.Errorf("--again %s: that is a measurement: running it again would choose among results", n)
		}
		os = append(os, o)
	}
	return os, nil
}

func outcomeNames() string {
	var names []string
	for _, o := range record.Outcomes {
		if !o.Measured() {
			names = append(names, string(o))
		}
	}
	return strings.Join(names, ", ")
}
