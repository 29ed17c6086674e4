package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/load"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/config"
	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/gateway/dialects"
	"github.com/berth-eval/berth/core/gateway/ledger"
	"github.com/berth-eval/berth/core/trial"
	"github.com/berth-eval/berth/plugins/model"
)

// modelsOf are the models that an experiment uses, each once, by label.
func modelsOf(e *config.Experiment) []config.Model {
	byID := map[string]config.Model{}
	add := func(ms map[string]config.Model) {
		for _, m := range ms {
			byID[gateway.ModelID(m)] = m
		}
	}
	for _, c := range e.Cells {
		add(c.Agent.Models)
		if c.User != nil {
			add(c.User.Agent.Models)
		}
		for _, v := range c.Verifiers {
			add(v.Models)
		}
		if c.Model != nil {
			add(map[string]config.Model{"": *c.Model})
		}
	}
	var ms []config.Model
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		ms = append(ms, byID[id])
	}
	return ms
}

// models is the gateway of a run; nil when it uses no model.
func (a *app) models(j *job, dir string) (*gateway.Gateway, error) {
	ms := modelsOf(j.Experiment)
	if len(ms) == 0 {
		return nil, nil
	}
	spent := gateway.Before(j.store.Index())
	var sum ledger.Amount
	for _, s := range spent {
		sum = sum.Plus(s)
	}
	l := j.limits()
	// The underscore: folders of attempts beside it have names of letters and digits.
	return gateway.New(gateway.Options{
		Dir: dir + "/_g", Models: ms, FindRun: report.FindRun, Run: ledger.Limit{Requests: l.Requests, Tokens: l.Tokens, USD: l.CostUSD}, Spent: sum,
		Cells: budgets(j, spent), Log: a.log,
	})
}

// budgets are those of the cells, with what was spent of them before the run
// was resumed.
func budgets(j *job, spent map[string]ledger.Amount) []gateway.Cell {
	cells := make([]gateway.Cell, len(j.Experiment.Cells))
	for i, c := range j.Experiment.Cells {
		p := &c.PerCell
		cells[i] = gateway.Cell{Name: c.Key, Limit: ledger.Limit{Requests: p.Requests, Tokens: p.Tokens, USD: p.CostUSD}}
		for _, m := range modelsOf(&config.Experiment{Cells: []*config.Cell{c}}) {
			cells[i].Models = append(cells[i].Models, gateway.ModelID(m))
		}
	}
	for i := range j.Plan.Trials {
		t := &j.Plan.Trials[i]
		c := &cells[t.Cell]
		c.Trials = append(c.Trials, t.ID)
		c.Spent = c.Spent.Plus(spent[t.ID])
	}
	return cells
}

// asGateway keeps a gateway that is not there from becoming one that is.
func asGateway(g *gateway.Gateway) trial.Gateway {
	if g == nil {
		return nil
	}
	return g
}

func (a *app) gatewayCommand() *cobra.Command {
	var (
		f    load.Flags
		port int
	)
	cmd := &cobra.Command{
		Use:   "gateway PATH",
		Short: "Serve the models of an experiment on a port, to try a client",
		Long: `Serves the models of an experiment as an agent would get them: at an address of
this machine, with a token for each that is good until the command ends. The key
of the provider stays here. What was used is printed at the end (Ctrl-C).

Whoever has the token can use the model, and pays with the key of the
experiment.`,
		Example: "  berth gateway experiment.hcl\n  berth gateway experiment.hcl --port 8099 --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.serveModels(cmd.Context(), args[0], &f, port)
		},
	}
	f.Register(cmd)
	cmd.Flags().IntVar(&port, "port", 0, "the `PORT` (default: any free one)")
	return cmd
}

func (a *app) serveModels(ctx context.Context, path string, f *load.Flags, port int) (err error) {
	formats := make([]string, len(a.formats))
	for i, t := range a.formats {
		formats[i] = t.Name()
	}
	e, ds := config.Load(ctx, path, config.Options{
		Vars: f.Vars, VarFiles: f.VarFiles, AllowRead: f.AllowRead, BaseDir: f.BaseDir, LookupEnv: a.env, Formats: formats,
		Providers: dialects.Names(),
	})
	if a.JSON && ds.HasErrors() {
		a.failure.Diagnostics = ds
	} else if err = a.Explain(ds); err != nil {
		return err
	}
	if e == nil || ds.HasErrors() {
		return &exit{exitUsage, errors.New("nothing was started")}
	}
	ms := modelsOf(e)
	if len(ms) == 0 {
		return fmt.Errorf("%s uses no model: name one with model = model.<name>", path)
	}
	dir, err := tempDir("berth-gateway-")
	if err != nil {
		return err
	}
	g, err := gateway.New(gateway.Options{
		Dir: dir, Models: ms, FindRun: report.FindRun, Run: ledger.Limit{Requests: e.Limits.Requests, Tokens: e.Limits.Tokens, USD: e.Limits.CostUSD}, Log: a.log,
	})
	if err != nil {
		return errors.Join(err, os.Remove(dir))
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	spec := trial.ModelSpec{Trial: "by hand", Role: "hand", Hosted: true, Models: map[string]trial.Model{}}
	for _, m := range ms {
		spec.Models[m.Label] = trial.Model{ID: gateway.ModelID(m), Label: m.Label, Info: model.Info{Dialect: model.Dialect(m.Provider), Name: m.Name}}
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
	if err = s.Allow(ctx); err != nil {
		return err
	}
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

// sayModels prints how the models are reached.
func (a *app) sayModels(s trial.ModelSession, url string, ms []config.Model) error {
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
		a.Printf("%s\n  provider  %s\n  model     %s\n  base URL  %s (or %s/v1, as the client has it)\n  key       %s\n", m.Label, m.Provider, m.Name, m.URL, m.URL, m.Token)
	}
	a.Notef("Ctrl-C ends it\n")
	return nil
}
