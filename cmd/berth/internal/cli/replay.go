package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/agreement"
	"github.com/berth-eval/berth/cmd/berth/internal/drift"
	"github.com/berth-eval/berth/cmd/berth/internal/experiment"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/runbundle"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/store"
)

// replayFlags are the user's choices for a replay.
type replayFlags struct {
	experiment experiment.Flags
	run        runFlags
	to         string // folder of the new run's folder
	trust      bool
}

func (a *app) replayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay RUN [TRIAL]",
		Short: "Run recorded attempts again without a key, and compare",
		Long: `Runs the trials of a run again, as a new run. Agents, sandboxes and tests are
real. Models reply what was recorded, so no key and no provider is needed. The
command then compares each trial with the recorded one: outcome, scores, tool
calls, and requests to models. It says how many trials agree, and shows the
first difference of each trial that does not agree.

RUN is a folder, or an archive that berth export --to bundle made. An archive
has the tasks, too. TRIAL replays one trial.

Exit code 1 means that a trial differs.`,
		Example: "  berth replay last\n  berth replay published.tar.zst --trust\n  berth replay last hello-file--terminus",
		Args:    cobra.RangeArgs(1, 2),

		RunE: func(cmd *cobra.Command, args []string) error {
			return a.replay(cmd.Context(), args, &f)
		},
	}
	f.experiment.Register(cmd)
	f.run.registerWork(cmd)
	cmd.Flags().StringVar(&f.to, "runs", report.RunsDir, "create the folder of the new run in `DIR`")
	cmd.Flags().BoolVar(&f.trust, "trust", false, "replay a run that another user made: its experiment and its tasks run on this machine")
	return cmd
}

// opened is a run that may have come in an archive.
type opened struct {
	dir      string
	datasets map[string]string // of an archive
	read     map[string]runbundle.Reading
	remove   func()
}

// openRun finds a run by its name, or unpacks an archive.
func openRun(name string) (*opened, error) {
	fi, err := os.Stat(name)
	if err != nil || fi.IsDir() {
		dir, missing := report.FindRun(name)
		return &opened{dir: dir, remove: func() {}}, missing
	}
	tmp, err := tempDir("berth-bundle-")
	if err != nil {
		return nil, err
	}
	remove := func() { _ = os.RemoveAll(tmp) }
	u, err := runbundle.Unpack(name, tmp)
	if err != nil {
		remove()
		return nil, err
	}
	return &opened{dir: u.Dir, datasets: u.Tasks, read: u.Read, remove: remove}, nil
}

func (a *app) replay(ctx context.Context, args []string, f *replayFlags) error {
	o, err := openRun(args[0])
	if err != nil {
		return err
	}
	defer o.remove()
	if o.datasets != nil && !f.trust {
		return fmt.Errorf("%s was made by another user, and its experiment and tasks would run on this machine: look at them (tar --zstd -tf), then replay it with --trust", args[0])
	}
	f.experiment.Replay, f.experiment.Datasets = o.dir, o.datasets
	_, m, l, err := a.loadRun(ctx, o.dir, &f.experiment, &resumeFlags{trust: f.trust || o.datasets != nil})
	if err != nil {
		return err
	}
	defer l.Close()
	if err = a.startable(l); err != nil {
		return err
	}
	_, index, err := store.Read(o.dir)
	if err != nil {
		return err
	}
	res := &output.Replay{Run: args[0]}
	chosen, err := replayable(index, args[1:], res)
	if err != nil {
		return err
	}
	m.Header.Replay = o.dir
	now, err := a.sameWork(m, l, chosen, "the run cannot be replayed: it would not be the same work. Restore what differs, or replay an archive that has the tasks")
	if err != nil {
		return err
	}
	s, err := create(f.to, now, l)
	if err != nil {
		return err
	}
	res.Dir = s.Dir
	a.Notef("replay of %s: %s, into %s\n", terminal.Clean(args[0]), terminal.Count(len(chosen), "trial", "trials"), shownFolder(s.Dir))
	if _, err = a.executeAndShow(ctx, &job{Loaded: l, flags: &f.run, store: s, selected: chosen}); err == nil {
		err = compareReplay(o.dir, index, s, chosen, res)
	}
	if err = errors.Join(err, s.Close()); err != nil {
		return &exit{exitIncomplete, err}
	}
	if err := a.say(res, func() { a.sayReplay(res) }); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		return &exit{exitInterrupted, nil}
	case res.Agree < res.Trials:
		return &exit{exitErrors, nil}
	}
	return nil
}

// sameWork returns the manifest of a new run that makes some trials of a run again. If
// what they do has changed, it prints how, and fails with the refusal.
func (a *app) sameWork(m *store.Manifest, l *experiment.Loaded, chosen map[string]bool, refusal string) (*store.Manifest, error) {
	h := m.Header
	h.Extended, h.Berth, h.Created = 0, version, time.Now().UTC()
	now := l.Plan.Manifest(h)
	tasks := map[string]bool{}
	for i := range m.Trials {
		if t := &m.Trials[i]; chosen[t.ID] {
			tasks[t.Dataset+"/"+t.Task] = true
		}
	}
	changes := slices.DeleteFunc(drift.ChangedPlan(m, now), func(c drift.Change) bool { return c.Task != "" && !tasks[c.Task] })
	return now, a.unchanged(changes, "%s", refusal)
}

