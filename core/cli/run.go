package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/core/cli/load"
	"github.com/berth-eval/berth/core/cli/out"
	"github.com/berth-eval/berth/core/cli/show"
	"github.com/berth-eval/berth/core/store"
)

func (a *app) runCommand() *cobra.Command {
	var (
		ef load.Flags
		rf runFlags
		to string
	)
	cmd := &cobra.Command{
		Use:   "run [PATH]",
		Short: "Run an experiment",
		Long: `Runs an experiment (a file, or all *.hcl files of a folder; here without PATH), and
keeps everything in a new folder below ./runs. Ctrl-C ends it cleanly: what is
under way is cancelled and removed, and the run can be resumed.

Exit codes: 0 the run is complete, whatever the scores; 1 complete, but a trial
has an error outcome or a --require rule is not met; 2 nothing was started;
3 incomplete, can be resumed; 130 interrupted.`,
		Example: "  berth run experiment.hcl\n  berth run . --in-flight 8 --require \"agent=oracle: passed = planned\"",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := rf.requirements(); err != nil {
				return err
			}
			l, err := a.load(cmd.Context(), experimentPath(args), &ef)
			if err != nil {
				return err
			}
			defer l.Close()
			if err = a.startable(l); err != nil {
				return err
			}
			m := l.Plan.Manifest(a.header(l, &ef))
			if err = rf.possible(m); err != nil {
				return err
			}
			s, err := store.Create(to, m, files(l.Experiment))
			if err != nil {
				return fmt.Errorf("%w: --runs names another folder", err)
			}
			a.Notef("%s: %s, into %s\n", l.Experiment.Name, out.Count(len(l.Plan.Trials), "trial", "trials"), show.Display(s.Dir))
			return a.execute(cmd.Context(), &job{Loaded: l, flags: &rf, store: s})
		},
	}
	ef.Register(cmd)
	rf.register(cmd)
	cmd.Flags().StringVar(&to, "runs", show.RunsDir, "folder for the run's own folder")
	return cmd
}
