package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/config"
	"github.com/berth-eval/berth/cmd/berth/internal/control"
	"github.com/berth-eval/berth/cmd/berth/internal/experiment"
	"github.com/berth-eval/berth/cmd/berth/internal/jobmemory"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/requirement"
	"github.com/berth-eval/berth/cmd/berth/internal/telemetry"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/internal/tui"
	"github.com/berth-eval/berth/cmd/berth/internal/usage"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/cmd/berth/summary"
	core "github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/run/cluster"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/core/trial"
	"github.com/berth-eval/berth/dialects"
)

// runFlags are the user's choices for executing a run.
type runFlags struct {
	inFlight usage.Count
	require  []string // as given
	rules    []requirement.Rule
	lines    bool // print progress as lines, also on a terminal
	relay    string
	metrics  string // address
}

func (f *runFlags) register(cmd *cobra.Command) {
	f.registerWork(cmd)
	cmd.Flags().Func("require", "exit with code 1 unless this `RULE` holds for each cell: \"pass_rate >= 0.9\", \"agent=oracle: passed = planned\", \"exposed = 0\"; may be repeated", func(text string) error {
		rule, err := requirement.Parse(text)
		f.require, f.rules = append(f.require, text), append(f.rules, rule)
		return err
	})
}

// registerWork adds the flags that are not about the result.
func (f *runFlags) registerWork(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.Var(&f.inFlight, "in-flight", "`NUMBER` of attempts at the same time (default: that of the experiment, or the number of processors)")
	fs.StringVar(&f.relay, "relay-address", "", "let pilots reach models at this `ADDRESS` of this machine, HOST or HOST:PORT (default: any address that they can connect to)")
	fs.Func("metrics", "serve metrics for Prometheus at this `ADDRESS`, PORT or HOST:PORT, to everybody who can connect; without a host, on the loopback interface", func(s string) (err error) {
		f.metrics, err = telemetry.Address(s)
		return err
	})
}

// possible refuses a --require rule that matches no cell of the plan.
func (f *runFlags) possible(m *store.Manifest) error {
	var err error
	for _, r := range f.rules {
		err = errors.Join(err, r.Possible(m))
	}
	return err
}

// job is a run to execute.
type job struct {
	*experiment.Loaded
	flags *runFlags
	store *store.Run
	again []record.Outcome
	// selected are the ids of the trials that may run; nil: all.
	selected map[string]bool
	// origins are the attempts to verify again; nil: whole attempts are made.
	origins map[string]*trial.Origin
	// acceptDrift continues although images or bundles have changed.
	acceptDrift bool
	// watch gets the events in place of the terminal; nil: they are printed.
	watch func(run.Event)
	// ownLimits says that the user names an experiment for its limits: what people
	// set during the run does not count any more.
	ownLimits bool
}

// startable returns an error if the run cannot start. The reasons were already
// printed.
func (a *app) startable(l *experiment.Loaded) error {
	if a.JSON && !l.Ready() {
		a.failure.Diagnostics = slices.Concat(l.Diagnostics, l.Secrets)
		if l.Plan != nil {
			a.failure.Problems, a.failure.Missing = l.Plan.Problems, l.Plan.Missing
		}
	} else if err := l.Complain(a.Printer); err != nil {
		return err
	}
	if !l.Ready() {
		err := errors.New("nothing was started")
		if l.Plan != nil && slices.ContainsFunc(l.Plan.Problems, func(p plan.Problem) bool { return p.Refusal && p.Severity == plan.Error }) {
			err = errors.New("nothing was started: exclude the refused tasks, or skip them with --skip-refused")
		}
		return err
	}
	return cmp.Or(telemetry.CheckTraces(), machineReady())
}

// machineReady reports what prevents every run on this machine from starting,
// by creating what each run needs in the runtime folder.
func machineReady() error {
	sandboxd, err := sandboxdPath()
	if err == nil {
		_, err = run.InstallSandboxd(sandboxd)
	}
	return err
}

// execute executes a run and prints the result. It closes the store.
func (a *app) execute(ctx context.Context, j *job) error {
	result, err := a.executeAndShow(ctx, j)
	index := j.store.Index()
	counted := summary.Of(j.store.Manifest, index)
	err = errors.Join(err, writeSummary(j.store, counted), j.store.Close())
	if err != nil {
		return &exit{exitIncomplete, fmt.Errorf("%w\nresume with: berth resume %s", err, report.Display(j.store.Dir))}
	}
	res := output.Run{Dir: j.store.Dir, Ran: result.Ran, Stopped: result.Stopped, Summary: counted}
	for _, r := range j.flags.rules {
		res.Failed = append(res.Failed, r.Check(counted, j.store.Manifest)...)
	}
	if err := a.say(res, func() { a.sayRun(&res) }); err != nil {
		return err
	}
	return a.verdict(ctx, &res, result)
}

