package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/view"
)

func (a *app) viewCommand() *cobra.Command {
	port, listen, browser := 0, "", true
	cmd := &cobra.Command{
		Use:   "view [RUN ...]",
		Short: "Show runs in a browser, also while they run",
		Long: `Serves web pages about runs until it is interrupted: numbers and charts, trials,
attempts with what the agent said, did and saw, files, and requests to models.
Without arguments it shows all runs in ./runs, also those that begin later. The
pages can also control your runs, as berth ctl does, and label attempts.

The printed address contains a token. Without it, no one can read the pages or
use their buttons. On a desktop, the address is opened in a browser.`,
		Example: "  berth view\n  berth view last --port 8080\n  berth view --listen 192.0.2.7:8080",

		ValidArgsFunction: completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case a.JSON:
				return errors.New("view serves pages and has no answer to print as JSON: leave out --json")
			case port < 0 || port > 65535:
				return fmt.Errorf("--port: %d is not a port: choose one from 1 to 65535, or 0 for a free one", port)
			case listen != "" && cmd.Flags().Changed("port"):
				return errors.New("--listen and --port both name a port: write it in --listen only. Example: --listen 192.0.2.7:8080")
			case listen == "":
				listen = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
			}
			return a.view(cmd.Context(), args, listen, browser)
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&port, "port", 0, "`PORT` on the loopback interface; 0 takes a free one")
	fs.StringVar(&listen, "listen", "", "serve on this address, `HOST:PORT`, instead of the loopback interface")
	fs.BoolVar(&browser, "browser", true, "open a browser, if this is a terminal of a desktop")
	return cmd
}

// view serves pages until ctx ends.
func (a *app) view(ctx context.Context, names []string, listen string, browser bool) error {
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
	if browser && a.Width > 0 {
		leave, err := view.Browse(ctx, s.Address())
		if err != nil {
			a.Notef("no browser was opened: %v\n", err)
		}
		defer leave()
	}
	return s.Serve(ctx)
}
