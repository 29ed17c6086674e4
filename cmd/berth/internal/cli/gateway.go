package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/config"
	"github.com/berth-eval/berth/cmd/berth/internal/experiment"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/dialects/scripted"
)

func (a *app) gatewayCommand() *cobra.Command {
	var (
		f    experiment.Flags
		port int
	)
	cmd := &cobra.Command{
		Use:   "gateway PATH",
		Short: "Serve the models of an experiment on a port, to test a client",
		Long: `Serves the models of an experiment as agents get them: at an address of this
machine, with a token per model that works until the command ends. Clients
never see the key of the provider. Ctrl-C ends the command and prints the
usage.

Anybody who has a token can use the model at the cost of the experiment's key.`,
		Example: "  berth gateway experiment.hcl\n  berth gateway experiment.hcl --port 8099 --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.serveModels(cmd.Context(), args[0], &f, port)
		},
	}
	f.Register(cmd)
	cmd.Flags().IntVar(&port, "port", 0, "the `PORT` (default: any free port)")
	return cmd
}

func (a *app) serveModels(ctx context.Context, path string, f *experiment.Flags, port int) (err error) {
	formats := make([]string, len(a.formats))
	for i, t := range a.formats {
		formats[i] = t.Name()
	}
	e, ds := config.Load(ctx, path, config.Options{
		Vars: f.Vars, VarFiles: f.VarFiles, AllowRead: f.AllowRead, BaseDir: f.BaseDir, LookupEnv: a.env, Formats: formats,
		Providers: dialects.All.Providers(), CheckScript: scripted.Check,
	})
	if a.JSON && ds.HasErrors() {
		a.failure.Diagnostics = ds
	} else if err = a.Explain(ds); err != nil {
		return err
	}
	if e == nil || ds.HasErrors() {
		return errors.New("nothing was started")
	}
	ms := run.Models(e.Cells...)
	if len(ms) == 0 {
		return fmt.Errorf("%s uses no model: set model = model.<name>", path)
	}
	dir, err := tempDir("berth-gateway-")
	if err != nil {
		return err
	}
	g, err := gateway.New(gateway.Options{
		Dir: dir, Dialects: dialects.All, Models: ms, Replay: run.Replay(report.FindRun), Run: e.Limits.Budget, Log: a.log,
	})
	if err != nil {
		return errors.Join(err, os.Remove(dir))
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	spec := models.Spec{Trial: "by hand", Role: "hand", Hosted: true, Models: map[string]*cell.Model{}}
	for _, m := range ms {
		spec.Models[m.Label] = m
	}
	s, err := g.Session(ctx, spec)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(context.WithoutCancel(ctx))) }()
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return err
	}
	if err = gateway.Serve(s, l); err != nil {
		return errors.Join(err, l.Close())
	}
	s.Allow(ctx)
	if err = a.sayModels(s, "http://"+l.Addr().String(), ms); err != nil {
		return err
	}
	<-ctx.Done()
	for _, u := range s.Usage() {
		cost := "cost not known"
		if u.CostUSD != nil {
			cost = fmt.Sprintf("%.4f USD", *u.CostUSD)
		}
		a.Notef("%s: %d requests, %d tokens in, %d out, %s\n", terminal.Clean(u.Model), u.Requests, u.InputTokens, u.OutputTokens, cost)
	}
	return nil
}

// sayModels prints how to reach the models.
func (a *app) sayModels(s models.Session, url string, ms []*cell.Model) error {
	var res output.Gateway
	endpoints := s.Endpoints()
	for _, m := range ms {
		e := endpoints[m.Label]
		res.Models = append(res.Models, output.GatewayModel{Label: m.Label, Name: e.Name, Provider: m.Provider, URL: url, Token: e.Token})
	}
	if done, err := a.Answer(res); done || err != nil {
		return err
	}
	for _, m := range res.Models {
		a.Printf("%s\n  provider  %s\n  model     %s\n  base URL  %s (or %s/v1 if the client needs it)\n  key       %s\n", m.Label, m.Provider, m.Name, m.URL, m.URL, m.Token)
	}
	a.Notef("Press Ctrl-C to stop.\n")
	return nil
}
