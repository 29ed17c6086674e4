// Package experiment reads the files of an experiment and makes its plan, with
// everything that is wrong with them, for the commands that need one.
//
// It must not execute anything. It starts plugins, which the caller stops with
// Close.
package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/config"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/core/cell"
	core "github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/run/cluster"
	"github.com/berth-eval/berth/core/trial"
	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/dialects/scripted"
	"github.com/berth-eval/berth/plugins"
	pluginconfig "github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/task"
)

// Flags are the user's choices for loading an experiment.
type Flags struct {
	Vars, VarFiles, AllowRead, AllowEnv []string

	Values  map[string]json.RawMessage // of variables, unless Vars or VarFiles have others
	Lenient bool
	// SkipRefused skips tasks that a cell cannot run, and counts them as
	// not_run.
	SkipRefused bool
	// Replay is the folder of a run that all models are replayed from; empty:
	// what the experiment says.
	Replay string
	// Datasets are folders of tasks that replace those of the experiment, by the
	// label of the dataset.
	Datasets map[string]string

	// Change changes the experiment before it is planned; nil: nothing.
	Change func(*config.Experiment)

	BaseDir string // folder that relative paths start from; empty: the experiment's
	Kept    func(name string) string
	// Remote says that another process schedules the run and sends the secrets: they
	// are not read here.
	Remote bool
}

// Register adds the flags to a command.
func (f *Flags) Register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringArrayVar(&f.Vars, "var", nil, "set a variable of the experiment, `NAME=VALUE`; may be repeated")
	fs.StringArrayVar(&f.VarFiles, "var-file", nil, "read variables from a `FILE`; may be repeated")
	fs.StringArrayVar(&f.AllowRead, "allow-read", nil, "let functions of the experiment also read files below `DIR`; may be repeated")
	fs.StringArrayVar(&f.AllowEnv, "allow-env", nil, "let tasks use this `VARIABLE` of the host, or those like EVAL_*; may be repeated")
	fs.BoolVar(&f.SkipRefused, "skip-refused", false, "skip tasks that a cell cannot run, and count them as not_run")
	fs.BoolVar(&f.Lenient, "lenient", false, "treat unknown keys in tasks as warnings")
}

// Loaded is an experiment with its plan and its plugins.
type Loaded struct {
	Experiment  *config.Experiment // nil: it has errors
	Diagnostics config.Diagnostics
	Plan        *plan.Plan         // nil: the same
	Secrets     config.Diagnostics // the secrets that cannot be read; none without a plan
	Host        *plugin.Host
}

// Close stops its plugins.
func (l *Loaded) Close() {
	if l.Host != nil {
		l.Host.Stop()
	}
}

// Options are the same for all experiments.
type Options struct {
	Formats []task.Format
	Host    *plugin.Host // Close stops it
	Env     func(string) (string, bool)
	// Environment is the plugin for an experiment that names none.
	Environment string
	// IgnoreLock loads an experiment whose plugins differ from its lock file.
	IgnoreLock bool
	// LockAbove is a folder of tasks whose experiment is not loaded. The lock file
	// is then the one in the nearest folder above, and plugins that it does not
	// name are not compared. Empty: the one of the experiment.
	LockAbove string
}