// verdict is the exit code of a run.
func (a *app) verdict(ctx context.Context, res *output.Run, report run.Report) error {
	switch {
	case ctx.Err() != nil:
		return &exit{exitInterrupted, nil}
	case report.Broken != nil:
		return &exit{exitIncomplete, fmt.Errorf("the run folder could not be written: %w", report.Broken)}
	case !res.Summary.Complete:
		return &exit{exitIncomplete, nil}
	case len(res.Failed) > 0 || res.Summary.Errors > 0:
		return &exit{exitErrors, nil}
	default:
		return nil
	}
}

// writeSummary writes summary.json.
func writeSummary(r *store.Run, s *summary.Summary) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("summary: %w", err)
	}
	return r.WriteFile(store.SummaryFile, append(b, '\n'))
}

// executeAndShow executes a run and shows its progress.
func (a *app) executeAndShow(ctx context.Context, j *job) (run.Report, error) {
	sandboxd, err := sandboxdPath()
	if err != nil {
		return run.Report{}, err
	}
	o := tui.Options{Err: a.Err, Color: a.ErrColor, Block: a.Live && !j.flags.lines && !a.verbose}
	for i := range j.store.Manifest.Cells {
		o.Cells = append(o.Cells, j.store.Manifest.Cells[i].Slug)
	}
	for i := range j.Plan.Tasks {
		o.Tasks = append(o.Tasks, j.Plan.Tasks[i].Name)
	}
	progress := tui.New(o)
	defer progress.Close()
	defer a.logs.through(progress)()
	spec := run.Spec{
		Plan: j.Plan, Store: j.store, Host: j.Host, Formats: a.formats, Dialects: dialects.All, Berth: version, Sandboxd: sandboxd, Limits: a.limits(j),
		Again: j.again, Selected: j.selected, Origins: j.origins, AcceptDrift: j.acceptDrift, FindRun: report.FindRun, LookupEnv: a.env, Memory: jobmemory.Own(), Control: &run.Control{}, Log: a.log,
	}
	if !j.Clustered() || j.origins != nil { // what is only verified again has its files here
		if err = cluster.Withdraw(ctx, j.store, version); err != nil {
			return run.Report{}, err
		}
		return a.watched(ctx, &watching{&spec, j.flags, progress}, func(watch run.Observer) (run.Report, error) {
			if j.watch != nil {
				watch = j.watch
			}
			return run.Execute(ctx, spec, watch)
		})
	}
	digests, err := a.digests(ctx, j.Loaded)
	if err != nil {
		return run.Report{}, err
	}
	x := &j.Experiment.Executor
	fleet, err := a.fleet(j)
	if err != nil {
		return run.Report{}, err
	}
	if fleet != nil {
		if spec.Limits.InFlight == nil { // pilots limit how many they make; some wait for them
			spec.Limits.InFlight = new(2 * fleet.Workers * fleet.InFlight)
		}
		defer a.cancelOnSecond(ctx, fleet.Scheduler)()
	}
	settings := cluster.Settings{Digests: digests, RelayAddress: j.flags.relay, LostAfter: x.LostAfter, Idle: x.Idle}
	return a.watched(ctx, &watching{&spec, j.flags, progress}, func(watch run.Observer) (run.Report, error) {
		return cluster.Execute(ctx, spec, settings, fleet, watch)
	})
}

// sandboxdName is the program that is PID 1 in every sandbox. It is in the same
// folder as this program.
const sandboxdName = "berth-sandboxd"

// sandboxdPath finds it.
func sandboxdPath() (string, error) {
	exe, err := os.Executable()
	if err == nil {
		exe, err = filepath.EvalSymlinks(exe)
	}
	if err != nil {
		return "", fmt.Errorf("find %s: %w", sandboxdName, err)
	}
	path := filepath.Join(filepath.Dir(exe), sandboxdName)
	if _, err = os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is missing beside %s: run make build, or install both", sandboxdName, exe)
	}
	return path, nil
}

// tempDir creates a folder for temporary files in the user's TMPDIR or, if that
// fails, in the runtime folder.
func tempDir(pattern string) (string, error) {
	dir, err := os.MkdirTemp("", pattern)
	if err == nil {
		return dir, nil
	}
	runtime, noRuntime := node.Dir()
	if noRuntime != nil {
		return "", errors.Join(err, noRuntime)
	}
	return os.MkdirTemp(runtime, pattern)
}

