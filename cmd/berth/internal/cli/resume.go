package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-eval/berth/cmd/berth/internal/drift"
	"github.com/berth-eval/berth/cmd/berth/internal/experiment"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/selection"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/store"
)

// resumeFlags are the user's choices for resuming.
type resumeFlags struct {
	again       []string
	selected    string
	acceptDrift bool
	takeOver    bool
	trust       bool
	experiment  string
}

// register adds the flags that resume and regrade share; selects and takes are the
// help of --select and --experiment.
func (f *resumeFlags) register(fs *pflag.FlagSet, selects, takes string) {
	fs.Var((*selection.Text)(&f.selected), "select", selects)
	fs.BoolVar(&f.acceptDrift, "accept-drift", false, "continue although plugins, images, bundles or addresses of models changed, and mark the run")
	fs.BoolVar(&f.takeOver, "take-over", false, "take over a run from another machine on which its berth process is gone")
	fs.BoolVar(&f.trust, "trust", false, "continue although other users own the run folder or can write to it")
	fs.StringVar(&f.experiment, "experiment", "", takes)
}

func (a *app) resumeCommand() *cobra.Command {
	var (
		ef experiment.Flags
		rf runFlags
		sf resumeFlags
	)
	cmd := &cobra.Command{
		Use:   "resume RUN",
		Short: "Run the unfinished trials of a run",
		Long: `Runs the trials that have no final outcome: those that never started, were
cancelled, or whose attempt was killed. If anything differs that could change
results, the command prints a diff and stops. Limits of the run may change.

More repetitions, cells and tasks of the experiment that --experiment names, or
of new values for --var, are added to the run. With --select, only those trials
run for which the expression is true; those that ended without a measurement get
another attempt (docs/running.md).

With --accept-drift the run continues although plugins, images, bundles of
agents, the address of a model or the source of its key differ, and is marked.

A run folder that other users own or can write to needs --trust, because an
edited folder can send keys elsewhere and run programs: read its experiment
before you resume it.`,
		Example: "  berth resume last\n  berth resume runs/sweep-20260101T120000Z --again environment_error\n  berth resume last --select 'outcome == \"environment_error\" && agent == \"nop\"'",
		Args:    cobra.ExactArgs(1),

		RunE: func(cmd *cobra.Command, args []string) error {
			return a.resume(cmd.Context(), args[0], &ef, &rf, &sf)
		},
	}
	ef.Register(cmd)
	rf.register(cmd)
	fs := cmd.Flags()
	fs.StringSliceVar(&sf.again, "again", nil, "also run trials with these `OUTCOMES` again, unless they are results of their agents")
	sf.register(fs, "run only the trials for which this `EXPRESSION` is true, also those that ended without a measurement",
		"take limits and labels from the experiment at `PATH` instead of the stored one")
	return cmd
}

func (a *app) resume(ctx context.Context, name string, ef *experiment.Flags, rf *runFlags, sf *resumeFlags) error {
	again, err := outcomesOf(sf.again)
	if err != nil {
		return err
	}
	dir, m, l, err := a.loadRun(ctx, name, ef, sf)
	if err != nil {
		return err
	}
	defer l.Close()
	if err = a.startable(l); err != nil {
		if sf.experiment == "" && m.Header.Try == nil && (l.Experiment == nil || l.Plan == nil) {
			a.Notef("note: the paths of the stored experiment start from %s, where the run was made. If the run was copied to here, name the experiment with --experiment PATH\n", terminal.Clean(m.Header.Dir))
		}
		return err
	}
	if err = schedulerThere(l); err != nil {
		return err
	}
	now := l.Plan.Manifest(m.Header)
	err = a.unchanged(drift.ChangedPlan(m, now), "%s cannot be resumed: the differences above could change results. Undo them, or start a new run", report.Display(dir))
	if err = cmp.Or(err, rf.possible(now)); err != nil {
		return err
	}
	choose, err := selection.Of(sf.selected, dir, now)
	if err != nil {
		return err
	}
	s, err := store.Open(dir, version, sf.takeOver)
	if err != nil {
		return err
	}
	if err = a.drift(ctx, l, s, drifting{diverted: drift.ChangedModels(m, now), accept: sf.acceptDrift}); err != nil {
		return errors.Join(err, s.Close())
	}
	if err = a.extend(l, s, ef); err != nil { // last: a resume that is refused leaves the run as it was
		return errors.Join(err, s.Close())
	}
	selected, err := a.chosen(choose, s)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	measured := 0
	for _, t := range s.Index().Trials {
		if t.Measured() && t.Outcome() != record.VerifierError && slices.Contains(again, t.Outcome()) {
			measured++
		}
	}
	if measured > 0 {
		a.Notef("note: %d of the trials with outcomes of --again are measured, and are not run again: that would choose among results\n", measured)
	}
	return a.execute(ctx, &job{Loaded: l, flags: rf, store: s, again: again, selected: selected, acceptDrift: sf.acceptDrift, ownLimits: sf.experiment != ""})
}

