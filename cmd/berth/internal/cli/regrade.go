package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/drift"
	"github.com/berth-eval/berth/cmd/berth/internal/experiment"
	"github.com/berth-eval/berth/cmd/berth/internal/regrade"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/selection"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/core/store"
)

func (a *app) regradeCommand() *cobra.Command {
	var (
		ef experiment.Flags
		rf runFlags
		sf resumeFlags
	)
	cmd := &cobra.Command{
		Use:   "regrade RUN",
		Short: "Verify the attempts of a run again, with repaired tests",
		Long: `Verifies attempts again without running their agents. Each verdict is a new
attempt, which names its origin and counts for its trial. Use it after a test
was repaired, or name an experiment with another verifier by --experiment.

A verifier that needs the sandbox gets a new one with the files that the attempt
left, which are stored if the experiment says keep. Attempts without them are
refused, unless no verifier needs a sandbox (docs/running.md).`,
		Example: "  berth regrade last\n  berth regrade last --select 'outcome == \"failed\"'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.regrade(cmd.Context(), args[0], &ef, &rf, &sf)
		},
	}
	ef.Register(cmd)
	rf.register(cmd)
	sf.register(cmd.Flags(), "verify only the trials for which this `EXPRESSION` is true",
		"take verifiers, limits and labels from the experiment at `PATH` instead of the stored one")
	return cmd
}

func (a *app) regrade(ctx context.Context, name string, ef *experiment.Flags, rf *runFlags, sf *resumeFlags) error {
	dir, m, l, err := a.loadRun(ctx, name, ef, sf)
	if err != nil {
		return err
	}
	defer l.Close()
	if err = a.startable(l); err != nil {
		return err
	}
	now := l.Plan.Manifest(m.Header)
	err = a.unchanged(drift.ChangedWork(m, now), "%s cannot be verified again: the differences above concern what its agents did. Undo them, or start a new run", report.Display(dir))
	if err = cmp.Or(err, rf.possible(now)); err != nil {
		return err
	}
	choose, err := selection.Of(sf.selected, dir, m)
	if err != nil {
		return err
	}
	s, err := store.Open(dir, version, sf.takeOver)
	if err != nil {
		return err
	}
	var selected map[string]bool
	if choose != nil {
		trials, failed := choose.Trials(s.Manifest, s.Index())
		if failed != nil {
			return errors.Join(failed, s.Close())
		}
		selected = map[string]bool{}
		for _, t := range trials {
			selected[t.ID] = true
		}
	}
	if err = a.drift(ctx, l, s, drifting{diverted: drift.ChangedModels(m, now), accept: sf.acceptDrift, except: "verifier "}); err != nil {
		return errors.Join(err, s.Close())
	}
	g, err := regrade.New(ctx, l.Plan, s, l.Host, selected)
	if err == nil {
		err = a.regradable(g)
	}
	if err != nil {
		return errors.Join(err, s.Close())
	}
	before, index := map[string]verdict{}, s.Index()
	for id := range g.Origins {
		before[id] = verdictOf(index.Trial(id))
	}
	l.Plan = g.Plan
	err = a.execute(ctx, &job{Loaded: l, flags: rf, store: s, origins: g.Origins, acceptDrift: sf.acceptDrift, ownLimits: sf.experiment != ""})
	return cmp.Or(err, a.tellVerdicts(dir, before))
}

// verdict is how a trial ended, and in which attempt.
type verdict struct {
	text    string
	attempt int
}

func verdictOf(t *store.TrialState) verdict {
	v := verdict{text: string(t.Outcome())}
	if acc := t.Accepted(); acc != nil {
		v.attempt = acc.Number
		if acc.Result.Score != nil {
			v.text += " " + strconv.FormatFloat(*acc.Result.Score, 'g', 4, 64)
		}
	}
	return v
}

// tellVerdicts says which verdicts of the run in dir differ from those before, which
// are by the ids of their trials.
func (a *app) tellVerdicts(dir string, before map[string]verdict) error {
	const most = 40 // trials that are listed
	m, x, err := store.Read(dir)
	if err != nil {
		return err
	}
	verified := 0
	var changed []string
	for _, t := range x.Trials {
		was, is := before[t.ID], verdictOf(t)
		if was.attempt == 0 || was.attempt == is.attempt { // not verified again, or without a measurement
			continue
		}
		verified++
		if was.text != is.text {
			changed = append(changed, fmt.Sprintf("%s (%s, repetition %d): %s → %s", t.Task, m.Cells[t.Cell].Slug, t.Repetition, was.text, is.text))
		}
	}
	a.Notef("note: %d of %s changed\n", len(changed), terminal.Count(verified, "verdict", "verdicts"))
	for i, line := range changed {
		if i == most {
			a.Notef("  and %d more\n", len(changed)-i)
			break
		}
		a.Notef("  %s\n", terminal.Clean(line))
	}
	return nil
}

// mostRefused is how many reasons are printed.
const mostRefused = 20

// regradable says which trials are not verified again, and returns an error if
// that is so for all.
func (a *app) regradable(g *regrade.Plan) error {
	reasons := map[string][]string{}
	for _, r := range g.Refused {
		reasons[r.Why] = append(reasons[r.Why], fmt.Sprintf("%s (%s)", r.Trial.Task, r.Trial.ID[:6]))
	}
	for i, why := range slices.Sorted(maps.Keys(reasons)) {
		if i == mostRefused {
			a.Notef("and %d more reasons\n", len(reasons)-i)
			break
		}
		of := reasons[why]
		a.Notef("note: %s cannot be verified again, such as %s: %s\n", terminal.Count(len(of), "trial", "trials"), terminal.Clean(of[0]), terminal.Clean(why))
	}
	if g.Unmeasured > 0 {
		a.Notef("note: %s without a measured attempt, and nothing to verify\n", terminal.Count(g.Unmeasured, "trial is", "trials are"))
	}
	if len(g.Origins) == 0 {
		return errors.New("no trial can be verified again")
	}
	return nil
}