// sayRun prints the tables of a run and its folder.
func (a *app) sayRun(res *output.Run) {
	if res.Ran == 0 && res.Summary.Complete {
		a.Printf("nothing to run: every trial has an outcome\n\n")
	}
	report.Summary(a.Printer, res.Summary)
	for _, f := range res.Failed {
		a.Printf("%s %s\n", terminal.Paint(a.Color, terminal.Bad, "required:"), f)
	}
	if res.Stopped != "" {
		a.Printf("%s %s\n", terminal.Paint(a.Color, terminal.Odd, "stopped:"), terminal.Clean(res.Stopped))
	}
	a.Printf("\nwritten to %s\n", report.Display(res.Dir))
	if !res.Summary.Complete {
		a.Printf("resume with: berth resume %s\n", report.Display(res.Dir))
	}
	a.Printf("show it:     berth show %s\n", report.Display(res.Dir))
}

// header returns the header of the manifest for a new run.
func (a *app) header(l *experiment.Loaded, f *experiment.Flags) store.Header {
	h := store.Header{
		Experiment: l.Experiment.Name, Created: time.Now().UTC(), Berth: version, Dir: l.Experiment.Dir, Variables: l.Experiment.Variables,
		AllowEnv: f.AllowEnv, AllowRead: f.AllowRead, Lenient: f.Lenient, SkipRefused: f.SkipRefused, Replay: f.Replay,
		CostUSD: l.Experiment.Limits.CostUSD,
	}
	if r := l.Experiment.Retry; r.Max > 0 {
		h.Retry = &store.Retry{Max: r.Max, On: r.On}
	}
	r := l.Experiment.Report
	h.Report = &store.Report{MaxInfrastructure: r.MaxInfrastructure, RefuseExposed: !r.Exposed, Weigh: r.Weigh}
	return h
}

// files returns the files of the experiment, for the run folder.
func files(e *config.Experiment) []store.File {
	var fs []store.File
	for _, f := range e.Files {
		fs = append(fs, store.File{Name: f.Name, Bytes: f.Bytes})
	}
	return fs
}

// limits are the limits that a run begins with: those of the experiment, what people
// set during the run before, and those of the command line.
func (a *app) limits(j *job) core.RunLimits {
	l := j.Experiment.Limits
	if !j.ownLimits {
		for _, said := range control.Resume(j.store.Index().Notes, &l) {
			a.Notef("note: %s\n", terminal.Clean(said))
		}
	}
	if j.flags.inFlight > 0 {
		l.InFlight = new(int(j.flags.inFlight))
	}
	return l
}

// watching is what a run is watched with.
type watching struct {
	*run.Spec

	flags    *runFlags
	progress tui.Watcher
}

// watched carries a run out, with its socket, and with metrics and traces if the user
// asks for them.
func (a *app) watched(ctx context.Context, w *watching, carry func(run.Observer) (run.Report, error)) (report run.Report, err error) {
	var mu sync.Mutex // progress gets one event after another
	say := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		w.progress.Event(run.Event{Kind: run.Notice, Text: text})
	}
	sink, err := w.telemetry(ctx, say)
	if err != nil {
		return report, err
	}
	defer func() { //nolint:contextcheck // also after a cancel
		if sink == nil {
			return
		}
		if lost, failed := sink.Close(); lost > 0 || failed != nil {
			a.log.Warn().Err(failed).Int("lost_events", lost).Msg("not all of the run was told to the receivers of metrics and traces")
		}
	}()
	o := control.Options{Store: w.Store, Control: w.Control, Limits: w.Limits, Say: say}
	if o.Limits.InFlight == nil {
		o.Limits.InFlight = new(runtime.GOMAXPROCS(0))
	}
	server, err := control.Serve(ctx, o)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, server.Close()) }() //nolint:contextcheck // also after a cancel
	return carry(func(e run.Event) {
		server.Event(e)
		if sink != nil {
			sink.Event(e)
		}
		mu.Lock()
		defer mu.Unlock()
		w.progress.Event(e)
	})
}

// telemetry begins metrics and traces; nil if the user asks for neither.
func (w *watching) telemetry(ctx context.Context, say func(string)) (*telemetry.Sink, error) {
	var metrics *telemetry.Metrics
	var traces *telemetry.Traces
	if w.flags.metrics == "" && !telemetry.WantsTraces() {
		return nil, nil
	}
	if telemetry.WantsTraces() {
		var err error
		if traces, err = telemetry.NewTraces(ctx, version); err != nil {
			return nil, err
		}
	}
	if w.flags.metrics != "" {
		var err error
		if metrics, err = telemetry.ServeMetrics(ctx, w.flags.metrics); err != nil {
			return nil, fmt.Errorf("--metrics: %w", err)
		}
		say("metrics: " + metrics.URL())
	}
	return telemetry.New(w.Store, metrics, traces), nil //nolint:contextcheck // spans have their own context, which does not end
}