// Load reads an experiment, asks its plugins, and plans it. Problems of the
// experiment are part of the result; an error means that Load itself failed.
// The caller closes the result.
func Load(ctx context.Context, path string, f *Flags, o Options) (*Loaded, error) {
	l := &Loaded{Host: o.Host}
	if err := l.load(ctx, path, f, o); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *Loaded) load(ctx context.Context, path string, f *Flags, o Options) (err error) {
	names := make([]string, len(o.Formats))
	for i, t := range o.Formats {
		names[i] = t.Name()
	}
	l.Experiment, l.Diagnostics = config.Load(ctx, path, config.Options{
		Vars: f.Vars, VarFiles: f.VarFiles, Values: f.Values, AllowRead: f.AllowRead, BaseDir: f.BaseDir, Datasets: f.Datasets, Kept: f.Kept, LookupEnv: o.Env, Formats: names,
		Providers: dialects.All.Providers(), DefaultEnvironment: o.Environment, CheckScript: scripted.Check,
		Schemas: func(kind plugins.Kind, name string) (pluginconfig.Schema, error) {
			if kind == config.KindFormat {
				return formatSchema(o.Formats, name)
			}
			return l.Host.Schema(ctx, kind, name)
		},
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if l.Experiment == nil {
		return nil
	}
	if f.Replay != "" {
		for _, m := range run.Models(l.Experiment.Cells...) {
			m.Replay, m.APIKey, m.APIKeys = f.Replay, nil, nil // no provider is asked
		}
	}
	if f.Change != nil {
		f.Change(l.Experiment)
	}
	if err = l.ask(ctx); err != nil {
		return err
	}
	l.askFormats(o.Formats)
	l.Plan, err = plan.Make(ctx, plan.Input{
		Experiment: &l.Experiment.Experiment, Formats: o.Formats, Plugins: trial.PluginsOf(l.Host), Dialects: dialects.All,
		Executors: Executors, Settings: l.Host.ValidateSettings, Options: task.Options{Lenient: f.Lenient, AllowEnv: f.AllowEnv, LookupEnv: o.Env},
	})
	if err != nil {
		return err
	}
	if !f.Remote {
		l.readSecrets()
	}
	if l.Clustered() {
		l.Plan.Problems = append(l.Plan.Problems, cluster.Check(l.Plan)...)
	}
	l.checkVerifiers()
	l.warnOfUsers()
	if f.SkipRefused {
		l.Plan.SkipRefused()
	}
	if !o.IgnoreLock {
		return l.checkLock(ctx, o.LockAbove)
	}
	return nil
}

// Executors are the kinds of executors besides "local". With "pilots", the user
// starts the workers.
var Executors = []string{"pilots", "slurm"}

// Clustered reports whether pilots make the attempts.
func (l *Loaded) Clustered() bool {
	return l.Experiment != nil && slices.Contains(Executors, l.Experiment.Executor.Kind)
}

// block is a block with a configuration for a plugin to validate.
type block struct {
	kind        plugins.Kind
	label, name string // name is the plugin's
	values      cell.Values
}

// blocksOf returns the blocks of a cell that have a configuration.
func blocksOf(c *core.Cell) []block {
	blocks := []block{
		{plugins.KindAgent, c.Agent.Label, c.Agent.Plugin, c.Agent.Config},
		{plugins.KindEnvironment, c.Environment.Label, c.Environment.Plugin, c.Environment.Config},
	}
	if e := &c.Environment; e.Surface != "" {
		blocks = append(blocks, block{plugins.KindEnvironment, e.Label, e.Surface, e.SurfaceConfig})
	}
	if c.User != nil {
		blocks = append(blocks, block{plugins.KindAgent, c.User.Agent.Label, c.User.Agent.Plugin, c.User.Agent.Config})
	}
	for _, label := range slices.Sorted(maps.Keys(c.Verifiers)) {
		v := c.Verifiers[label]
		blocks = append(blocks, block{plugins.KindVerifier, label, v.Plugin, v.Config})
	}
	return blocks
}

// ask lets each plugin validate the configurations of its blocks, each once.
func (l *Loaded) ask(ctx context.Context) error {
	asked := map[string]bool{}
	for _, c := range l.Experiment.Cells {
		for _, b := range blocksOf(c) {
			key := fmt.Sprintf("%s %s %s %s", b.kind, b.label, b.name, b.values.JSON())
			if asked[key] {
				continue
			}
			asked[key] = true
			l.judge(ctx, b)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// judge adds the problems that the plugin of a block reports. A missing plugin
// was already reported when its schema was read.
func (l *Loaded) judge(ctx context.Context, b block) {
	ps, err := l.Host.Validate(ctx, b.kind, b.name, b.values.JSON())
	if err != nil && !errors.Is(err, plugin.ErrUnknown) {
		l.Diagnostics = append(l.Diagnostics, config.Diagnostic{
			Severity: config.Error, Summary: fmt.Sprintf("%s %q cannot validate its configuration", b.kind, b.name), Detail: err.Error() + ".",
		})
	}
	l.Diagnostics = append(l.Diagnostics, l.Experiment.ConfigProblems(b.kind, b.label, ps)...)
}

// Ready reports whether a run could start.
func (l *Loaded) Ready() bool {
	return l.Experiment != nil && !l.Diagnostics.HasErrors() && l.Plan != nil && !l.Plan.Blocked() && !l.Secrets.HasErrors()
}

// Why says why an experiment is not ready: its first error.
func (l *Loaded) Why() string {
	for _, d := range slices.Concat(l.Diagnostics, l.Secrets) {
		if d.Severity == config.Error {
			return strings.TrimSuffix(strings.TrimSpace(d.Summary+": "+d.Detail), ":")
		}
	}
	if l.Plan == nil {
		return ""
	}
	for _, m := range l.Plan.Missing {
		return "missing: " + missingText(m)
	}
	for _, p := range l.Plan.Problems {
		if p.Severity == plan.Error {
			return Text(l.Plan, p)
		}
	}
	return ""
}

// Complain prints all errors and warnings to stderr.
func (l *Loaded) Complain(to *terminal.Printer) error {
	if err := to.Explain(slices.Concat(l.Diagnostics, l.Secrets)); err != nil {
		return err
	}
	if l.Plan == nil {
		return nil
	}
	for _, m := range l.Plan.Missing {
		to.Notef("%s %s\n", terminal.Paint(to.ErrColor, terminal.Bad, "Missing:"), missingText(m))
	}
	for _, p := range l.Plan.Problems {
		head := terminal.Paint(to.ErrColor, terminal.Bad, "Error:")
		if p.Severity == plan.Warning {
			head = terminal.Paint(to.ErrColor, terminal.Odd, "Warning:")
		}
		to.Notef("%s %s\n", head, terminal.Clean(Text(l.Plan, p)))
	}
	return nil
}

func missingText(m plan.Missing) string {
	s := m.Name
	if m.Why != "" {
		s += ": " + m.Why
	}
	who := m.For
	if len(who) == 1 && who[0] == "" {
		who = nil
	}
	if len(who) > 3 {
		who = append(slices.Clone(who[:3]), fmt.Sprintf("%d more", len(m.For)-3))
	}
	if len(who) > 0 {
		s += " (for " + strings.Join(who, ", ") + ")"
	}
	return terminal.Clean(s)
}