// loadRun reads a run and its experiment, and makes the plan anew. The caller closes
// what is loaded.
func (a *app) loadRun(ctx context.Context, name string, ef *experiment.Flags, sf *resumeFlags) (dir string, m *store.Manifest, l *experiment.Loaded, err error) {
	if dir, err = report.FindRun(name); err != nil {
		return dir, nil, nil, err
	}
	if why := drift.Untrusted(dir); why != nil && !sf.trust {
		return dir, nil, nil, fmt.Errorf("%w: anyone who can change the run folder can choose what runs and where your keys are sent. Read its experiment, then continue with --trust", why)
	}
	if m, err = store.ReadManifest(dir); err != nil {
		return dir, nil, nil, err
	}
	if m.Header.Imported != "" {
		return dir, nil, nil, fmt.Errorf("%s was imported from %s, so there is no experiment to resume. Write one for its tasks, and compare both runs", report.Display(dir), m.Header.Imported)
	}
	path := sf.experiment
	if path == "" {
		if path, err = a.keptExperiment(dir, m, ef); err != nil {
			return dir, nil, nil, err
		}
	}
	ef.Values = m.Header.Variables
	ef.AllowEnv = append(slices.Clone(m.Header.AllowEnv), ef.AllowEnv...)
	ef.AllowRead = append(slices.Clone(m.Header.AllowRead), ef.AllowRead...)
	ef.Lenient = ef.Lenient || m.Header.Lenient
	ef.Replay = cmp.Or(ef.Replay, m.Header.Replay)
	ef.SkipRefused = ef.SkipRefused || m.Header.SkipRefused
	l, err = a.load(ctx, path, ef)
	return dir, m, l, err
}

// chosen returns the ids of the trials that --select chooses; nil means all. A
// trial that is measured is never run again: that would choose among results.
func (a *app) chosen(e *selection.Expression, s *store.Run) (map[string]bool, error) {
	if e == nil {
		return nil, nil
	}
	trials, err := e.Trials(s.Manifest, s.Index())
	if err != nil {
		return nil, err
	}
	ids, measured := map[string]bool{}, 0
	for _, t := range trials {
		if t.Measured() {
			measured++
		} else if t.Invalid == "" && t.Refused == "" {
			ids[t.ID] = true
		}
	}
	switch {
	case len(trials) == 0:
		a.Notef("note: --select chooses no trial. Try the expression with berth show\n")
	case measured > 0:
		a.Notef("note: %d of the %d selected trials are measured, and are not run again: that would choose among results\n", measured, len(trials))
	}
	return ids, nil
}

// extend adds the trials to a run that its plan does not have yet, and says which.
func (a *app) extend(l *experiment.Loaded, s *store.Run, ef *experiment.Flags) error {
	h := a.header(l, ef)
	h.Try = s.Manifest.Header.Try
	m := l.Plan.Manifest(h)
	added := drift.Added(s.Manifest, m)
	if len(added) == 0 {
		return nil
	}
	before := len(s.Manifest.Trials)
	if err := s.Extend(m, files(l.Experiment)); err != nil {
		return err
	}
	var what []string
	for _, c := range added {
		what = append(what, c.String())
	}
	text := fmt.Sprintf("extended from %d to %d trials: %s", before, len(m.Trials), strings.Join(what, "; "))
	a.Notef("note: the run is %s\n", terminal.Clean(text))
	return s.Note(text)
}

// tellChanges prints what changed since the run was made.
func (a *app) tellChanges(changes []drift.Change) {
	for _, c := range changes {
		a.because(c.String())
	}
}

// unchanged fails, and prints the changes, if there are some.
func (a *app) unchanged(changes []drift.Change, refusal string, args ...any) error {
	a.tellChanges(changes)
	if len(changes) == 0 {
		return nil
	}
	return fmt.Errorf(refusal, args...)
}

// keptExperiment returns the experiment stored in the run, if it is unchanged.
func (a *app) keptExperiment(dir string, m *store.Manifest, ef *experiment.Flags) (string, error) {
	path := filepath.Join(dir, m.Header.Folder())
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("the run has lost the files of its experiment: %w: name the experiment with --experiment", err)
	}
	changed, err := drift.ChangedFiles(dir, m)
	if err != nil {
		return "", err
	}
	for _, c := range changed {
		a.because(filepath.Join(m.Header.Folder(), c))
	}
	if len(changed) > 0 {
		return "", fmt.Errorf("%s cannot be resumed: the files above changed. Restore them, or name the experiment with --experiment", report.Display(dir))
	}
	if m.Header.Try == nil { // the experiment of `berth try` has only absolute paths
		ef.BaseDir = m.Header.Dir
		for _, name := range drift.EditedFiles(m) {
			a.Notef("note: %s has changed since the run was made. The run continues with its stored copy\n", terminal.Clean(name))
		}
	}
	ef.Kept = func(name string) string { return m.Header.Kept(dir, name) }
	return path, nil
}

// drifting says which differences a drift consists of.
type drifting struct {
	diverted []drift.Change // models whose address has changed
	except   string         // plugins of which the names begin like this may differ; empty: none
	accept   bool           // continue, and record it
}

// drift compares the plugins of earlier attempts with those of now.
func (a *app) drift(ctx context.Context, l *experiment.Loaded, s *store.Run, of drifting) error {
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
	var drifts []string
	for _, c := range of.diverted {
		drifts = append(drifts, c.String())
	}
	for _, d := range run.Drifts(s.Index(), now) {
		if of.except != "" && strings.HasPrefix(d.What, of.except) {
			continue
		}
		drifts = append(drifts, d.String())
	}
	if len(drifts) == 0 {
		return nil
	}
	for _, d := range drifts {
		a.because(d)
	}
	if !of.accept {
		return fmt.Errorf("%s cannot be resumed: the plugins or models above changed. Undo that, or continue with --accept-drift, which marks the run", report.Display(s.Dir))
	}
	for _, d := range drifts {
		if err = s.Accept(d); err != nil {
			return err
		}
	}
	return nil
}

func outcomesOf(names []string) ([]record.Outcome, error) {
	var os []record.Outcome
	for _, n := range names {
		o := record.Outcome(strings.TrimSpace(n))
		if !slices.Contains(record.Outcomes, o) {
			return nil, fmt.Errorf("--again %s: unknown outcome. Choose from %s", n, outcomeNames())
		}
		if o.Measured() {
			return nil, fmt.Errorf("--again %s: this outcome is a result, and results are not run again: choosing the better one would bias the score", n)
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
