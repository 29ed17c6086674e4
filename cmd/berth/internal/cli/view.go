package cli

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/telemetry"
	"github.com/berth-eval/berth/cmd/berth/internal/view"
)

func (a *app) viewCommand() *cobra.Command {
	var address string
	cmd := &cobra.Command{
		Use:   "view [RUN ...]",
		Short: "Show runs in a browser, also while they run",
		Long: `Serves web pages about runs until it is interrupted: numbers and charts, trials,
attempts with what the agent said, did and saw, files, and requests to models.
Without arguments it shows all runs in ./runs, also those that begin later. The
pages can also control your runs, as berth ctl does, and label attempts.

The printed address contains a token. Without it, no one can read the pages or
use their buttons.`,
		Example: "  berth view\n  berth view last --port 8080\n  berth view --port 192.0.2.7:8080",

		RunE: func(cmd *cobra.Command, args []string) error {
			if a.JSON {
				return errors.New("view serves pages and has no answer to print as JSON: leave out --json")
			}
			listen, err := telemetry.Address(address)
			if err != nil {
				return fmt.Errorf("--port: %w", err)
			}
			return a.view(cmd.Context(), args, listen)
		},
	}
	cmd.Flags().StringVar(&address, "port", "0", "serve at this `PORT` of the loopback interface, or at HOST:PORT; 0 takes a free one")
	return cmd
}

// view serves pages until ctx ends.
func (a *app) view(ctx context.Context, names []string, listen string) error {
	o := view.Options{Folder: report.RunsDir, Listen: listen, Berth: version}
	for _, name := range names {
		dir, err := report.FindRun(name)
		if err != nil {
			return err
		}
		o.Dirs = append(o.Dirs, dir)
	}
	s, err := view.New(ctx, o)
	if err != nil {
		return err
	}
	debug.SetGCPercent(50) // runs are read in pieces that are soon of no use: memory before processor time
	a.Printf("%s\nOpen this address in a browser. Press Ctrl-C to end.\n", s.Address())
	return s.Serve(ctx)
}