// replayable returns the ids of the trials that can be replayed: all, or the one that
// is named.
func replayable(index *store.Index, named []string, res *output.Replay) (map[string]bool, error) {
	all := index.Trials
	if len(named) > 0 {
		t, err := report.FindTrial(index, named[0])
		if err != nil {
			return nil, err
		}
		all = []*store.TrialState{t}
	}
	ids := map[string]bool{}
	for _, t := range all {
		acc, why := t.Accepted(), ""
		switch {
		case acc == nil || t.Invalid != "":
			why = "it has no result"
		case !acc.Result.Measured():
			why = fmt.Sprintf("it ended as %s, which says nothing about its agent", acc.Result.Outcome)
		case acc.Result.Origin > 0:
			why = "its result is from berth regrade"
		}
		if why == "" {
			ids[t.ID] = true
			continue
		}
		res.Skipped = append(res.Skipped, output.ReplayedTrial{Trial: t.Dir, Why: why})
	}
	if len(ids) == 0 {
		return nil, errors.New("no trial can be replayed: none has a result")
	}
	return ids, nil
}

// compareReplay compares the trials of the new run with the recorded ones.
func compareReplay(was string, index *store.Index, s *store.Run, chosen map[string]bool, res *output.Replay) error {
	now := s.Index()
	for _, t := range index.Trials {
		if !chosen[t.ID] {
			continue
		}
		res.Trials++
		again := now.Trial(t.ID)
		if again == nil || again.Accepted() == nil {
			res.Differ = append(res.Differ, output.ReplayedTrial{Trial: t.Dir, Differences: []string{"it was not replayed to its end"}})
			continue
		}
		d, err := agreement.Compare(report.Folder(was, t, t.Accepted().Number), report.Folder(s.Dir, again, again.Accepted().Number))
		if err != nil {
			return fmt.Errorf("compare %s: %w", t.Dir, err)
		}
		for _, x := range []struct {
			text  string
			count *int
		}{{d.Outcome, &res.Outcomes}, {d.Scores, &res.Scores}, {d.ToolCalls, &res.ToolCalls}, {d.Requests, &res.Requests}} {
			if x.text == "" {
				*x.count++
			}
		}
		if texts := d.Texts(); len(texts) > 0 {
			res.Differ = append(res.Differ, output.ReplayedTrial{Trial: t.Dir, Differences: texts})
			continue
		}
		res.Agree++
	}
	return nil
}

// sayReplay prints how the trials agree.
func (a *app) sayReplay(res *output.Replay) {
	for _, t := range res.Differ {
		a.Printf("%s\n  %s\n", terminal.Clean(t.Trial), terminal.Clean(strings.Join(t.Differences, "\n  ")))
	}
	for _, t := range res.Skipped {
		a.Printf("%s was not replayed: %s\n", terminal.Clean(t.Trial), terminal.Clean(t.Why))
	}
	a.Printf("%d of %d replayed trials agree in everything: %d in the outcome, %d in the scores, %d in the tool calls, %d in the requests\n",
		res.Agree, res.Trials, res.Outcomes, res.Scores, res.ToolCalls, res.Requests)
	a.Printf("the replay is in %s\n", report.Display(res.Dir))
}

// exportBundle writes a run, with its tasks, as an archive.
func (a *app) exportBundle(ctx context.Context, name, out string) error {
	var ef experiment.Flags
	dir, m, l, err := a.loadRun(ctx, name, &ef, &resumeFlags{trust: true}) // nothing is run
	if err != nil {
		return err
	}
	defer l.Close()
	if l.Plan == nil {
		return a.startable(l) // says what is wrong
	}
	_, index, err := store.Read(dir)
	if err != nil {
		return err
	}
	changes, err := otherTasks(dir, index, drift.ChangedPlan(m, l.Plan.Manifest(m.Header)))
	if err != nil {
		return err
	}
	if err = a.unchanged(changes, "the archive would have other tasks than the run: restore those that differ"); err != nil {
		return err
	}
	if w := index.Writing(); w != nil {
		return fmt.Errorf("%s is in progress (%s): wait for its end", report.Display(dir), w.Process)
	}
	head := runbundle.Head{Run: m.Header.Run, Berth: version}
	datasets := map[string]string{}
	head.Read = map[string]runbundle.Reading{}
	for _, c := range l.Experiment.Cells {
		for i := range c.Datasets {
			d := &c.Datasets[i]
			datasets[d.Label] = d.Path
			head.Read[d.Label] = runbundle.Reading{Format: d.Format, Config: d.Config.JSON(), AllowEnv: slices.Concat(m.Header.AllowEnv, d.AllowEnv)}
		}
	}
	f, err := os.CreateTemp(filepath.Dir(out), "."+filepath.Base(out)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it has its name, or is worth nothing
	err = errors.Join(runbundle.Write(f, dir, head, datasets), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), out)
	}
	if err != nil {
		return fmt.Errorf("export %s: %w", report.Display(dir), err)
	}
	notes := []string{"The archive has the replies of models, what agents did, and all files of the tasks with their tests and solutions: look through it before you publish it."}
	return a.exported(output.Export{Run: dir, Format: "bundle", Path: out, Rows: len(index.Trials), Notes: notes}, terminal.Count(len(index.Trials), "trial", "trials"))
}

// otherTasks leaves out the changes of tasks whose present content is the one that
// a regrade used.
func otherTasks(dir string, index *store.Index, changes []drift.Change) ([]drift.Change, error) {
	regraded := map[string]bool{} // dataset, task and digest
	for _, t := range index.Trials {
		acc := t.Accepted()
		if acc == nil || acc.Result.Origin == 0 {
			continue
		}
		r, err := store.ReadResult(report.Folder(dir, t, acc.Number))
		if err != nil {
			return nil, err
		}
		regraded[t.Dataset+"/"+t.Task+" "+r.TaskDigest] = true
	}
	return slices.DeleteFunc(changes, func(c drift.Change) bool { return c.Task != "" && regraded[c.Task+" "+c.After] }), nil
}
